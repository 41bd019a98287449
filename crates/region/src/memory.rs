//! The memory of a store: one region with its header, its heaps and the heaps of its partitions.

use crate::{
    backing::{Backing, MapError},
    check::Walk,
    exclusive::Exclusive,
    heap::{Freed, Heap, HeapStats, NESTED, tag_of},
    layout::{Geometry, LINE_SLACK_WORDS, Layout, align_to_line, reserve_state, root_state},
    region::{Offset, Region},
};
use minos_sync::{Access, Crcw, Lock, words::WORD_BYTES};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// What the first word of a region says: "minos", and the byte order.
const MAGIC: u64 = 0x0001_0073_6f6e_696d;

/// Version of everything that lies in a region. Raised when any layout changes.
const LAYOUT_VERSION: u64 = 2;

/// An arena serves chunks of at most this part of itself, so that its end is not wasted.
const CHUNKS_PER_ARENA_MIN: u64 = 8;

/// A region with a heap in it, and a heap for each partition that takes arenas from it.
///
/// ```text
/// header | heap | reserve's heap | shared map | partition 0: engine's words, heap | ... | chunks | reserve
/// ```
#[derive(Debug)]
pub struct Memory<A: Access = Crcw> {
    region: Region,
    geometry: Geometry,
    pub(crate) layout: Layout,
    /// The region's heap. Taken after a partition's lock, never before.
    heap: A::Lock<Heap>,
    /// The heap of the reserve, which is empty if there is none. Never taken together with the other.
    reserve: A::Lock<Heap>,
    /// What may be used of the region, in bytes.
    limit_bytes: AtomicU64,
}

impl<A: Access> Memory<A> {
    /// Maps a region and lays it out.
    pub fn create(geometry: Geometry, backing: &Backing) -> Result<Self, MapError> {
        let layout = Layout::new(&geometry).map_err(|bytes_min| MapError::Size {
            bytes: geometry.memory_bytes,
            min: bytes_min,
            max: Region::BYTES_MAX,
        })?;
        let region = Region::map(geometry.memory_bytes, backing)?;
        write_header(&region, &geometry);
        let (mut heap, mut reserve) = (Heap::new(root_state(), false), Heap::new(reserve_state(), false));
        let (chunks, middle) = (layout.chunks_start, layout.reserve_start);
        heap.add_span(&region, chunks, middle.words() - chunks.words());
        if layout.has_reserve() {
            reserve.add_span(&region, middle, layout.end.words() - middle.words());
        }
        Ok(Self {
            region,
            geometry,
            layout,
            heap: A::Lock::new(heap),
            reserve: A::Lock::new(reserve),
            limit_bytes: AtomicU64::new(geometry.memory_bytes),
        })
    }

    /// The region itself.
    #[inline]
    pub fn region(&self) -> &Region {
        &self.region
    }

    /// What the region is cut into.
    pub fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    /// What may be used of the region, in bytes.
    pub fn limit_bytes(&self) -> u64 {
        self.limit_bytes.load(Relaxed)
    }

    /// Sets what may be used of the region, and says whether it has that much. What is in use beyond a
    /// lower limit stays; until it has been given back, nothing more is taken from the region's heap.
    pub fn set_limit_bytes(&self, limit_bytes: u64) -> bool {
        let is_there = limit_bytes <= self.geometry.memory_bytes;
        if is_there {
            // Relaxed: whoever sees it late takes a chunk more.
            self.limit_bytes.store(limit_bytes, Relaxed);
        }
        is_there
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

    /// A chunk that nobody reads but under a lock or a pin, with room for `words`: from the reserve if there
    /// is one with room, else from the rest.
    ///
    /// It is exclusive unless its memory once was shared: then a reader which has slept since may
    /// still look at it, and it must be written with word copies (MICA §4.3.2; `words::copy_in`).
    pub fn allocate_settled(&self, words: u64) -> Option<Settled> {
        let chunk = self.allocate_reserved(words).or_else(|| self.allocate_words(words))?;
        if self.layout.shared.is_marked(&self.region, chunk, words) {
            Some(Settled::Shared(chunk))
        } else {
            Some(Settled::Exclusive(Exclusive::new(chunk, words)))
        }
    }

    /// Memory for the index, on a cache line, with room for `words`. It is never given back, and
    /// therefore taken from the end, where it does not cut the rest in pieces.
    pub fn allocate_forever(&self, words: u64) -> Option<Offset> {
        let mut heap = self.heap.lock();
        if !self.is_within_limit(words) {
            return None;
        }
        heap.allocate_last(&self.region, words + LINE_SLACK_WORDS).map(align_to_line)
    }

    /// Gives a chunk back. `partition` is the heap of the partition whose item it held.
    pub fn free(&self, partition: &mut Heap, chunk: Offset) {
        if tag_of(&self.region, chunk) & NESTED == 0 {
            return self.free_settled(chunk);
        }
        if let Freed::SpanEmpty(span) = partition.free(&self.region, chunk)
            && partition.words(&self.region) > self.arena_words()
        {
            // The last one is kept, so that an item that comes and goes does not take it along.
            partition.remove_span(&self.region, span);
            self.free_settled(self.arena_payload(span));
        }
    }

    /// Gives a chunk back that belongs to no partition's heap.
    pub fn free_settled(&self, chunk: Offset) {
        self.zone_of(chunk).lock().free(&self.region, chunk);
    }

    /// Whether a chunk lies in the reserve for large values.
    #[inline]
    pub fn is_in_reserve(&self, chunk: Offset) -> bool {
        chunk >= self.layout.reserve_start
    }

    /// Of the region's heap and the reserve's, in which the arenas of the partitions count as used.
    pub fn stats(&self) -> HeapStats {
        let mut stats = self.heap.lock().stats(&self.region);
        stats.add(&self.reserve_stats());
        stats
    }

    /// Of the reserve's heap alone; all zero without a reserve.
    pub fn reserve_stats(&self) -> HeapStats {
        self.reserve.lock().stats(&self.region)
    }

    /// Of a partition's heap.
    pub fn partition_stats(&self, partition: &Heap) -> HeapStats {
        partition.stats(&self.region)
    }

    /// Walks everything. The locks of all partitions are held by the caller, who hands over their
    /// heaps. Returns the chunks in use that are no arenas: their payloads, and words each.
    pub fn check(&self, partitions: &[&Heap]) -> Result<Vec<(Offset, u64)>, String> {
        let mut root = self.walk_root()?;
        let mut used = std::mem::take(&mut root.used);
        let mut spans = Walk::default();
        for &(payload, _) in &root.arenas {
            let span = self.layout.arena_span(payload);
            spans.span(&self.region, span, span.plus(self.arena_words()))?;
        }
        used.append(&mut spans.used);
        let mut counted = HeapStats::default();
        for partition in partitions {
            counted.add(&partition.stats(&self.region));
        }
        if (counted.free_words, counted.used_words) != (spans.stats.free_words, spans.stats.used_words) {
            return Err(format!("arenas hold {:?}, partitions count {counted:?}", spans.stats));
        }
        if let [partition] = partitions {
            spans.agrees_with(&self.region, partition)?;
        }
        Ok(used)
    }

    /// Walks the heaps of the region and of the reserve, and compares them with what they count.
    pub(crate) fn walk_root(&self) -> Result<Walk, String> {
        let Layout { chunks_start, reserve_start, end, .. } = self.layout;
        let mut root = self.walk_zone(&self.heap, chunks_start, reserve_start)?;
        if self.layout.has_reserve() {
            root.used.append(&mut self.walk_zone(&self.reserve, reserve_start, end)?.used);
        }
        for &(payload, words) in root.arenas.iter().chain(&root.logs) {
            let span = self.layout.arena_span(payload);
            if words < self.layout.arena_payload_words() || self.arena_payload(span) != payload {
                return Err(format!("arena at {} is not one", payload.words()));
            }
        }
        Ok(root)
    }

    fn walk_zone(&self, heap: &A::Lock<Heap>, start: Offset, end: Offset) -> Result<Walk, String> {
        let heap = heap.lock();
        let mut walk = Walk::default();
        walk.span(&self.region, start, end)?;
        walk.agrees_with(&self.region, &heap)?;
        Ok(walk)
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

    /// Whether `words` more may be taken from one of the two heaps, one of which may change meanwhile.
    fn is_within_limit(&self, words: u64) -> bool {
        let heaps = [root_state(), reserve_state()].map(|state| Heap::new(state, false));
        let used_words: u64 = heaps.iter().map(|heap| heap.used_words(&self.region)).sum();
        (self.layout.chunks_start.words() + used_words + words) * WORD_BYTES as u64 <= self.limit_bytes()
    }

    fn zone_of(&self, chunk: Offset) -> &A::Lock<Heap> {
        if self.is_in_reserve(chunk) { &self.reserve } else { &self.heap }
    }
}

/// A chunk from [`Memory::allocate_settled`].
#[derive(Debug)]
pub enum Settled {
    /// Nobody else can reach it.
    Exclusive(Exclusive),
    /// A reader that has slept long may reach it: to be written with word copies.
    Shared(Offset),
}

fn write_header(region: &Region, geometry: &Geometry) {
    let Geometry { memory_bytes, partitions, partition_words, settled_bytes, layout, hash_seed } = *geometry;
    let header =
        [MAGIC, LAYOUT_VERSION, memory_bytes, partitions, partition_words, settled_bytes, layout, hash_seed];
    for (index, value) in header.into_iter().enumerate() {
        // Relaxed: nobody else knows the region yet.
        region.word(Offset::from_words(index as u64)).store(value, Relaxed);
    }
}
