//! The configuration of a store, and the errors of creating one.

use minos_base::{VALUE_BYTES_MAX, limits::BURST_MAX};
use minos_region::{Backing, MapError, Nodes};
use std::ops::Range;

/// Most partitions of a store: as many as the key hash keeps bits for.
const PARTITIONS_MAX: u32 = 1 << PARTITION_BITS_MAX;

/// Most highest bits of a hash that choose the partition.
pub(crate) const PARTITION_BITS_MAX: u32 = 16;

/// Default numbers of partitions: up to 16 of 4 MiB and more, then up to 256 of 16 MiB and more. Writers lock a partition,
/// so that many threads need many: with 16 threads and half of the operations PUTs, 256 partitions execute three times
/// as many operations as 16.
const PARTITIONS_BY_BYTES: [(u64, u64); 2] = [(16, 4 << 20), (256, 16 << 20)];

/// An upper bound of the bytes that the heap adds to a large value.
const RESERVE_SLACK_BYTES: u64 = 4 << 10;

/// Default maximum number of buckets in a chain. Unless keys are chosen to collide, a chain has only
/// a few, if there is memory for the index to grow.
pub const CHAIN_BUCKETS_MAX: usize = 64;

/// Largest memory of one store: a spare bucket is named by 32 bits in units of 64 bytes.
pub(crate) const MEMORY_BYTES_MAX: u64 = 64 << 32;

/// Which items a cache evicts when its memory is full (MICA §4.3.1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Eviction {
    /// The oldest.
    Fifo,
    /// About the least recently used: an item that is read in the older half of its log moves to the tail.
    #[default]
    ApproxLru,
    /// The least recently used: an item that is read moves to the tail, unless it is near it already.
    Lru,
}

/// The way between memory and flash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TierConfig {
    /// True if no item may be lost: what does not fit is refused, and memory waits for flash.
    pub is_lossless: bool,
    /// Most items of a partition whose copies are on their way to flash.
    pub tickets_max: usize,
    /// Most tombstones of a partition that wait to be written.
    pub tombstones_max: usize,
}

impl Default for TierConfig {
    fn default() -> Self {
        Self { is_lossless: false, tickets_max: 1 << 14, tombstones_max: 1 << 16 }
    }
}

/// How to make a [`crate::Engine`].
#[derive(Clone, Debug)]
pub struct StoreConfig {
    /// Memory for everything: items, index, heaps. In bytes.
    pub memory_bytes: u64,
    /// Where the memory comes from.
    pub backing: Backing,
    /// NUMA nodes, by the kernel's numbers, that pages of the memory come from in turn. None: the kernel decides.
    pub memory_nodes: Vec<usize>,
    /// Number of partitions, a power of two up to 65 536. `None`: 16, fewer in less than 64 MiB, up to 256 in more than
    /// 256 MiB.
    pub partitions: Option<u32>,
    /// Seed of the key hash.
    pub hash_seed: u64,
    /// Largest value that may be stored, in bytes, at most [`VALUE_BYTES_MAX`].
    pub value_bytes_max: u64,
    /// Largest value that is read without a lock, in bytes, rounded up to the end of its size class.
    ///
    /// Larger ones are read under a pin: copying them takes so long that a writer would often
    /// interfere, and their memory must be known to be unread when it is received into.
    pub item_optimistic_bytes_max: u64,
    /// Which items a cache evicts; a store evicts none.
    pub eviction: Eviction,
    /// Memory at the end of the region that only large values may take, in bytes. Cache mode; `None`: an
    /// eighth of the memory, or one value of the largest size if that is more and not more than half.
    pub large_bytes_min: Option<u64>,
    /// Memory outside the table, in bytes, for buffers of large values whose place held small items before;
    /// `None` is a sixteenth of the table's memory. There is always room for one value.
    pub buffer_bytes_max: Option<u64>,
    /// Buckets of the longest chain, of 7 items each. An item that would make it longer is refused by a store; in a
    /// cache the oldest of the chain makes room, in one of more than three buckets as soon as some of its items are
    /// evicted. Chains get long if a client computes keys that collide, or if there is no memory for the index to
    /// grow.
    pub chain_buckets_max: usize,
    /// Operations of a burst whose cache misses overlap, from 1 to
    /// [`BURST_MAX`]; with 1 nothing is prefetched.
    pub prefetch_depth: usize,
    /// The way to flash, of a table above one.
    pub tier: TierConfig,
    /// Micro-shards whose ownership the region shows to readers in other processes; 0 for none.
    pub micro_shards: u32,
    /// The CAS uniques that the table may give, of which it has given none before it is opened, if items of other tables
    /// come here with theirs. What other uniques are found then tells nothing of its own.
    pub uniques: Option<Range<u64>>,
    /// Threads that own partitions, in [`crate::Crew`] and [`crate::Erew`]: partition p belongs to number p
    /// modulo this number, which is not 0.
    pub owners: u32,
    /// Seed of the hash whose highest bits choose the partition in those modes, and which clients may know. The table
    /// does not keep it: whoever opens the table again needs it, and a reader in another process finds keys only where
    /// it is also the seed of the key hash.
    pub direction_seed: u64,
    /// Bits of the key hash in use: all of them, except in tests with colliding keys.
    #[doc(hidden)]
    pub hash_mask: u64,
}

impl StoreConfig {
    /// A store of `memory_bytes` with defaults for everything else.
    pub fn new(memory_bytes: u64) -> Self {
        Self {
            memory_bytes,
            backing: Backing::Auto,
            memory_nodes: Vec::new(),
            partitions: None,
            hash_seed: 0,
            value_bytes_max: VALUE_BYTES_MAX,
            item_optimistic_bytes_max: 4096,
            eviction: Eviction::default(),
            large_bytes_min: None,
            buffer_bytes_max: None,
            chain_buckets_max: CHAIN_BUCKETS_MAX,
            prefetch_depth: BURST_MAX,
            tier: TierConfig::default(),
            micro_shards: 0,
            uniques: None,
            owners: 1,
            direction_seed: 0,
            hash_mask: u64::MAX,
        }
    }

    pub(crate) fn nodes(&self) -> Nodes {
        Nodes::of(&self.memory_nodes)
    }

    /// Memory that only large values of a cache may take, in bytes.
    pub fn reserve_bytes(&self) -> u64 {
        let (eighth, half) = (self.memory_bytes / 8, self.memory_bytes / 2);
        let one_value = self.value_bytes_max.saturating_add(RESERVE_SLACK_BYTES);
        // A largest value that would take more than half was hardly meant as a promise.
        let default = if one_value <= half { eighth.max(one_value) } else { eighth };
        self.large_bytes_min.unwrap_or(default).min(half)
    }

    /// Memory of buffers beside the table, in bytes.
    pub(crate) fn buffer_bytes(&self) -> u64 {
        let bytes_max = self.buffer_bytes_max.unwrap_or(self.memory_bytes / 16);
        bytes_max.max(self.value_bytes_max.min(VALUE_BYTES_MAX))
    }

    pub(crate) fn partition_count(&self) -> Result<u32, CreateError> {
        let by_memory = PARTITIONS_BY_BYTES.map(|(most, bytes_min)| most.min(self.memory_bytes / bytes_min));
        let default = by_memory.into_iter().fold(1, u64::max).ilog2();
        let partitions = self.partitions.unwrap_or(1 << default);
        if partitions.is_power_of_two() && partitions <= PARTITIONS_MAX {
            Ok(partitions)
        } else {
            Err(CreateError::Partitions { partitions })
        }
    }
}

impl Default for StoreConfig {
    /// 64 MiB, as in memcached.
    fn default() -> Self {
        Self::new(64 << 20)
    }
}

/// Why a store could not be made.
#[derive(Debug, thiserror::Error)]
pub enum CreateError {
    /// The number of partitions is not possible.
    #[error("{partitions} partitions are not possible: a power of two from 1 to {PARTITIONS_MAX} is")]
    Partitions {
        /// The number requested.
        partitions: u32,
    },
    /// There is too much memory for one store.
    #[error("a store of {bytes} bytes is not possible: at most {MEMORY_BYTES_MAX} are")]
    TooLarge {
        /// The memory requested, in bytes.
        bytes: u64,
    },
    /// The memory cannot be mapped.
    #[error(transparent)]
    Map(#[from] MapError),
    /// The memory holds not even an empty index.
    #[error("{bytes} bytes are too few for {partitions} partitions")]
    TooSmall {
        /// The memory requested, in bytes.
        bytes: u64,
        /// Number of partitions.
        partitions: u32,
    },
}
