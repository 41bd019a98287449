//! Where the parts of a remote table lie, and what was learned of its indexes.

use super::{INDEX_WORDS, Range};
use crate::{
    index::{BUCKET_WORDS, BUCKETS, GENERATION, SEGMENTS, Segments, number_of},
    item::HEADER_WORDS,
    parts::Parts,
    plan::Plan,
    read_only::partition_bits,
    saved::{HASH_MASK, KEPT, SAVED_WORDS, SHAPE, VERSIONS, inline_class_of},
    slot::Slot,
    store::Hashing,
    store_mode::StoreMode,
};
use minos_base::{KeyHash, SizeClass};
use minos_region::{Map, Offset};
use minos_sync::words::{WORD_BYTES, words_for};

const _: () = assert!(GENERATION == BUCKETS + 1 && INDEX_WORDS == 2);

/// A remote table of which only the header is known.
#[derive(Debug)]
pub struct RemoteSketch {
    map: Map,
    plan: Plan,
}

/// A table in memory that another process owns, as far as its readers must know it. A region that is made anew is
/// another table.
#[derive(Debug)]
pub struct RemoteTable {
    map: Map,
    segments: Segments,
    hashing: Hashing,
    inline_class_max: SizeClass,
    known: Box<[Known]>,
}

/// What was learned of a partition's index. It grows, and what is old still leads to buckets.
#[derive(Clone, Debug, Default)]
struct Known {
    /// 0 if it is not known.
    buckets: u64,
    /// Where segments begin; 0 if it is not known.
    segments: Vec<u64>,
}

impl RemoteSketch {
    /// The words with which a region begins.
    pub const HEADER: Range = Range { start: 0, words: Map::HEADER_WORDS };

    /// The table with this header; `None` if it is no store that this program can read.
    pub fn of(header: &[u64]) -> Option<Self> {
        let map = Map::of(header.try_into().ok()?).ok()?;
        let plan =
            Plan::of(*map.geometry()).filter(|_| map.geometry().layout == <StoreMode as Parts>::LAYOUT)?;
        Some(Self { map, plan })
    }

    /// Further words of the table that its readers must know.
    pub fn saved_range(&self) -> Range {
        let start = self.plan.saved_at(self.map.partition_start(0)).place(0);
        Range { start: start.words(), words: SAVED_WORDS as usize }
    }

    /// The table with the words of [`RemoteSketch::saved_range`]; `None` if they contradict the header, or its writer
    /// keeps no versions.
    pub fn table(self, saved: &[u64]) -> Option<RemoteTable> {
        let word = |at: u64| saved.get(at as usize).copied();
        let partitions = usize::try_from(self.map.geometry().partitions).ok()?;
        let shape = word(SHAPE)?;
        let hashing = Hashing {
            seed: self.map.geometry().hash_seed,
            mask: word(HASH_MASK)?,
            partition_shift: partition_bits(shape, partitions)?,
        };
        let segments = self.plan.segments();
        (word(VERSIONS)? == KEPT).then_some(RemoteTable {
            segments,
            hashing,
            inline_class_max: inline_class_of(shape)?,
            known: vec![Known::default(); partitions].into(),
            map: self.map,
        })
    }
}

impl RemoteTable {
    /// As [`crate::Engine::hash`].
    pub fn hash(&self, key: &[u8]) -> KeyHash {
        self.hashing.hash(key)
    }

    /// True if these words lie within the region.
    pub(super) fn holds(&self, start: u64, words: usize) -> bool {
        let len = self.map.geometry().memory_bytes / WORD_BYTES as u64;
        start.checked_add(words as u64).is_some_and(|end| end <= len)
    }

    pub(super) fn owner_place(&self, micro_shard: u32) -> Option<u64> {
        self.map.owner_place(micro_shard).map(Offset::words)
    }

    /// Number of buckets and generation.
    pub(super) fn index_range(&self, hash: KeyHash) -> Range {
        Range { start: self.index_start(hash) + BUCKETS, words: INDEX_WORDS }
    }

    /// Number of buckets of the key's partition, as last seen.
    pub(super) fn buckets(&self, hash: KeyHash) -> Option<u64> {
        Some(self.known[self.partition(hash)].buckets).filter(|&buckets| buckets > 0)
    }

    /// Where the key's segment is named.
    pub(super) fn segment_range(&self, hash: KeyHash) -> Range {
        Range { start: self.index_start(hash) + SEGMENTS + self.place(hash).0, words: 1 }
    }

    /// The first bucket of the key's chain; `None` if its segment is not known.
    pub(super) fn bucket(&self, hash: KeyHash) -> Option<u64> {
        let (segment, position) = self.place(hash);
        let start = *self.known[self.partition(hash)].segments.get(segment as usize)?;
        (start > 0).then_some(start + position)
    }

    /// Notes the number of buckets; false if no index has so many.
    pub(super) fn learn_buckets(&mut self, hash: KeyHash, buckets: u64) -> bool {
        let may_hold = self.segments.may_hold(buckets);
        if may_hold {
            self.known[self.partition(hash)].buckets = buckets;
        }
        may_hold
    }

    /// Notes where the key's segment begins; false if it cannot lie there.
    pub(super) fn learn_segment(&mut self, hash: KeyHash, start: u64) -> bool {
        let is_aligned = start > 0 && start.is_multiple_of(BUCKET_WORDS as u64);
        if !is_aligned || !self.holds(start, self.segments.segment_words() as usize) {
            return false;
        }
        let (segment, partition) = (self.place(hash).0 as usize, self.partition(hash));
        let segments = &mut self.known[partition].segments;
        segments.resize(segments.len().max(segment + 1), 0);
        segments[segment] = start;
        true
    }

    /// The words of a candidate, at most; `None` if its value is large, or it lies nowhere.
    pub(super) fn item_range(&self, slot: Slot, key_bytes: usize) -> Option<Range> {
        let class = slot.class().filter(|class| class.index() <= self.inline_class_max.index())?;
        let words = HEADER_WORDS + words_for(key_bytes + class.bytes_max() as usize);
        let len = self.map.geometry().memory_bytes / WORD_BYTES as u64;
        let left = len.checked_sub(slot.link()).filter(|&left| left >= HEADER_WORDS as u64)?;
        Some(Range { start: slot.link(), words: words.min(left as usize) })
    }

    fn index_start(&self, hash: KeyHash) -> u64 {
        self.map.partition_start(self.partition(hash)).words()
    }

    fn partition(&self, hash: KeyHash) -> usize {
        self.hashing.partition_of(hash, self.known.len())
    }

    /// Segment and place within it of the first bucket of the key's chain.
    fn place(&self, hash: KeyHash) -> (u64, u64) {
        let buckets = self.known[self.partition(hash)].buckets;
        self.segments.place(number_of(buckets, hash))
    }
}
