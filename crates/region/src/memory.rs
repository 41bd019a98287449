//! The memory of a store: one region with its header, its heap and the heaps of its partitions.

use crate::{
    backing::{Backing, MapError},
    check::Walk,
    exclusive::Exclusive,
    heap::{ARENA, Freed, Heap, HeapStats, NESTED, STATE_WORDS, mark, tag_of},
    region::{Offset, Region},
    shared_map::{SharedMap, UNIT_WORDS},
};
use minos_sync::{Access, Crcw, Lock, words::WORD_BYTES};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// What the first word of a region says: "minos", and the byte order.
const MAGIC: u64 = 0x0001_0073_6f6e_696d;

/// Version of everything that lies in a region. Raised when any layout changes.
const LAYOUT_VERSION: u64 = 1;

const HEADER_WORDS: u64 = 64;

/// Bytes of an arena: the larger the store the larger, so that a partition seldom asks for one.
const ARENA_BYTES_MIN: u64 = 64 << 10;
const ARENA_BYTES_MAX: u64 = 1 << 20;

/// Arenas that would fit into the even share of one partition.
const ARENAS_PER_PARTITION: u64 = 32;

/// An arena serves chunks of at most this part of itself, so that its end is not wasted.
const CHUNKS_PER_ARENA_MIN: u64 = 8;

/// What a region is cut into; kept in its header for whoever maps it next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    /// Size of the region in bytes.
    pub memory_bytes: u64,
    /// Number of partitions.
    pub partitions: u64,
    /// Words that the engine keeps for each partition besides its heap.
    pub partition_words: u64,
    /// Seed of the key hash.
    pub hash_seed: u64,
}

/// A region with a heap in it, and a heap for each partition that takes arenas from it.
///
/// ```text
/// header (64 words) | heap | shared map | partition 0: engine's words, heap | partition 1 ... | chunks
/// ```
#[derive(Debug)]
pub struct Memory<A: Access = Crcw> {
    region: Region,
    geometry: Geometry,
    /// The region's heap. Taken after a partition's lock, never before.
    heap: A::Lock<Heap>,
    shared: SharedMap,
    partitions_start: Offset,
    chunks_start: Offset,
    arena_words: u64,
    /// What may be used of the region, in bytes.
    limit_bytes: AtomicU64,
}

impl<A: Access> Memory<A> {
    /// Maps a region and lays it out.
    pub fn create(geometry: Geometry, backing: &Backing) -> Result<Self, MapError> {
        let region = Region::map(geometry.memory_bytes, backing)?;
        let heap_start = Offset::from_words(HEADER_WORDS);
        let shared = SharedMap::new(heap_start.plus(STATE_WORDS), region.len_words());
        let partitions_start = align_to_line(heap_start.plus(STATE_WORDS + shared.len_words()));
        let stride = partition_stride_words(&geometry);
        let chunks_start = partitions_start.plus(stride * geometry.partitions);
        let bytes_min = chunks_start.words() * WORD_BYTES as u64 + ARENA_BYTES_MIN;
        if geometry.memory_bytes < bytes_min {
            let max = Region::BYTES_MAX;
            return Err(MapError::Size { bytes: geometry.memory_bytes, min: bytes_min, max });
        }
        write_header(&region, &geometry);
        let mut heap = Heap::new(heap_start, false);
        heap.add_span(&region, chunks_start, region.len_words() - chunks_start.words());
        let arena_words = arena_bytes(&geometry) / WORD_BYTES as u64;
        let heap = A::Lock::new(heap);
        let limit_bytes = AtomicU64::new(geometry.memory_bytes);
        Ok(Self { region, geometry, heap, shared, partitions_start, chunks_start, arena_words, limit_bytes })
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
        self.partitions_start.plus(partition_stride_words(&self.geometry) * partition as u64)
    }

    /// The heap of a partition. To be made once for each and kept under the partition's lock.
    pub fn partition_heap(&self, partition: usize) -> Heap {
        let state = self.partition_start(partition).plus(line_multiple(self.geometry.partition_words));
        Heap::new(state, true)
    }

    /// A chunk that readers may read without a lock, with room for `words`.
    ///
    /// Small ones come from the partition's arenas and cost no other lock than the partition's.
    pub fn allocate_shared(&self, partition: &mut Heap, words: u64) -> Option<Offset> {
        if words < self.arena_words / CHUNKS_PER_ARENA_MIN {
            if let Some(chunk) = partition.allocate(&self.region, words) {
                return Some(chunk);
            }
            if let Some(arena) = self.allocate_words(self.arena_words) {
                self.add_arena(partition, arena);
                return partition.allocate(&self.region, words);
            }
        }
        let chunk = self.allocate_words(words)?;
        self.shared.mark(&self.region, chunk, words);
        Some(chunk)
    }

    /// A chunk that nobody reads but under a lock or a pin, with room for `words`.
    ///
    /// It is exclusive unless its memory once was shared: then a reader which has slept since may
    /// still look at it, and it must be written with word copies (MICA §4.3.2; `words::copy_in`).
    pub fn allocate_settled(&self, words: u64) -> Option<Settled> {
        let chunk = self.allocate_words(words)?;
        if self.shared.is_marked(&self.region, chunk, words) {
            Some(Settled::Shared(chunk))
        } else {
            Some(Settled::Exclusive(Exclusive::new(chunk, words)))
        }
    }

    /// Memory for the index, on a cache line, with room for `words`. It is never given back, and
    /// therefore taken from the end, where it does not cut the rest in pieces.
    pub fn allocate_forever(&self, words: u64) -> Option<Offset> {
        let mut heap = self.heap.lock();
        if !self.is_within_limit(&heap, words) {
            return None;
        }
        heap.allocate_last(&self.region, words + LINE_WORDS - 1).map(align_to_line)
    }

    /// Gives a chunk back. `partition` is the heap of the partition whose item it held.
    pub fn free(&self, partition: &mut Heap, chunk: Offset) {
        if tag_of(&self.region, chunk) & NESTED == 0 {
            return self.free_settled(chunk);
        }
        if let Freed::SpanEmpty(span) = partition.free(&self.region, chunk)
            && partition.words(&self.region) > self.arena_words
        {
            // The last one is kept, so that an item that comes and goes does not take it along.
            partition.remove_span(&self.region, span);
            let arena = self.region.word(span.minus(1)).load(Relaxed);
            self.free_settled(Offset::from_words(arena));
        }
    }

    /// Gives a chunk back that belongs to no partition's heap.
    pub fn free_settled(&self, chunk: Offset) {
        self.heap.lock().free(&self.region, chunk);
    }

    /// Of the region's heap, in which the arenas of the partitions count as used.
    pub fn stats(&self) -> HeapStats {
        self.heap.lock().stats(&self.region)
    }

    /// Of a partition's heap.
    pub fn partition_stats(&self, partition: &Heap) -> HeapStats {
        partition.stats(&self.region)
    }

    /// Walks everything. The locks of all partitions are held by the caller, who hands over their
    /// heaps. Returns the chunks in use that are no arenas: their payloads, and words each.
    pub fn check(&self, partitions: &[&Heap]) -> Result<Vec<(Offset, u64)>, String> {
        let heap = self.heap.lock();
        let mut root = Walk::default();
        root.span(&self.region, self.chunks_start)?;
        root.agrees_with(&self.region, &heap)?;
        let mut used = std::mem::take(&mut root.used);
        let mut spans = Walk::default();
        for &(arena, _) in &root.arenas {
            spans.span(&self.region, self.span_of(arena).0)?;
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

    /// Gives an arena to a partition's heap.
    fn add_arena(&self, partition: &mut Heap, arena: Offset) {
        let (span, words) = self.span_of(arena);
        self.shared.mark(&self.region, span, words);
        mark(&self.region, arena, ARENA);
        self.region.word(span.minus(1)).store(arena.words(), Relaxed);
        partition.add_span(&self.region, span, words);
    }

    /// Where the span of an arena begins, and its words: whole units of the map of shared memory, so that
    /// what lies beside an arena is not taken for shared. The word before says where the arena begins.
    fn span_of(&self, arena: Offset) -> (Offset, u64) {
        let start = (arena.words() + 1).next_multiple_of(UNIT_WORDS);
        let end = (arena.words() + self.arena_words) / UNIT_WORDS * UNIT_WORDS;
        (Offset::from_words(start), end - start)
    }

    fn allocate_words(&self, words: u64) -> Option<Offset> {
        let mut heap = self.heap.lock();
        if !self.is_within_limit(&heap, words) {
            return None;
        }
        heap.allocate(&self.region, words)
    }

    /// Whether `words` more may be taken from the region's heap.
    fn is_within_limit(&self, heap: &Heap, words: u64) -> bool {
        let taken_words = self.chunks_start.words() + heap.used_words(&self.region);
        (taken_words + words) * WORD_BYTES as u64 <= self.limit_bytes()
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

const LINE_WORDS: u64 = 8;

fn line_multiple(words: u64) -> u64 {
    words.next_multiple_of(LINE_WORDS)
}

fn align_to_line(offset: Offset) -> Offset {
    Offset::from_words(line_multiple(offset.words()))
}

fn partition_stride_words(geometry: &Geometry) -> u64 {
    line_multiple(geometry.partition_words) + line_multiple(STATE_WORDS)
}

fn arena_bytes(geometry: &Geometry) -> u64 {
    let share = geometry.memory_bytes / (geometry.partitions * ARENAS_PER_PARTITION);
    share.next_power_of_two().clamp(ARENA_BYTES_MIN, ARENA_BYTES_MAX)
}

fn write_header(region: &Region, geometry: &Geometry) {
    let Geometry { memory_bytes, partitions, partition_words, hash_seed } = *geometry;
    let header = [MAGIC, LAYOUT_VERSION, memory_bytes, partitions, partition_words, hash_seed];
    for (index, value) in header.into_iter().enumerate() {
        // Relaxed: nobody else knows the region yet.
        region.word(Offset::from_words(index as u64)).store(value, Relaxed);
    }
}
