//! Where the parts of a region lie.

use crate::{
    backing::MapError,
    file::HEADER_WORDS,
    heap::STATE_WORDS,
    offset::Offset,
    owners::Owners,
    region::Region,
    shared_map::{SharedMap, UNIT_WORDS},
    sums::Sums,
};
use minos_sync::words::WORD_BYTES;
use std::ops::Range;

/// Bytes of an arena: the larger the store the larger, so that a partition seldom asks for one.
pub(crate) const ARENA_BYTES_MIN: u64 = 64 << 10;
const ARENA_BYTES_MAX: u64 = 1 << 20;

/// Arenas that would fit into the even share of one partition.
const ARENAS_PER_PARTITION: u64 = 64;

const LINE_WORDS: u64 = 8;

/// The division of a region; kept in its header for the next process that maps it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Geometry {
    /// Size of the region in bytes.
    pub memory_bytes: u64,
    /// Number of partitions.
    pub partitions: u64,
    /// Words that the engine keeps for each partition besides its heap.
    pub partition_words: u64,
    /// Bytes at the end of the region that only [`crate::Memory::allocate_settled`] uses, so that large
    /// values find room whatever else fills the region. 0 for none.
    pub settled_bytes: u64,
    /// The engine's number for its own layout; it cannot read a region with another number.
    pub layout: u64,
    /// Seed of the key hash.
    pub hash_seed: u64,
    /// Micro-shards, whose ownership the region shows; 0 if it has one owner for good.
    pub micro_shards: u64,
}

/// The offsets and sizes that follow from a [`Geometry`].
///
/// ```text
/// header | heap | reserve's heap | shared map | sums | owners | partition 0: engine's words, heap | ...
///     | chunks | reserve
/// ```
#[derive(Debug)]
pub(crate) struct Layout {
    pub(crate) shared: SharedMap,
    pub(crate) sums: Sums,
    pub(crate) owners: Owners,
    partitions_start: Offset,
    partition_words: u64,
    partition_stride_words: u64,
    pub(crate) chunks_start: Offset,
    /// Where the reserve begins; the end of the region if there is none.
    pub(crate) reserve_start: Offset,
    pub(crate) end: Offset,
    /// Words of an arena's span: a power of two.
    pub(crate) arena_words: u64,
}

impl Layout {
    /// The layout for `geometry`, or the bytes that a region needs at least.
    pub(crate) fn new(geometry: &Geometry) -> Result<Self, u64> {
        let end_words = geometry.memory_bytes / WORD_BYTES as u64;
        let shared = SharedMap::new(reserve_state().plus(STATE_WORDS), end_words);
        let sums_start = reserve_state().words() + STATE_WORDS + shared.len_words();
        let sums = Sums::new(Offset::from_words(sums_start), end_words);
        // Cache lines of their own: they are seldom written, and read each time.
        let owners_start = line_multiple(sums_start + sums.len_words());
        let owners_words = geometry.micro_shards.checked_next_multiple_of(LINE_WORDS).ok_or(u64::MAX)?;
        let partitions_start = owners_start.checked_add(owners_words).ok_or(u64::MAX)?;
        let stride = partition_stride_words(geometry).ok_or(u64::MAX)?;
        let bytes_min = bytes_min(geometry, partitions_start, stride).ok_or(u64::MAX)?;
        if geometry.memory_bytes < bytes_min || geometry.memory_bytes > Region::BYTES_MAX {
            return Err(bytes_min);
        }
        let reserve_start = match geometry.settled_bytes {
            0 => end_words,
            bytes => (end_words - bytes.div_ceil(WORD_BYTES as u64)) / UNIT_WORDS * UNIT_WORDS,
        };
        Ok(Self {
            shared,
            sums,
            owners: Owners::new(Offset::from_words(owners_start), geometry.micro_shards),
            partitions_start: Offset::from_words(partitions_start),
            partition_words: line_multiple(geometry.partition_words),
            partition_stride_words: stride,
            chunks_start: Offset::from_words(partitions_start + stride * geometry.partitions),
            reserve_start: Offset::from_words(reserve_start),
            end: Offset::from_words(end_words),
            arena_words: arena_bytes(geometry) / WORD_BYTES as u64,
        })
    }

    /// As [`Layout::new`], with the error of mapping a region.
    pub(crate) fn for_map(geometry: &Geometry) -> Result<Self, MapError> {
        Self::new(geometry).map_err(|bytes_min| MapError::Size {
            bytes: geometry.memory_bytes,
            min: bytes_min,
            max: Region::BYTES_MAX,
        })
    }

    /// Where the engine's words of a partition begin, on a cache line.
    pub(crate) fn partition_start(&self, partition: usize) -> Offset {
        self.partitions_start.plus(self.partition_stride_words * partition as u64)
    }

    /// Where the state of a partition's heap lies.
    pub(crate) fn partition_state(&self, partition: usize) -> Offset {
        self.partition_start(partition).plus(self.partition_words)
    }

    pub(crate) fn chunks(&self) -> Range<Offset> {
        self.chunks_start..self.end
    }

    /// The chunks of the region's heap, and those of the reserve.
    pub(crate) fn zones(&self) -> [Range<Offset>; 2] {
        [self.chunks_start..self.reserve_start, self.reserve_start..self.end]
    }

    pub(crate) fn has_reserve(&self) -> bool {
        self.reserve_start < self.end
    }

    /// Words of a chunk's payload that holds an arena wherever it begins: the span of a power of two, on
    /// whole units of the map of shared memory, and a word before it.
    pub(crate) fn arena_payload_words(&self) -> u64 {
        self.arena_words + UNIT_WORDS
    }

    /// The start of the span of an arena in the chunk with this payload: on a unit of the map
    /// of shared memory, so that memory beside an arena is not marked as shared. The word
    /// before it holds the payload's offset.
    pub(crate) fn arena_span(&self, payload: Offset) -> Offset {
        Offset::from_words((payload.words() + 1).next_multiple_of(UNIT_WORDS))
    }
}

/// Where the state of the region's heap lies.
pub(crate) fn root_state() -> Offset {
    Offset::from_words(HEADER_WORDS)
}

/// Where the state of the reserve's heap lies.
pub(crate) fn reserve_state() -> Offset {
    root_state().plus(STATE_WORDS)
}

pub(crate) fn align_to_line(offset: Offset) -> Offset {
    Offset::from_words(line_multiple(offset.words()))
}

/// Words that may lie between a payload and the first cache line in it.
pub(crate) const LINE_SLACK_WORDS: u64 = LINE_WORDS - 1;

fn line_multiple(words: u64) -> u64 {
    words.next_multiple_of(LINE_WORDS)
}

/// Words of everything that lies before the chunks for one partition; `None` if nothing could hold them.
fn partition_stride_words(geometry: &Geometry) -> Option<u64> {
    let engine_words = geometry.partition_words.checked_next_multiple_of(LINE_WORDS)?;
    engine_words.checked_add(line_multiple(STATE_WORDS))
}

fn bytes_min(geometry: &Geometry, partitions_start: u64, stride: u64) -> Option<u64> {
    let chunks_start = stride.checked_mul(geometry.partitions)?.checked_add(partitions_start)?;
    let chunks_bytes = geometry.settled_bytes.checked_add(2 * ARENA_BYTES_MIN)?;
    chunks_start.checked_mul(WORD_BYTES as u64)?.checked_add(chunks_bytes)
}

fn arena_bytes(geometry: &Geometry) -> u64 {
    let arenas = geometry.partitions.max(1).saturating_mul(ARENAS_PER_PARTITION);
    (geometry.memory_bytes / arenas).next_power_of_two().clamp(ARENA_BYTES_MIN, ARENA_BYTES_MAX)
}
