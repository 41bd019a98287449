//! Checksums that depend on the place and on the life of what they cover.

use super::Life;
use crate::switches::{Safeguard, is_on};
use xxhash_rust::xxh3::{Xxh3, xxh3_64_with_seed};

/// Computes a table's checksums.
///
/// Seeded with the table, the life and the place, so that a stale or misdirected page fails. The table's
/// seed is secret: no value can imitate a structure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seal {
    seed: u64,
}

impl Seal {
    /// The checksums of the table with this secret seed.
    pub fn new(seed: u64) -> Self {
        Self { seed }
    }

    /// The checksum of `bytes`, which lie at byte `at` of the device in a segment's `life`.
    #[inline]
    pub fn sum(self, life: Life, at: u64, bytes: &[u8]) -> u64 {
        xxh3_64_with_seed(bytes, self.seed_of(life, at))
    }

    /// As [`Seal::sum`], of bytes in pieces.
    pub(super) fn sum_of_pieces<'a>(
        self,
        life: Life,
        at: u64,
        pieces: impl Iterator<Item = &'a [u8]>,
    ) -> u64 {
        let mut state = Xxh3::with_seed(self.seed_of(life, at));
        pieces.for_each(|piece| state.update(piece));
        state.digest()
    }

    #[inline]
    fn seed_of(self, life: Life, at: u64) -> u64 {
        if !is_on(Safeguard::Seed) {
            return self.seed;
        }
        // An odd factor spreads life and place over all bits and keeps them apart.
        self.seed ^ (u64::from(life.0) << 40 ^ at).wrapping_mul(0x9e37_79b9_7f4a_7c15)
    }
}
