//! The key hash, one function for server, clients and files on disk.
//!
//! XXH3-64 is used because its output is specified and available in every language a client may
//! be written in, so that a client can compute the partition of a key by itself (MICA §4.2.2).

use xxhash_rust::xxh3::xxh3_64_with_seed;

/// Hash of a key under a store's seed.
///
/// Its bits are used from both ends: the highest choose the partition, the lowest 16 are the tag,
/// those between choose the bucket (MICA §4.1.1, §4.3.2; Minos §4.2).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct KeyHash(pub u64);

/// Hashes `key` under `seed`.
#[inline]
pub fn hash_key(key: &[u8], seed: u64) -> KeyHash {
    KeyHash(xxh3_64_with_seed(key, seed))
}

impl KeyHash {
    /// The partition among `1 << partition_bits`, from the highest bits.
    #[inline]
    pub fn partition(self, partition_bits: u32) -> usize {
        debug_assert!(partition_bits <= 16);
        // Two shifts, because a shift by 64 is not defined when there is one partition.
        ((self.0 >> 1) >> (63 - partition_bits)) as usize
    }

    /// The bits between partition and tag, from which the bucket is chosen.
    ///
    /// 16 bits are reserved for the partition, however many of them are in use, so that a bucket does not
    /// depend on the number of partitions.
    #[inline]
    pub fn bucket_bits(self) -> u32 {
        (self.0 >> 16) as u32
    }

    /// The tag kept in an index slot. Never zero: a slot of zero is empty.
    #[inline]
    pub fn tag(self) -> u16 {
        (self.0 as u16).max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hash_is_the_specified_xxh3() {
        // From the XXH3 specification's reference implementation: the empty input, seed 0.
        assert_eq!(hash_key(b"", 0), KeyHash(0x2d06_8005_38d3_94c2));
        assert_ne!(hash_key(b"", 0), hash_key(b"", 1));
    }

    #[test]
    fn parts_come_from_disjoint_bits() {
        let hash = KeyHash(0xabcd_1234_5678_0000);
        assert_eq!(hash.partition(0), 0);
        assert_eq!(hash.partition(4), 0xa);
        assert_eq!(hash.partition(16), 0xabcd);
        assert_eq!(hash.bucket_bits(), 0x1234_5678);
        assert_eq!(hash.tag(), 1);
    }
}
