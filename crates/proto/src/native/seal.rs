//! Secrets, and the tags that prove that a datagram's sender knows one.

use std::{fmt, str::FromStr};

use super::{Flags, HEADER_BYTES, Header, TAG_BYTES};

/// The contexts of key derivation, one for each direction: a tag of one is never valid for the other.
const TO_SERVER: &str = "minos native protocol 2: tags of datagrams to the server";
const TO_CLIENT: &str = "minos native protocol 2: tags of datagrams to the client";

/// Fewest different values among the bytes of a secret. Random ones have fewer in one case of 10^15.
const DISTINCT_MIN: usize = 16;

/// Random bytes that a server and its clients share, with the id by which datagrams name them.
///
/// Written as `ID:HEX`, an id from 1 to 255 and 64 digits. Keys are derived without any stretching, so the
/// bytes must be random: from one datagram's tag, an attacker can test guesses.
///
/// ```
/// use minos_proto::native::Secret;
///
/// let secret: Secret = "7:00112233445566778899aabbccddeeff0123456789abcdeffedcba9876543210".parse()?;
/// assert_eq!(secret.id(), 7);
/// assert!("7:correct horse battery staple".parse::<Secret>().is_err());
/// # Ok::<(), minos_proto::native::BadSecret>(())
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct Secret {
    id: u8,
    bytes: [u8; Self::BYTES],
}

/// Why something is no secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadSecret {
    /// It is not written as `ID:HEX`.
    #[error(
        "expected ID:HEX with an id from 1 to 255 and 64 hexadecimal digits, as `minos secret` prints it"
    )]
    Form,
    /// Its bytes are not random.
    #[error("these bytes are not random, so that they can be guessed: take what `minos secret` prints")]
    Weak,
    /// Two secrets have the same id.
    #[error("two secrets have the id {0}: make another one")]
    Twice(u8),
    /// There is none.
    #[error("there is no secret: put a line there that `minos secret` prints")]
    Missing,
}

impl Secret {
    /// How many bytes it has.
    pub const BYTES: usize = 32;

    /// A secret of these bytes.
    ///
    /// # Errors
    /// The id is 0, or the bytes were hardly drawn at random.
    pub fn new(id: u8, bytes: [u8; Self::BYTES]) -> Result<Self, BadSecret> {
        let mut values = bytes;
        values.sort_unstable();
        let distinct = 1 + values.windows(2).filter(|pair| pair[0] != pair[1]).count();
        // A passphrase that was written as digits.
        let is_text = bytes.iter().all(|byte| matches!(byte, b' '..=b'~'));
        match id {
            0 => Err(BadSecret::Form),
            _ if is_text || distinct < DISTINCT_MIN => Err(BadSecret::Weak),
            _ => Ok(Self { id, bytes }),
        }
    }

    /// The secrets in a file, one a line. Empty lines and those that begin with `#` are skipped.
    ///
    /// # Errors
    /// A line is no secret, two have the same id, or there is none.
    pub fn all_in(text: &str) -> Result<Vec<Self>, BadSecret> {
        let mut secrets: Vec<Self> = Vec::new();
        let lines = text.lines().map(str::trim);
        for line in lines.filter(|line| !line.is_empty() && !line.starts_with('#')) {
            let secret: Self = line.parse()?;
            if secrets.iter().any(|other| other.id == secret.id) {
                return Err(BadSecret::Twice(secret.id));
            }
            secrets.push(secret);
        }
        if secrets.is_empty() { Err(BadSecret::Missing) } else { Ok(secrets) }
    }

    /// Its number, which datagrams show.
    pub const fn id(&self) -> u8 {
        self.id
    }

    /// A key for a purpose of its own: nobody can tell it from random bytes who only knows keys for other purposes.
    pub fn key_for(&self, purpose: &str) -> [u8; Self::BYTES] {
        blake3::derive_key(purpose, &self.bytes)
    }

    /// Its written form, which reveals the secret.
    pub fn reveal(&self) -> String {
        let digits = self.bytes.iter().map(|byte| format!("{byte:02x}"));
        std::iter::once(format!("{}:", self.id)).chain(digits).collect()
    }
}

impl FromStr for Secret {
    type Err = BadSecret;

    fn from_str(text: &str) -> Result<Self, BadSecret> {
        let (id, digits) = text.trim().split_once(':').ok_or(BadSecret::Form)?;
        let id = id.parse().map_err(|_| BadSecret::Form)?;
        if digits.len() != 2 * Secret::BYTES || !digits.bytes().all(|digit| digit.is_ascii_hexdigit()) {
            return Err(BadSecret::Form);
        }
        let mut bytes = [0; Secret::BYTES];
        for (byte, at) in bytes.iter_mut().zip((0..).step_by(2)) {
            *byte = u8::from_str_radix(&digits[at..at + 2], 16).map_err(|_| BadSecret::Form)?;
        }
        Self::new(id, bytes)
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Secret({}, ..)", self.id)
    }
}

/// The keys that follow from a [`Secret`], one for each direction.
#[derive(Clone, Debug)]
pub struct SealKeys {
    /// The key of datagrams from clients.
    pub to_server: SealKey,
    /// The key of datagrams from servers.
    pub to_client: SealKey,
}

impl SealKeys {
    /// The keys of a secret.
    pub fn of(secret: &Secret) -> Self {
        let derived = |purpose| SealKey { id: secret.id, key: secret.key_for(purpose) };
        Self { to_server: derived(TO_SERVER), to_client: derived(TO_CLIENT) }
    }
}

/// A key for tags: the first 16 bytes of BLAKE3, keyed, over all bytes before the tag.
///
/// A tag proves that the sender knows the secret, not that the datagram is
/// new: session and sequence show that.
#[derive(Clone)]
pub struct SealKey {
    id: u8,
    key: [u8; 32],
}

impl SealKey {
    /// The id of the secret that it follows from.
    pub const fn id(&self) -> u8 {
        self.id
    }

    /// The tag of the datagram in `pieces`, which end before the tag. Its header must already have the sealed
    /// flag and the secret's id, and its length must include the tag.
    pub fn tag<'p>(&self, pieces: impl IntoIterator<Item = &'p [u8]>) -> [u8; TAG_BYTES] {
        let mut hasher = blake3::Hasher::new_keyed(&self.key);
        for piece in pieces {
            hasher.update(piece);
        }
        let mut tag = [0; TAG_BYTES];
        tag.copy_from_slice(&hasher.finalize().as_bytes()[..TAG_BYTES]);
        tag
    }

    /// True if `datagram` is sealed by this secret and its tag is right; a
    /// wrong tag takes as long as a right one.
    pub fn verify(&self, datagram: &[u8]) -> bool {
        let Ok(header) = Header::parse(datagram) else { return false };
        if !header.flags.contains(Flags::SEALED) || header.secret != self.id {
            return false;
        }
        let before_bytes = usize::from(header.length).saturating_sub(TAG_BYTES).max(HEADER_BYTES);
        let Some((before, behind)) = datagram.split_at_checked(before_bytes) else { return false };
        behind.first_chunk().is_some_and(|tag| is_same(tag, &self.tag([before])))
    }
}

/// Compares in a time that does not depend on the bytes.
fn is_same(a: &[u8; TAG_BYTES], b: &[u8; TAG_BYTES]) -> bool {
    // Hashes are compared in constant time.
    let hash = |tag: &[u8; TAG_BYTES]| {
        let mut bytes = [0; 2 * TAG_BYTES];
        bytes[..TAG_BYTES].copy_from_slice(tag);
        blake3::Hash::from_bytes(bytes)
    };
    hash(a) == hash(b)
}

impl fmt::Debug for SealKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SealKey({}, ..)", self.id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "7:00112233445566778899aabbccddeeff0123456789abcdeffedcba9876543210";

    #[test]
    fn a_secret_is_written_as_it_is_read_and_not_printed() {
        let secret: Secret = TEXT.parse().unwrap();
        assert_eq!(secret.reveal(), TEXT);
        assert_eq!(format!("{secret:?}"), "Secret(7, ..)");
        let keys = SealKeys::of(&secret);
        assert_eq!(format!("{:?}", keys.to_client), "SealKey(7, ..)");
    }

    #[test]
    fn what_can_be_guessed_is_no_secret() {
        let short = &TEXT[..TEXT.len() - 2];
        let passphrase: String =
            b"correct horse battery staple abc".iter().map(|byte| format!("{byte:02x}")).collect();
        let cases = [
            ("correct horse battery staple", BadSecret::Form),
            (short, BadSecret::Form),
            (&TEXT.replace("7:", "0:"), BadSecret::Form),
            (&TEXT.replace("7:", "256:"), BadSecret::Form),
            (&TEXT.replace("00", "0x"), BadSecret::Form),
            (&format!("7:{}", "0".repeat(64)), BadSecret::Weak),
            (&format!("7:{}", "00f1e2d3".repeat(8)), BadSecret::Weak),
            (&format!("7:{passphrase}"), BadSecret::Weak),
        ];
        for (text, why) in cases {
            assert_eq!(text.parse::<Secret>(), Err(why), "{text}");
        }
    }

    #[test]
    fn a_file_has_a_line_for_each_secret() {
        let other = TEXT.replace("7:", "8:");
        let both = Secret::all_in(&format!("# new\n{other}\n\n  {TEXT}  \n")).unwrap();
        assert_eq!(both.iter().map(Secret::id).collect::<Vec<_>>(), [8, 7]);
        assert_eq!(Secret::all_in(&format!("{TEXT}\n{TEXT}")), Err(BadSecret::Twice(7)));
        assert_eq!(Secret::all_in("# none\n"), Err(BadSecret::Missing));
        assert_eq!(Secret::all_in(&format!("{TEXT}\npassword")), Err(BadSecret::Form));
    }
}
