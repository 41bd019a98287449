//! The hash of keys, and the partition that it chooses.

use minos_base::{KeyHash, hash_key};

/// How a table hashes keys. Readers and writers must agree on it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Hashing {
    pub(crate) seed: u64,
    /// The bits of a hash that are used.
    pub(crate) mask: u64,
    /// Highest bits of a hash up to the end of the partition's number.
    pub(crate) partition_shift: u32,
}

impl Hashing {
    #[inline]
    pub(crate) fn hash(&self, key: &[u8]) -> KeyHash {
        KeyHash(hash_key(key, self.seed).0 & self.mask)
    }

    /// The number of a key's partition of `partitions`, a power of two.
    #[inline]
    pub(crate) fn partition_of(&self, hash: KeyHash, partitions: usize) -> usize {
        hash.partition(self.partition_shift) & (partitions - 1)
    }
}
