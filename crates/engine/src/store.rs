//! The store: partitions over one memory.

use crate::{
    config::{CreateError, MEMORY_BYTES_MAX, StoreConfig},
    index::{INDEX_WORDS, Index},
    partition::{Partition, Writer},
};
use minos_base::{KeyHash, SizeClass, VALUE_BYTES_MAX, hash_key};
use minos_region::{Geometry, MapError, Memory};
use minos_sync::SpinLock;
use std::sync::atomic::AtomicU64;

/// A key-value store in one memory region (MICA §4, store mode): nothing is ever evicted.
///
/// Any thread may read and write. Reads of small items take no lock; writers of one partition
/// exclude each other (CREW, MICA §4.1.2).
#[derive(Debug)]
pub struct Store {
    memory: Memory,
    partitions: Box<[Partition]>,
    partition_bits: u32,
    hash_seed: u64,
    hash_mask: u64,
    pub(crate) class_optimistic_max: SizeClass,
    pub(crate) value_bytes_max: u64,
}

impl Store {
    /// Makes an empty store.
    pub fn create(config: &StoreConfig) -> Result<Self, CreateError> {
        let partitions = config.partition_count()?;
        let bytes = config.memory_bytes;
        if bytes > MEMORY_BYTES_MAX {
            return Err(CreateError::TooLarge { bytes });
        }
        let geometry = Geometry {
            memory_bytes: bytes,
            partitions: u64::from(partitions),
            partition_words: INDEX_WORDS,
            hash_seed: config.hash_seed,
        };
        let too_small = CreateError::TooSmall { bytes, partitions };
        let memory = match Memory::create(geometry, &config.backing) {
            Err(MapError::Size { .. }) => return Err(too_small),
            memory => memory?,
        };
        let list = (0..partitions as usize).map(|number| partition(&memory, number, partitions as usize));
        let partitions: Box<[_]> = list.collect::<Option<_>>().ok_or(too_small)?;
        Ok(Self {
            memory,
            partition_bits: partitions.len().ilog2(),
            partitions,
            hash_seed: config.hash_seed,
            hash_mask: config.hash_mask,
            class_optimistic_max: config.class_optimistic_max(),
            value_bytes_max: config.value_bytes_max.min(VALUE_BYTES_MAX),
        })
    }

    /// The hash of a key, by which every other call finds it.
    #[inline]
    pub fn hash(&self, key: &[u8]) -> KeyHash {
        KeyHash(hash_key(key, self.hash_seed).0 & self.hash_mask)
    }

    /// Number of partitions.
    pub fn partitions(&self) -> usize {
        self.partitions.len()
    }

    /// Largest value that may be stored, in bytes.
    pub fn value_bytes_max(&self) -> u64 {
        self.value_bytes_max
    }

    /// Sets how much of its memory the store may use, in bytes, and says whether it has that much.
    ///
    /// What is stored beyond a lower limit stays; what would need more is refused as if the memory were full.
    pub fn set_memory_limit(&self, limit_bytes: u64) -> bool {
        self.memory().set_limit_bytes(limit_bytes)
    }

    /// How much of its memory the store may use, in bytes.
    pub fn memory_limit(&self) -> u64 {
        self.memory().limit_bytes()
    }

    /// What the memory is and what pages it has, for people.
    pub fn backing_text(&self) -> &str {
        self.memory.region().backing_text()
    }

    /// Stage 1 of a lookup: asks for the cache line of the key's bucket (MICA §4.3.2).
    #[inline]
    pub fn prefetch_bucket(&self, hash: KeyHash) {
        let region = self.memory.region();
        let index = &self.partition(hash).index;
        region.prefetch(index.bucket_of(region, index.buckets(region), hash));
    }

    #[inline]
    pub(crate) fn memory(&self) -> &Memory {
        &self.memory
    }

    #[inline]
    pub(crate) fn partition(&self, hash: KeyHash) -> &Partition {
        &self.partitions[hash.partition(self.partition_bits)]
    }

    pub(crate) fn partition_list(&self) -> &[Partition] {
        &self.partitions
    }

    /// Walks the whole memory and says what is wrong with it. For tests: it stops all writers.
    #[doc(hidden)]
    pub fn check(&self) -> Result<(), String> {
        crate::check::check(self)
    }
}

fn partition(memory: &Memory, number: usize, count: usize) -> Option<Partition> {
    let index = Index::create(memory, memory.partition_start(number))?;
    let writer = Writer::new(index, memory.partition_heap(number), number, count);
    Some(Partition {
        index,
        writer: SpinLock::new(writer),
        retries: AtomicU64::new(0),
        fallbacks: AtomicU64::new(0),
    })
}
