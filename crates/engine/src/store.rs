//! The table: partitions over one memory.

use crate::{
    cache_mode::CacheMode,
    config::{CreateError, StoreConfig},
    mode::{Mode, Parts},
    partition::{Partition, Writer, Writing},
    plan::{Part, Plan},
    reservation::Buffers,
    restart::saved::Saved,
    stats::Counts,
    store_mode::StoreMode,
};
use minos_base::{KeyHash, SizeClass, VALUE_BYTES_MAX, hash_key, limits::BURST_MAX};
use minos_region::Memory;
use minos_sync::{Access, AnyWriter, Crcw, Lock, PinTable};
use std::sync::{Arc, atomic::AtomicU64};

/// A key-value table in one memory region (MICA §4).
///
/// Its mode decides how it handles full memory, its access mode which threads may read and write.
///
/// A table that any thread may use can be shared; one in EREW, where nothing is synchronised, can only be
/// moved to another thread:
///
/// ```
/// fn shared_with_threads<T: Send + Sync>() {}
/// shared_with_threads::<minos_engine::Cache<minos_engine::Crcw>>();
/// shared_with_threads::<minos_engine::Cache<minos_engine::Crew>>();
/// fn moved_to_a_thread<T: Send>() {}
/// moved_to_a_thread::<minos_engine::Cache<minos_engine::Erew>>();
/// ```
///
/// ```compile_fail,E0277
/// fn shared_with_threads<T: Sync>() {}
/// shared_with_threads::<minos_engine::Cache<minos_engine::Erew>>();
/// ```
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
    pub(crate) chain_buckets_max: usize,
    pub(crate) buffers: Arc<Buffers>,
    pub(crate) prefetch_depth: usize,
    pub(crate) common: M::Common<A>,
}

/// A table that refuses new items when its memory is full, and never evicts.
pub type Store<A = Crcw> = Engine<StoreMode, A>;

/// A table that evicts items when its memory is full, as [`crate::Eviction`] selects.
pub type Cache<A = Crcw> = Engine<CacheMode, A>;

/// The tokens of a table's partitions, in order.
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
    /// An empty table, and the tokens of its partitions.
    pub(crate) fn create_with_tokens(config: &StoreConfig) -> Result<(Self, Tokens<A>), CreateError> {
        let plan = Plan::new::<M>(config)?;
        let memory = plan.map(config)?;
        Self::found(config, &plan, memory)
    }

    /// An empty table in new memory.
    pub(crate) fn found(
        config: &StoreConfig,
        plan: &Plan,
        memory: Memory<A>,
    ) -> Result<(Self, Tokens<A>), CreateError> {
        let parts = plan.found(config, &memory)?;
        let (mut engine, tokens) = Self::assemble(config, memory, parts);
        engine.saved().put_shape(&engine, config);
        engine.memory_mut().publish()?;
        Ok((engine, tokens))
    }

    /// A table of these partitions.
    pub(crate) fn assemble(
        config: &StoreConfig,
        memory: Memory<A>,
        parts: Vec<Part<M>>,
    ) -> (Self, Tokens<A>) {
        let count = parts.len();
        let parts = parts.into_iter().enumerate().map(|(number, part)| partition(part, number, count));
        let (partitions, tokens): (Vec<_>, Vec<_>) = parts.unzip();
        let engine = Self {
            inline_class_max: M::inline_class_max(config, &memory),
            common: M::common(config),
            partition_shift: config.shard_bits + partitions.len().ilog2(),
            partitions: partitions.into(),
            // A table that was there already has its own.
            hash_seed: memory.geometry().hash_seed,
            memory,
            hash_mask: config.hash_mask,
            value_bytes_max: config.value_bytes_max.min(VALUE_BYTES_MAX),
            chain_buckets_max: config.chain_buckets_max.max(1),
            buffers: Arc::new(Buffers::new(config.buffer_bytes())),
            prefetch_depth: config.prefetch_depth.clamp(1, BURST_MAX),
        };
        (engine, tokens)
    }

    /// The hash of a key, which every other call takes. Keep it and its seed from clients: a client that
    /// knows them can choose keys of one chain.
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

    /// Sets how much of its memory the table may use, in bytes; returns false if it has less.
    ///
    /// Items already stored beyond a lower limit stay; requests for more
    /// memory fail as if the memory were full.
    pub fn set_memory_limit(&self, limit_bytes: u64) -> bool {
        self.memory().set_limit_bytes(limit_bytes)
    }

    /// How much of its memory the table may use, in bytes.
    pub fn memory_limit(&self) -> u64 {
        self.memory().limit_bytes()
    }

    /// A readable description of the memory and its page size.
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

    /// True if values of `value_bytes` lie beside their key and are read without a lock.
    #[inline]
    pub(crate) fn is_inline(&self, value_bytes: u64) -> bool {
        SizeClass::of(value_bytes) <= self.inline_class_max
    }

    #[inline]
    pub(crate) fn memory(&self) -> &Memory<A> {
        &self.memory
    }

    pub(crate) fn memory_mut(&mut self) -> &mut Memory<A> {
        &mut self.memory
    }

    /// The saved words of the whole table.
    pub(crate) fn saved(&self) -> Saved {
        self.partitions[0].saved
    }

    #[inline]
    pub(crate) fn partition(&self, hash: KeyHash) -> &Partition<M, A> {
        &self.partitions[self.partition_of(hash)]
    }

    /// Walks the whole memory and checks its consistency. For tests: it stops all writers.
    ///
    /// # Errors
    /// The inconsistency found.
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
    part: Part<M>,
    number: usize,
    partitions: usize,
) -> (Partition<M, A>, A::Token) {
    let Part { index, space, room, saved } = part;
    let (writer, token) = A::cell(Writer::new(room, number, partitions));
    let partition = Partition {
        number,
        index,
        space,
        saved,
        retries: AtomicU64::new(0),
        fallbacks: AtomicU64::new(0),
        abandoned: AtomicU64::new(0),
        pins: A::Lock::new(PinTable::default()),
        counts: Counts::default(),
        writer,
    };
    (partition, token)
}
