//! Argon2 hashes of passwords.

use std::{cell::RefCell, fmt};

use argon2::{
    Algorithm, Argon2, Block, Params, Version,
    password_hash::{
        Error, PasswordHasher,
        phc::{Output, PasswordHash},
    },
};

/// Longest password, in bytes.
pub const PASSWORD_BYTES_MAX: usize = 1024;
/// Most memory that a hash may ask for, in KiB, and its passes and lanes.
const COSTS_MAX: [(&str, u32); 3] = [("m", 256 << 10), ("t", 32), ("p", 16)];
/// Longest hash, as text.
const HASH_BYTES_MAX: usize = 512;

/// Most blocks of 1 KiB that a thread keeps for its next check. An allocator may keep what is freed, but maps larger ones
/// by themselves: glibc does so above 32 MiB in any case.
const BLOCKS_KEPT_MAX: usize = 32 << 10;

thread_local! {
    /// Memory for a check. If each had its own, wrong passwords could make the process grow: the allocator puts them into
    /// its arenas.
    static BLOCKS: RefCell<Vec<Block>> = const { RefCell::new(Vec::new()) };
}

/// The Argon2id hash of `password`, as a file takes it behind `#`.
///
/// # Errors
/// The password is too long, or the kernel has no random bytes.
pub fn hash(password: &[u8]) -> Result<String, String> {
    if password.len() > PASSWORD_BYTES_MAX {
        return Err(format!("a password has at most {PASSWORD_BYTES_MAX} bytes"));
    }
    let hash = Argon2::default().hash_password(password).map_err(|error| error.to_string())?;
    Ok(hash.to_string())
}

/// A hash, checked for costs that a server can bear.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Secret(PasswordHash);

impl Secret {
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        if text.len() == 64 && text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return Err("a SHA-256 hash is too easily guessed: use `minos secret --hash`".to_owned());
        }
        let wrong = || "expected an Argon2 hash as `minos secret --hash` prints it".to_owned();
        if !text.starts_with("$argon2") || text.len() > HASH_BYTES_MAX {
            return Err(wrong());
        }
        let hash = PasswordHash::new(text).map_err(|_| wrong())?;
        if hash.salt.is_none() || hash.hash.is_none() {
            return Err(wrong());
        }
        for (name, max) in COSTS_MAX {
            let cost = hash.params.get_decimal(name).ok_or_else(wrong)?;
            if cost > max {
                return Err(format!("the hash costs {name}={cost}, at most {max} is allowed"));
            }
        }
        Ok(Self(hash))
    }

    /// True if it is that of `password`. Takes tens of milliseconds.
    pub(crate) fn is_of(&self, password: &[u8]) -> bool {
        matches!((self.output_for(password), self.0.hash), (Ok(output), Some(expected)) if output == expected)
    }

    /// What a hash of `password` in the same way ends with.
    fn output_for(&self, password: &[u8]) -> Result<Output, Error> {
        let hash = &self.0;
        let (Some(salt), Some(expected)) = (&hash.salt, &hash.hash) else {
            return Err(Error::PasswordInvalid);
        };
        let algorithm = Algorithm::try_from(hash.algorithm.as_str())?;
        let version = hash.version.map(Version::try_from).transpose()?.unwrap_or_default();
        let params = Params::try_from(hash)?;
        let blocks = params.block_count();
        let argon2 = Argon2::new(algorithm, version, params);
        let mut output = [0; Output::MAX_LENGTH];
        let output = &mut output[..expected.len()];
        with_blocks(blocks, |memory| argon2.hash_password_into_with_memory(password, salt, output, memory))?;
        Ok(Output::new(output)?)
    }
}

/// Runs `work` with so many blocks, which have any content.
fn with_blocks<R>(count: usize, work: impl FnOnce(&mut [Block]) -> R) -> R {
    if count > BLOCKS_KEPT_MAX {
        return work(&mut vec![Block::new(); count]);
    }
    BLOCKS.with_borrow_mut(|blocks| {
        if blocks.len() < count {
            blocks.resize(count, Block::new());
        }
        work(&mut blocks[..count])
    })
}

impl fmt::Display for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret")
    }
}

#[cfg(test)]
mod tests {
    use argon2::CustomizedPasswordHasher;

    use super::*;

    #[test]
    fn checks_use_the_same_memory() {
        let hash_at = |kib| {
            let params = Params::new(kib, 1, 2, None).unwrap();
            let hash =
                Argon2::default().hash_password_with_params(b"right", b"saltsaltsalt", params).unwrap();
            Secret::parse(&hash.to_string()).unwrap()
        };
        let kept = || BLOCKS.with_borrow(|blocks| (blocks.as_ptr(), blocks.len()));
        assert!(Secret::parse(&hash(b"right").unwrap()).unwrap().is_of(b"right"));
        let once = kept();
        assert_eq!(once.1, 19 << 10);
        // Blocks have what the check before has left there.
        for kib in [16, 100, (BLOCKS_KEPT_MAX + 16) as u32] {
            let secret = hash_at(kib);
            assert_eq!(
                [&b"right"[..], b"wrong", b"right"].map(|word| secret.is_of(word)),
                [true, false, true]
            );
        }
        assert_eq!(kept(), once);
    }
}
