//! Tags that show that who wrote a datagram knows the secret.

use std::fmt;

use super::{Flags, HEADER_BYTES, Header, TAG_BYTES};

/// What keys are derived for, so that the same secret makes other keys for other purposes.
const PURPOSE: &str = "minos native protocol 1: tags of datagrams";

/// A key for tags: the first 16 bytes of BLAKE3, keyed, over all bytes before the tag.
///
/// Kind and session are among those bytes, so that nothing that one side sent can be sent back to it as an
/// answer. A tag says who wrote a datagram, not that it is new: replays are told by session and sequence.
#[derive(Clone)]
pub struct SealKey([u8; 32]);

impl SealKey {
    /// The key that follows from a shared secret of any length.
    pub fn from_secret(secret: &[u8]) -> Self {
        Self(blake3::derive_key(PURPOSE, secret))
    }

    /// The tag of a datagram that lies in `pieces`, without the place of its tag. Its header must say already that
    /// it is sealed, and its length count the tag.
    pub fn tag<'p>(&self, pieces: impl IntoIterator<Item = &'p [u8]>) -> [u8; TAG_BYTES] {
        let mut hasher = blake3::Hasher::new_keyed(&self.0);
        for piece in pieces {
            hasher.update(piece);
        }
        let mut tag = [0; TAG_BYTES];
        tag.copy_from_slice(&hasher.finalize().as_bytes()[..TAG_BYTES]);
        tag
    }

    /// Whether `datagram` is sealed and its tag the right one; takes as long for a wrong tag as for a right one.
    pub fn verify(&self, datagram: &[u8]) -> bool {
        let Ok(header) = Header::parse(datagram) else { return false };
        if !header.flags.contains(Flags::SEALED) {
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
        f.write_str("SealKey(..)")
    }
}
