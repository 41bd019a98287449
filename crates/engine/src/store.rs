//! The table: partitions over one memory.

use crate::{
    cache_mode::CacheMode,
    config::{CreateError, MEMORY_BYTES_MAX, StoreConfig},
    index::{Index, Segments},
    mode::{Mode, Parts},
    partition::{Partition, Writer, Writing},
    stats::Counts,
    store_mode::StoreMode,
};
use minos_base::{KeyHash, SizeClass, VALUE_BYTES_MAX, hash_key, limits::BURST_MAX};
use minos_region::{Geometry, MapError, Memory};
use minos_sync::{Access, AnyWriter, Crcw, Lock, PinTable};
use std::sync::atomic::AtomicU64;

/// A key-value table in one memory region (MICA §4).
///
/// Its mode says what happens when the memory is full, its access mode who may read and write.
#[derive(Debug)]
#[expect(private_bounds, reason = "the modes, which are public, are all there is")]
pub struct Engine<M: Parts, A: Access = Crcw> {
    memory: Memory<A>,
    partitions: Box<[Partition<M, A>]>,
    partition_shift: u32,
    hash_seed: u64,
    hash_mask: u64,
    pub(crate) inline_class_max: SizeClass,
    pub(crate) value_bytes_max: u64,
    pub(crate) prefetch_depth: usize,
    pub(crate) common: M::Common<A>,
}

/// A table that never loses an item without being told.
pub type Store<A = Crcw> = Engine<StoreMode, A>;

/// A table that evicts what was not used for longest.
pub type Cache<A = Crcw> = Engine<CacheMode, A>;

/// What opens the partitions of a table, one after another.
pub(crate) type Tokens<A> = Vec<<A as Access>::Token>;

impl<M: Mode, A: AnyWriter> Engine<M, A> {
    /// Makes an empty table.
    ///
    /// # Errors
    /// The configuration is not possible, or the memory cannot be had.
    pub fn create(config: &StoreConfig) -> Result<Self, CreateError> {
        Self::create_with_tokens(config).map(|(engine, _)| engine)
    }

    /// The writer of the partition of `hash`, when it is the caller's turn.
    #[inline]
    pub(crate) fn writing(&self, hash: KeyHash) -> Writing<'_, M, A> {
        let partition = self.partition(hash);
        Writing { engine: self, partition, writer: A::wait(&partition.writer) }
    }

    /// The writer of a partition by its number.
    ///
    /// # Panics
    /// If there is no such partition.
    pub(crate) fn writing_at(&self, partition: usize) -> Writing<'_, M, A> {
        let partition = &self.partitions[partition];
        Writing { engine: self, partition, writer: A::wait(&partition.writer) }
    }
}

impl<M: Mode, A: Access> Engine<M, A> {
    /// An empty table, and what opens its partitions.
    pub(crate) fn create_with_tokens(config: &StoreConfig) -> Result<(Self, Tokens<A>), CreateError> {
        let partitions = config.partition_count()?;
        let bytes = config.memory_bytes;
        if bytes > MEMORY_BYTES_MAX {
            return Err(CreateError::TooLarge { bytes });
        }
        let segments = Segments::new(bytes, u64::from(partitions));
        let geometry = Geometry {
            settled_bytes: M::settled_bytes(config),
            memory_bytes: bytes,
            partitions: u64::from(partitions),
            partition_words: segments.index_words() + M::space_words(config, u64::from(partitions)),
            layout: M::LAYOUT,
            hash_seed: config.hash_seed,
        };
        let too_small = CreateError::TooSmall { bytes, partitions };
        let memory = match Memory::create(geometry, &config.backing) {
            Err(MapError::Size { .. }) => return Err(too_small),
            memory => memory?,
        };
        let parts = (0..partitions as usize).map(|number| partition(&memory, config, segments, number));
        let parts: Vec<_> = parts.collect::<Option<_>>().ok_or(too_small)?;
        let (partitions, tokens): (Vec<_>, Vec<_>) = parts.into_iter().unzip();
        let engine = Self {
            inline_class_max: M::inline_class_max(config, &memory),
            common: M::common(config),
            memory,
            partition_shift: config.shard_bits + partitions.len().ilog2(),
            partitions: partitions.into(),
            hash_seed: config.hash_seed,
            hash_mask: config.hash_mask,
            value_bytes_max: config.value_bytes_max.min(VALUE_BYTES_MAX),
            prefetch_depth: config.prefetch_depth.clamp(1, BURST_MAX),
        };
        Ok((engine, tokens))
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

    /// The number of the partition of a key.
    #[inline]
    pub fn partition_of(&self, hash: KeyHash) -> usize {
        hash.partition(self.partition_shift) & (self.partitions.len() - 1)
    }

    /// Largest value that may be stored, in bytes.
    pub fn value_bytes_max(&self) -> u64 {
        self.value_bytes_max
    }

    /// Sets how much of its memory the table may use, in bytes, and says whether it has that much.
    ///
    /// What is stored beyond a lower limit stays; what would need more is refused as if the memory were full.
    pub fn set_memory_limit(&self, limit_bytes: u64) -> bool {
        self.memory().set_limit_bytes(limit_bytes)
    }

    /// How much of its memory the table may use, in bytes.
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

    /// Whether values of `value_bytes` lie beside their key, and are read without a lock.
    #[inline]
    pub(crate) fn is_inline(&self, value_bytes: u64) -> bool {
        SizeClass::of(value_bytes) <= self.inline_class_max
    }

    #[inline]
    pub(crate) fn memory(&self) -> &Memory<A> {
        &self.memory
    }

    #[inline]
    pub(crate) fn partition(&self, hash: KeyHash) -> &Partition<M, A> {
        &self.partitions[self.partition_of(hash)]
    }

    /// Walks the whole memory and says what is wrong with it. For tests: it stops all writers.
    ///
    /// # Errors
    /// What is wrong.
    #[doc(hidden)]
    pub fn check(&self) -> Result<(), String>
    where
        A: AnyWriter,
    {
        let mut writings: Vec<_> = (0..self.partitions()).map(|number| self.writing_at(number)).collect();
        crate::check::check(self, &mut writings)
    }

    pub(crate) fn partition_list(&self) -> &[Partition<M, A>] {
        &self.partitions
    }
}

fn partition<M: Mode, A: Access>(
    memory: &Memory<A>,
    config: &StoreConfig,
    segments: Segments,
    number: usize,
) -> Option<(Partition<M, A>, A::Token)> {
    let start = memory.partition_start(number);
    let index = Index::create(memory, start, segments)?;
    let space_start = start.plus(segments.index_words());
    let (space, room) = M::create_space(memory, config, space_start, number)?;
    let (writer, token) = A::cell(Writer::new(room, number, memory.geometry().partitions as usize));
    let partition = Partition {
        number,
        index,
        space,
        retries: AtomicU64::new(0),
        fallbacks: AtomicU64::new(0),
        refused: AtomicU64::new(0),
        pins: A::Lock::new(PinTable::default()),
        counts: Counts::default(),
        writer,
    };
    Some((partition, token))
}
