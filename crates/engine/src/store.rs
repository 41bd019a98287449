//! The table: partitions over one memory, each with one writer at a time.

use crate::{
    buffers::Buffers,
    partition::{Partition, Writer},
    places::{HasAccess, State},
    reader::Reader,
    saved::Saved,
};
use minos_base::{KeyHash, Seconds, SizeClass, hash_key};
use minos_region::{Memory, Region};
use minos_sync::Access;
use std::{
    marker::PhantomData,
    sync::{
        Arc,
        atomic::{AtomicU32, AtomicU64, Ordering::Relaxed},
    },
};

/// A key-value table in one memory region (MICA §4).
///
/// Its mode decides how it handles full memory, its access mode which threads may read and write.
///
/// In each, all threads share one reference.
#[derive(Debug)]
#[expect(private_bounds, reason = "the modes, which are public, are all there is")]
pub struct Engine<M: State, A: Access = <M as HasAccess>::Access> {
    pub(crate) memory: Memory,
    pub(crate) partitions: Box<[Partition<M, A>]>,
    pub(crate) hashing: Hashing,
    pub(crate) inline_class_max: SizeClass,
    /// Threads that own partitions, where these belong to threads.
    pub(crate) owners: u32,
    /// Seed of the hash that chooses the partition then.
    pub(crate) direction_seed: u64,
    /// Changed only by [`set_value_bytes_max`](Self::set_value_bytes_max), up to the room.
    pub(crate) value_bytes_max: AtomicU64,
    pub(crate) value_bytes_room: u64,
    /// Flushes of partitions so far.
    pub(crate) flushes: AtomicU64,
    /// The first expiry of an item stored since [`sweep_orders`](Self::sweep_orders) last told of one, and how often it has.
    pub(crate) soonest: AtomicU32,
    pub(crate) expiries: AtomicU64,
    pub(crate) chain_buckets_max: usize,
    pub(crate) buffers: Arc<Buffers>,
    pub(crate) prefetch_depth: usize,
    pub(crate) common: M::Common,
}

#[expect(private_bounds, reason = "the modes, which are public, are all there is")]
impl<M: State, A: Access> Engine<M, A> {
    /// The hash of a key, which every other call takes. Keep it and its seed from clients: a client that
    /// knows them can choose keys of one chain.
    #[inline]
    pub fn hash(&self, key: &[u8]) -> KeyHash {
        let hash = self.hashing.hash(key);
        if A::IS_BY_THREAD { self.directed(key, hash) } else { hash }
    }

    /// Number of partitions.
    pub fn partitions(&self) -> usize {
        self.partitions.len()
    }

    /// The number of the partition of a key.
    #[inline]
    pub fn partition_of(&self, hash: KeyHash) -> usize {
        self.hashing.partition_of(hash, self.partitions.len())
    }

    /// Largest value that may be stored, in bytes.
    #[inline]
    pub fn value_bytes_max(&self) -> u64 {
        // Relaxed: a store under way may still be judged by the limit before.
        self.value_bytes_max.load(Relaxed)
    }

    /// Sets the largest value that may be stored, in bytes; returns false if there is no room for one so large. Items
    /// already stored stay.
    pub fn set_value_bytes_max(&self, bytes: u64) -> bool {
        let has_room = bytes <= self.value_bytes_room;
        if has_room {
            self.value_bytes_max.store(bytes, Relaxed);
        }
        has_room
    }

    /// The largest value for which there is room, in bytes: in a buffer, or above flash the largest at the start.
    pub fn value_bytes_room(&self) -> u64 {
        self.value_bytes_room
    }

    /// All memory that the table has, in bytes.
    pub fn memory_bytes(&self) -> u64 {
        self.memory().geometry().memory_bytes
    }

    /// Sets how much of its memory the table may use, in bytes; returns false if it has less.
    ///
    /// Items already stored beyond a lower limit stay, in a cache until [`Engine::sweep`]; requests for more
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

    /// True if values of `value_bytes` lie beside their key and are read without a lock.
    #[inline]
    pub(crate) fn is_inline(&self, value_bytes: u64) -> bool {
        SizeClass::of(value_bytes) <= self.inline_class_max
    }

    /// A partition from which this thread is about to tell something.
    ///
    /// # Panics
    /// If this thread may not read it.
    #[inline(always)]
    pub(crate) fn readable<'a>(&self, partition: &'a Partition<M, A>) -> &'a Partition<M, A> {
        assert!(A::may_read(&partition.writer), "the partition is another thread's");
        partition
    }

    /// A partition as its readers see it. Who tells what it finds looks before whether it is
    /// [readable](Self::readable); to prefetch is harmless.
    #[inline(always)]
    pub(crate) fn reader<'a>(&'a self, partition: &'a Partition<M, A>) -> Reader<'a, M, A> {
        Reader {
            region: self.memory.region(),
            index: &partition.index,
            space: &partition.space,
            inline_class_max: self.inline_class_max,
            access: PhantomData,
        }
    }

    #[inline]
    pub(crate) fn memory(&self) -> &Memory {
        &self.memory
    }

    pub(crate) fn saved(&self) -> Saved {
        self.partitions[0].saved
    }

    #[inline]
    pub(crate) fn partition(&self, hash: KeyHash) -> &Partition<M, A> {
        &self.partitions[self.partition_of(hash)]
    }
}

/// A partition while its writer is at work.
#[derive(Debug)]
pub(crate) struct Writing<'a, M: State, A: Access> {
    pub(crate) engine: &'a Engine<M, A>,
    pub(crate) partition: &'a Partition<M, A>,
    pub(crate) writer: A::Guard<'a, Writer<M>>,
}

impl<'a, M: State, A: Access> Writing<'a, M, A> {
    #[inline]
    pub(crate) fn region(&self) -> &'a Region {
        self.engine.memory().region()
    }
}

#[expect(private_bounds, reason = "the modes, which are public, are all there is")]
impl<M: State, A: Access> Engine<M, A> {
    /// The writer of the partition of `hash`, when it is the caller's turn.
    #[inline]
    pub(crate) fn writing(&self, hash: KeyHash) -> Writing<'_, M, A> {
        let partition = self.partition(hash);
        Writing { engine: self, partition, writer: A::enter(&partition.writer) }
    }

    /// Notes the expiry of an item, which is linked.
    #[inline]
    pub(crate) fn note_expiry(&self, expiry: Seconds) {
        if expiry != 0 && expiry < self.soonest.load(Relaxed) {
            self.soonest.fetch_min(expiry, Relaxed);
        }
    }

    /// The writer of a partition by its number.
    ///
    /// # Panics
    /// If there is no such partition.
    pub(crate) fn writing_at(&self, partition: usize) -> Writing<'_, M, A> {
        let partition = &self.partitions[partition];
        Writing { engine: self, partition, writer: A::enter(&partition.writer) }
    }
}

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
