//! The memory of a store: one region with its header, its heaps and the heaps of its partitions.

use crate::{
    backing::{Backing, MapError},
    exclusive::Exclusive,
    file::failed,
    header::{Header, IN_USE},
    heap::{ARENA, Heap, HeapStats, LOG, NESTED, USED, mark, tag_of},
    layout::{Geometry, LINE_SLACK_WORDS, Layout, align_to_line, reserve_state, root_state},
    offset::Offset,
    owners::Ownership,
    region::Region,
};
use minos_sync::{SpinLock, words::WORD_BYTES};
use std::sync::atomic::{
    AtomicU64,
    Ordering::{Relaxed, Release},
    compiler_fence,
};

/// An arena serves chunks of at most this part of itself, so that its end is not wasted.
const CHUNKS_PER_ARENA_MIN: u64 = 8;

/// A region with a heap in it, and a heap for each partition that takes arenas from it.
///
/// ```text
/// header | heap | reserve's heap | shared map | sums | owners | partition 0: engine's words, heap | ...
///     | chunks | reserve
/// ```
#[derive(Debug)]
pub struct Memory {
    region: Region,
    geometry: Geometry,
    pub(crate) layout: Layout,
    /// The region's heap. Taken after a partition's lock, never before.
    pub(crate) heap: SpinLock<Heap>,
    /// The heap of the reserve; empty if there is none. Never locked together with the other.
    pub(crate) reserve: SpinLock<Heap>,
    /// Bytes of the region that may be used.
    limit_bytes: AtomicU64,
}

impl Memory {
    /// Maps a region and lays it out.
    ///
    /// A file, which must not exist yet, has another name until [`Memory::publish`], so that no process
    /// mistakes it for complete; it is removed if that is never called.
    pub fn create(geometry: Geometry, backing: &Backing) -> Result<Self, MapError> {
        let layout = Layout::for_map(&geometry)?;
        let region = Region::map(geometry.memory_bytes, backing)?;
        Self::lay_out(region, geometry, layout)
    }

    /// Lays out a region of zeros.
    pub(crate) fn lay_out(region: Region, geometry: Geometry, layout: Layout) -> Result<Self, MapError> {
        let header = Header::of(&region);
        header.set_state(IN_USE);
        region.sync_header().map_err(failed("write to")).map_err(MapError::file(region.name()))?;
        let (chunks, middle) = (layout.chunks_start, layout.reserve_start);
        let (mut heap, mut reserve) = (Heap::new(root_state(), false), Heap::new(reserve_state(), false));
        heap.add_span(&region, chunks, middle.words() - chunks.words());
        if layout.has_reserve() {
            reserve.add_span(&region, middle, layout.end.words() - middle.words());
        }
        header.write(&geometry);
        Ok(Self::on(region, geometry, layout))
    }

    /// A region that is laid out already.
    pub(crate) fn on(region: Region, geometry: Geometry, layout: Layout) -> Self {
        Self {
            region,
            geometry,
            layout,
            heap: SpinLock::new(Heap::new(root_state(), false)),
            reserve: SpinLock::new(Heap::new(reserve_state(), false)),
            limit_bytes: AtomicU64::new(geometry.memory_bytes),
        }
    }

    /// Gives the file of a new region its name, or lets the keeper keep it. Without either there is nothing to do.
    ///
    /// # Errors
    /// If there is a file of that name by now, or the operating system refuses.
    pub fn publish(&mut self) -> Result<(), MapError> {
        Header::of(&self.region).set_kept(self.region.is_kept());
        self.region.publish()
    }

    /// True if the next process can [`Memory::open`] it.
    pub fn is_lasting(&self) -> bool {
        self.region.path().is_some() || Header::of(&self.region).is_kept()
    }

    /// Notes, also for readers in other processes, that the keeper of this memory has ended: it goes with this process.
    pub fn forsake(&self) {
        Header::of(&self.region).set_kept(false);
    }

    /// The region itself.
    #[inline]
    pub fn region(&self) -> &Region {
        &self.region
    }

    /// The division of the region.
    pub fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    /// Bytes of the region that may be used.
    pub fn limit_bytes(&self) -> u64 {
        self.limit_bytes.load(Relaxed)
    }

    /// Sets how many bytes of the region may be used; false, without effect, if it is smaller. Chunks in use
    /// beyond a lower limit stay; until enough are freed, nothing more is allocated from the region's heap.
    /// Logs and index leave as much of it to large values as the reserve has, up to half.
    pub fn set_limit_bytes(&self, limit_bytes: u64) -> bool {
        let is_there = limit_bytes <= self.geometry.memory_bytes;
        if is_there {
            // Relaxed: a thread that sees it late allocates one chunk more.
            self.limit_bytes.store(limit_bytes, Relaxed);
        }
        is_there
    }

    /// Bytes of the region that logs and index may use, among others.
    pub fn rest_limit_bytes(&self) -> u64 {
        let (limit, reserve) =
            (self.limit_bytes(), self.layout.end.words() - self.layout.reserve_start.words());
        limit - (reserve * WORD_BYTES as u64).min(limit / 2)
    }

    /// True if more is in use outside the reserve than a lower limit leaves for that.
    pub fn is_rest_over_limit(&self) -> bool {
        !self.is_rest_within_limit(0)
    }

    /// True if the limit allows `words` more once so many words in use are freed; a moment ago.
    pub fn may_use(&self, words: u64, freed_words: u64) -> bool {
        self.bytes_with(words).saturating_sub(freed_words * WORD_BYTES as u64) <= self.limit_bytes()
    }

    /// As [`Memory::reserve_stats`] and [`Memory::heap_stats`], a moment ago and without the largest free chunk: for
    /// callers that hold another lock.
    pub fn zone_counts(&self, is_reserve: bool) -> HeapStats {
        let state = if is_reserve { reserve_state() } else { root_state() };
        Heap::new(state, false).counts(&self.region)
    }

    /// Who owns a micro-shard.
    ///
    /// # Panics
    /// If there is no such micro-shard.
    pub fn ownership(&self, micro_shard: u32) -> Ownership {
        self.layout.owners.ownership(&self.region, micro_shard)
    }

    /// Sets who owns a micro-shard. Readers that see it also see everything stored before.
    ///
    /// # Panics
    /// If there is no such micro-shard.
    pub fn set_ownership(&self, micro_shard: u32, ownership: Ownership) {
        self.layout.owners.set(&self.region, micro_shard, ownership);
    }

    /// Writes no more to what is owned. Readers read on, until the next process that opens the region ends their
    /// tenure.
    pub fn freeze_ownership(&self) {
        self.layout.owners.freeze_all(&self.region);
    }

    /// Gives all micro-shards up and keeps their epochs. Readers notice that before they notice any later store.
    pub fn end_ownership(&self) {
        self.layout.owners.end_all(&self.region);
    }

    /// Where the engine's words of a partition begin, on a cache line.
    pub fn partition_start(&self, partition: usize) -> Offset {
        self.layout.partition_start(partition)
    }

    /// The heap of a partition. To be made once for each and kept under the partition's lock.
    pub fn partition_heap(&self, partition: usize) -> Heap {
        Heap::new(self.layout.partition_state(partition), true)
    }

    /// A chunk that readers may read without a lock, with room for `words`.
    ///
    /// Small ones come from the partition's arenas and cost no other lock than the partition's.
    pub fn allocate_shared(&self, partition: &mut Heap, words: u64) -> Option<Offset> {
        if words < self.arena_words() / CHUNKS_PER_ARENA_MIN {
            if let Some(chunk) = partition.allocate(&self.region, words) {
                return Some(chunk);
            }
            if let Some(arena) = self.allocate_words(self.layout.arena_payload_words()) {
                self.add_arena(partition, arena);
                return partition.allocate(&self.region, words);
            }
        }
        let chunk = self.allocate_words(words)?;
        self.layout.shared.mark(&self.region, chunk, words);
        Some(chunk)
    }

    /// A chunk that is only read under a lock or a pin, with room for `words`: from the reserve
    /// if it has room, else from the rest.
    ///
    /// It is exclusive unless its memory was shared before: then a late reader may still read it, and it must
    /// be written with word copies (MICA §4.3.2; `words::copy_in`).
    pub fn allocate_settled(&self, words: u64) -> Option<Settled> {
        let chunk = self.allocate_reserved(words).or_else(|| self.allocate_words(words))?;
        if self.layout.shared.is_marked(&self.region, chunk, words) {
            Some(Settled::Shared(chunk))
        } else {
            Some(Settled::Exclusive(Exclusive::new(&self.region, chunk, words)))
        }
    }

    /// Memory for the index, on a cache line, with room for `words`. It is never freed, and so comes from the
    /// end, where it does not fragment the rest.
    pub fn allocate_forever(&self, words: u64) -> Option<Offset> {
        let mut heap = self.heap.lock();
        if !self.is_within_limit(words) || !self.is_rest_within_limit(words) {
            return None;
        }
        heap.allocate_last(&self.region, words + LINE_SLACK_WORDS).map(align_to_line)
    }

    /// Words that the chunk with this payload has room for.
    #[inline]
    pub fn chunk_words(region: &Region, chunk: Offset) -> u64 {
        // Opening a region may ask for an offset that is no chunk; any number will do then.
        crate::heap::size_at(region, chunk.minus(1)).saturating_sub(1)
    }

    /// Frees a chunk. `partition` is the heap of the partition whose item it held.
    pub fn free(&self, partition: &mut Heap, chunk: Offset) {
        if tag_of(&self.region, chunk) & NESTED == 0 {
            return self.free_settled(chunk);
        }
        if let Some(span) = partition.free(&self.region, chunk)
            && partition.words(&self.region) > self.arena_words()
        {
            // The last one is kept, so that an item that comes and goes does not take it along.
            partition.remove_span(&self.region, span);
            self.free_settled(self.arena_payload(span));
        }
    }

    /// Frees a chunk that belongs to no partition's heap.
    pub fn free_settled(&self, chunk: Offset) {
        let zone = if self.is_in_reserve(chunk) { &self.reserve } else { &self.heap };
        zone.lock().free(&self.region, chunk);
    }

    /// True if a chunk lies in the reserve for large values.
    #[inline]
    pub fn is_in_reserve(&self, chunk: Offset) -> bool {
        chunk >= self.layout.reserve_start
    }

    /// Of the region's heap and the reserve's, in which the arenas of the partitions count as used.
    pub fn stats(&self) -> HeapStats {
        let mut stats = self.heap_stats();
        stats.add(&self.reserve_stats());
        stats
    }

    /// Of the region's heap alone, from which logs take their arenas.
    pub fn heap_stats(&self) -> HeapStats {
        self.heap.lock().stats(&self.region)
    }

    /// Of the reserve's heap alone; all zero without a reserve.
    pub fn reserve_stats(&self) -> HeapStats {
        self.reserve.lock().stats(&self.region)
    }

    /// As [`Memory::partition_stats`], a moment ago and without the largest free chunk: for callers without access to the
    /// heap itself.
    pub fn partition_counts(&self, partition: usize) -> HeapStats {
        self.partition_heap(partition).counts(&self.region)
    }

    /// Of a partition's heap.
    pub fn partition_stats(&self, partition: &Heap) -> HeapStats {
        partition.stats(&self.region)
    }

    pub(crate) fn allocate_words(&self, words: u64) -> Option<Offset> {
        let mut heap = self.heap.lock();
        if !self.is_within_limit(words) {
            return None;
        }
        heap.allocate(&self.region, words)
    }

    fn allocate_reserved(&self, words: u64) -> Option<Offset> {
        if !self.layout.has_reserve() {
            return None;
        }
        let mut reserve = self.reserve.lock();
        if !self.is_within_limit(words) {
            return None;
        }
        reserve.allocate(&self.region, words)
    }

    /// True if the limit allows `words` more; one of the two heaps may change meanwhile.
    fn is_within_limit(&self, words: u64) -> bool {
        self.bytes_with(words) <= self.limit_bytes()
    }

    /// Bytes in use with `words` more.
    fn bytes_with(&self, words: u64) -> u64 {
        let heaps = [root_state(), reserve_state()].map(|state| Heap::new(state, false));
        let used_words: u64 = heaps.iter().map(|heap| heap.used_words(&self.region)).sum();
        (self.layout.chunks_start.words() + used_words + words) * WORD_BYTES as u64
    }

    /// True if `words` more outside the reserve leave to large values what is theirs.
    fn is_rest_within_limit(&self, words: u64) -> bool {
        let used_words = Heap::new(root_state(), false).used_words(&self.region);
        let bytes = (self.layout.chunks_start.words() + used_words + words) * WORD_BYTES as u64;
        bytes <= self.rest_limit_bytes()
    }
}

/// A chunk from [`Memory::allocate_settled`].
#[derive(Debug)]
pub enum Settled {
    /// No other thread can reach it.
    Exclusive(Exclusive),
    /// A reader that has slept long may reach it: to be written with word copies.
    Shared(Offset),
}

impl Settled {
    /// The start of the chunk's payload, for an owner that writes it with word copies.
    pub fn into_chunk(self) -> Offset {
        match self {
            Self::Exclusive(exclusive) => exclusive.share(),
            Self::Shared(chunk) => chunk,
        }
    }
}

/// A span of [`Memory::arena_words`] words, on a cache line, which lock-free readers may read.
///
/// Identified by its start, so that the region can hold it as one word. Only [`Memory::free_arena`] frees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Arena(Offset);

impl Arena {
    /// The arena that begins here; `start` must come from [`Arena::start`].
    pub fn from_start(start: Offset) -> Self {
        Self(start)
    }

    /// Where its words begin.
    #[inline]
    pub fn start(self) -> Offset {
        self.0
    }
}

impl Memory {
    /// Words of every arena: a power of two, 64 KiB to 1 MiB by the size of the store, such that about 64
    /// of them fit into the even share of one partition.
    #[inline]
    pub fn arena_words(&self) -> u64 {
        self.layout.arena_words
    }

    /// An arena for a partition's log, from the region's heap, so that logs, index and large values share
    /// one memory. Its initial contents are unspecified.
    pub fn allocate_arena(&self) -> Option<Arena> {
        let words = self.layout.arena_payload_words();
        if !self.is_rest_within_limit(words) {
            return None;
        }
        let payload = self.allocate_words(words)?;
        Some(Arena(self.open_arena(payload, LOG)))
    }

    /// Frees a log's arena.
    ///
    /// # Panics
    /// If it is no arena of a log.
    pub fn free_arena(&self, arena: Arena) {
        let payload = self.arena_payload(arena.0);
        let tag = tag_of(self.region(), payload);
        // Not only in debug builds: memory freed twice would be allocated twice.
        assert!(tag & (LOG | USED) == LOG | USED, "not an arena of a log");
        self.free_settled(payload);
    }

    /// The arenas of logs, in the order in which they lie in the region.
    ///
    /// # Errors
    /// If the region's heap is broken.
    #[cfg(test)]
    pub(crate) fn log_arenas(&self) -> Result<Vec<Arena>, String> {
        let walk = self.walk_root()?;
        Ok(walk.logs.iter().map(|&(payload, _)| Arena(self.layout.arena_span(payload))).collect())
    }

    pub(crate) fn add_arena(&self, partition: &mut Heap, payload: Offset) {
        let span = self.open_arena(payload, ARENA);
        partition.add_span(self.region(), span, self.layout.arena_words);
    }

    /// Where the payload begins whose arena begins at `span`.
    pub(crate) fn arena_payload(&self, span: Offset) -> Offset {
        Offset::from_words(self.region().word(span.minus(1)).load(Relaxed))
    }

    /// Makes a chunk an arena of this kind, and returns the start of its span.
    pub(crate) fn open_arena(&self, payload: Offset, kind: u64) -> Offset {
        let span = self.layout.arena_span(payload);
        self.layout.shared.mark(self.region(), span, self.layout.arena_words);
        {
            // Whoever frees or takes the chunk before it writes to the same tag.
            let _heap = self.heap.lock();
            mark(self.region(), payload, kind);
        }
        // Relaxed: the thread that frees the arena got it through a lock.
        self.region().word(span.minus(1)).store(payload.words(), Relaxed);
        // A process that finds data in the arena after a crash also finds its mark.
        compiler_fence(Release);
        span
    }
}
