//! Argon2 hashes of passwords.

use std::fmt;

use argon2::{
    Argon2,
    password_hash::{PasswordHasher, PasswordVerifier, phc::PasswordHash},
};

/// Longest password, in bytes.
pub const PASSWORD_BYTES_MAX: usize = 1024;
/// Most memory that a hash may ask for, in KiB, and its passes and lanes.
const COSTS_MAX: [(&str, u32); 3] = [("m", 256 << 10), ("t", 32), ("p", 16)];
/// Longest hash, as text.
const HASH_BYTES_MAX: usize = 512;

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
        Argon2::default().verify_password(password, &self.0).is_ok()
    }
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
