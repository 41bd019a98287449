//! Contents of values.
//!
//! Every value is a stretch of one random block, beginning where its item says, so that composing a
//! value costs nothing and checking one costs a comparison.

use std::sync::Arc;

use minos_base::seeded;
use rand::Rng;
use xxhash_rust::xxh3::Xxh3Default;

/// Bytes after which contents repeat. A prime, so that no power of two in a server's buffers hides a shift.
const BLOCK_BYTES: usize = 1_048_573;

/// The block that values are cut from.
#[derive(Clone, Debug)]
pub(crate) struct ValueBlock {
    bytes: Arc<[u8]>,
}

impl ValueBlock {
    pub(crate) fn new(seed: u64) -> Self {
        let mut bytes = vec![0u8; BLOCK_BYTES];
        seeded(seed).fill_bytes(&mut bytes);
        Self { bytes: bytes.into() }
    }

    /// The contents from byte `at` of a value that begins at `start`, up to the end of the contiguous piece.
    fn piece(&self, start: u64, at: u64) -> &[u8] {
        let begin = ((start + at) % BLOCK_BYTES as u64) as usize;
        &self.bytes[begin..]
    }

    /// A value of `value_bytes` that begins where `item_hash` says.
    pub(crate) fn body(&self, item_hash: u64, value_bytes: u64) -> Body {
        Body::Cut { block: self.clone(), start: item_hash % BLOCK_BYTES as u64, value_bytes }
    }
}

/// The value of a SET.
#[derive(Clone, Debug)]
pub(crate) enum Body {
    /// A stretch of the block.
    Cut {
        block: ValueBlock,
        /// Where it begins in the block.
        start: u64,
        value_bytes: u64,
    },
    /// Bytes of a file.
    Whole(Box<[u8]>),
}

impl Body {
    pub(crate) fn value_bytes(&self) -> u64 {
        match self {
            Self::Cut { value_bytes, .. } => *value_bytes,
            Self::Whole(bytes) => bytes.len() as u64,
        }
    }

    /// Contents from byte `at`, up to the end of the contiguous piece; empty at the end of the value.
    pub(crate) fn piece(&self, at: u64) -> &[u8] {
        match self {
            Self::Cut { block, start, value_bytes } => {
                let left = usize::try_from(value_bytes - at).unwrap_or(usize::MAX);
                let piece = block.piece(*start, at);
                &piece[..piece.len().min(left)]
            }
            Self::Whole(bytes) => &bytes[at as usize..],
        }
    }

    /// Appends the whole value.
    pub(crate) fn append_to(&self, out: &mut Vec<u8>) {
        let mut at = 0;
        while at < self.value_bytes() {
            let piece = self.piece(at);
            out.extend_from_slice(piece);
            at += piece.len() as u64;
        }
    }
}

/// Compares a value with the expected one, piece by piece.
pub(crate) enum Check {
    Length {
        /// The expected length.
        value_bytes: u64,
    },
    /// Every byte, against the block.
    Contents {
        /// The expected contents.
        body: Body,
        /// Bytes seen.
        at: u64,
        /// True if all of them were right.
        same: bool,
    },
    /// Every byte, against a digest.
    Digest {
        /// The expected length.
        value_bytes: u64,
        digest: u64,
        /// The digest so far.
        state: Box<Xxh3Default>,
    },
    /// The value may be anything.
    Nothing,
}

impl Check {
    /// True if a value of `value_bytes` can be right.
    pub(crate) fn is_length(&self, value_bytes: u64) -> bool {
        match self {
            Self::Length { value_bytes: expected } | Self::Digest { value_bytes: expected, .. } => {
                *expected == value_bytes
            }
            Self::Contents { body, .. } => body.value_bytes() == value_bytes,
            Self::Nothing => true,
        }
    }

    /// True if the bytes are compared. Otherwise they may be dropped unread.
    pub(crate) fn needs_bytes(&self) -> bool {
        matches!(self, Self::Contents { .. } | Self::Digest { .. })
    }

    /// Compares the next bytes. The caller passes no more than the value's length in total.
    pub(crate) fn update(&mut self, mut part: &[u8]) {
        match self {
            Self::Contents { body, at, same } => {
                while !part.is_empty() && *same {
                    let piece = body.piece(*at);
                    let common = piece.len().min(part.len());
                    *same = common > 0 && piece[..common] == part[..common];
                    *at += common as u64;
                    part = &part[common..];
                }
            }
            Self::Digest { state, .. } => state.update(part),
            Self::Length { .. } | Self::Nothing => {}
        }
    }

    /// True if all bytes passed to `update` are right.
    pub(crate) fn is_right(&self) -> bool {
        match self {
            Self::Contents { same, .. } => *same,
            Self::Digest { digest, state, .. } => state.digest() == *digest,
            Self::Length { .. } | Self::Nothing => true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(body: &Body) -> Check {
        Check::Contents { body: body.clone(), at: 0, same: true }
    }

    #[test]
    fn a_value_passes_its_own_check_in_any_pieces() {
        let block = ValueBlock::new(7);
        // It wraps around the end of the block twice.
        let body = block.body(BLOCK_BYTES as u64 - 3, 2 * BLOCK_BYTES as u64 + 11);
        let mut value = Vec::new();
        body.append_to(&mut value);
        assert_eq!(value.len() as u64, body.value_bytes());
        for piece_bytes in [1000, 65_536, value.len()] {
            let mut check = check(&body);
            value.chunks(piece_bytes).for_each(|part| check.update(part));
            assert!(check.is_right());
        }
    }

    #[test]
    fn one_wrong_byte_is_seen() {
        let body = ValueBlock::new(7).body(5, 1000);
        let mut value = Vec::new();
        body.append_to(&mut value);
        for wrong in [0, 500, 999] {
            let mut check = check(&body);
            let mut changed = value.clone();
            changed[wrong] ^= 1;
            check.update(&changed);
            assert!(!check.is_right(), "byte {wrong}");
        }
    }

    #[test]
    fn a_digest_tells_files_apart() {
        let expected = xxhash_rust::xxh3::xxh3_64(b"hello");
        for (bytes, right) in [(b"hello", true), (b"hellp", false)] {
            let mut check = Check::Digest { value_bytes: 5, digest: expected, state: Box::default() };
            check.update(&bytes[..2]);
            check.update(&bytes[2..]);
            assert_eq!(check.is_right(), right);
        }
    }

    #[test]
    fn other_items_have_other_contents() {
        let block = ValueBlock::new(7);
        let (mut a, mut b) = (Vec::new(), Vec::new());
        block.body(crate::model::mix(1), 8).append_to(&mut a);
        block.body(crate::model::mix(2), 8).append_to(&mut b);
        assert_ne!(a, b);
    }
}
