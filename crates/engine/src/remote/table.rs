//! Where the parts of a remote table lie, and what was learned of its indexes.

use super::{INDEX_WORDS, Range};
use crate::{
    cache_mode::{CacheMode, position, table_len},
    index::{BUCKET_WORDS, BUCKETS, GENERATION, SEGMENTS, Segments, number_of},
    item::HEADER_WORDS,
    log::Log,
    parts::Parts,
    plan::Plan,
    position::{Position, Wide},
    read_only::partition_bits,
    saved::{CLOCK_BASE, HASH_MASK, INLINE_CLASS_MAX, KEPT, SAVED_WORDS, VERSIONS, inline_class_of},
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
    is_cache: bool,
}

/// A table in memory that another process owns, as far as its readers must know it. A region that is made anew is
/// another table.
#[derive(Debug)]
pub struct RemoteTable {
    map: Map,
    segments: Segments,
    hashing: Hashing,
    inline_class_max: SizeClass,
    clock_base: u64,
    /// Those of a cache.
    logs: Option<Box<[Log<Wide>]>>,
    known: Box<[Known]>,
}

/// What was learned of a partition's index. It grows, and what is old still leads to buckets.
#[derive(Clone, Debug, Default)]
struct Known {
    /// 0 if it is not known.
    buckets: u64,
    /// Where segments begin; 0 if it is not known.
    segments: Vec<u64>,
    /// The log's segment table, as last seen.
    log: Vec<u64>,
}

impl RemoteSketch {
    /// The words with which a region begins.
    pub const HEADER: Range = Range { start: 0, words: Map::HEADER_WORDS };

    /// The table with this header; `None` if it is none, in memory alone, that this program can read.
    pub fn of(header: &[u64]) -> Option<Self> {
        let map = Map::of(header.try_into().ok()?).ok()?;
        let is_cache = map.geometry().layout == <CacheMode as Parts>::LAYOUT;
        let is_known = is_cache || map.geometry().layout == <StoreMode as Parts>::LAYOUT;
        let plan = Plan::of(*map.geometry()).filter(|_| is_known)?;
        Some(Self { map, plan, is_cache })
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
        let hashing = Hashing {
            seed: self.map.geometry().hash_seed,
            mask: word(HASH_MASK)?,
            partition_shift: partition_bits(partitions)?,
        };
        let segments = self.plan.segments();
        let logs = self.is_cache.then(|| (0..partitions).map(|partition| self.log(partition)).collect());
        (word(VERSIONS)? == KEPT).then_some(RemoteTable {
            segments,
            hashing,
            inline_class_max: inline_class_of(word(INLINE_CLASS_MAX)?)?,
            clock_base: word(CLOCK_BASE)?,
            logs,
            known: vec![Known::default(); partitions].into(),
            map: self.map,
        })
    }
}

impl RemoteSketch {
    fn log(&self, partition: usize) -> Log<Wide> {
        let geometry = self.map.geometry();
        let len = table_len::<Wide>(geometry.memory_bytes, geometry.partitions);
        Log::at(self.plan.space_start(self.map.partition_start(partition)), self.map.arena_words(), len)
    }
}

impl RemoteTable {
    /// As [`crate::Engine::hash`].
    pub fn hash(&self, key: &[u8]) -> KeyHash {
        self.hashing.hash(key)
    }

    /// As [`crate::Engine::clock_base`], when the words were read.
    pub fn clock_base(&self) -> u64 {
        self.clock_base
    }

    /// Number of micro-shards whose ownership the table shows.
    pub fn micro_shards(&self) -> u32 {
        u32::try_from(self.map.geometry().micro_shards).unwrap_or(u32::MAX)
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

    /// Number of the key's segment, and where that is named.
    pub(super) fn segment(&self, hash: KeyHash) -> (u64, Range) {
        let (number, _) = self.place(hash);
        (number, Range { start: self.index_start(hash) + SEGMENTS + number, words: 1 })
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

    /// Notes where a segment of the key's partition begins; false if it cannot lie there.
    pub(super) fn learn_segment(&mut self, hash: KeyHash, number: u64, start: u64) -> bool {
        let is_aligned = start > 0 && start.is_multiple_of(BUCKET_WORDS as u64);
        if !is_aligned || !self.holds(start, self.segments.segment_words() as usize) {
            return false;
        }
        let (segment, partition) = (number as usize, self.partition(hash));
        let segments = &mut self.known[partition].segments;
        segments.resize(segments.len().max(segment + 1), 0);
        segments[segment] = start;
        true
    }

    /// Where the head of the key's log is named, in a cache.
    pub(super) fn log_head_range(&self, hash: KeyHash) -> Option<Range> {
        Some(Range { start: self.log(hash)?.head_place().words(), words: 1 })
    }

    /// True if the item of a slot was evicted when the log's head was this word.
    pub(super) fn is_evicted(&self, slot: Slot, log_head: u64) -> bool {
        self.logs.is_some() && position::<Wide>(slot.link()).is_before(Position::from_words(log_head))
    }

    /// Where the log's segment of a slot is named, in a cache.
    pub(super) fn log_segment_range(&self, hash: KeyHash, slot: Slot) -> Option<Range> {
        Some(Range { start: self.log(hash)?.table_place(position(slot.link())).words(), words: 1 })
    }

    /// Notes where the log's segment of a slot begins.
    pub(super) fn learn_log_segment(&mut self, hash: KeyHash, slot: Slot, start: u64) {
        let Some(at) = self.log_segment(hash, slot) else { return };
        let partition = self.partition(hash);
        let log = &mut self.known[partition].log;
        log.resize(log.len().max(at + 1), 0);
        log[at] = start;
    }

    /// Number of a slot's segment in the log's table.
    fn log_segment(&self, hash: KeyHash, slot: Slot) -> Option<usize> {
        let log = self.log(hash)?;
        let first = log.table_place(Position::from_words(0));
        Some((log.table_place(position(slot.link())).words() - first.words()) as usize)
    }

    fn log(&self, hash: KeyHash) -> Option<&Log<Wide>> {
        self.logs.as_ref().map(|logs| &logs[self.partition(hash)])
    }

    /// Where the item of a slot begins, as far as it is known.
    fn item_start(&self, hash: KeyHash, slot: Slot) -> u64 {
        let (Some(log), Some(at)) = (self.log(hash), self.log_segment(hash, slot)) else {
            return slot.link();
        };
        let start = self.known[self.partition(hash)].log.get(at).copied().unwrap_or(0);
        start.saturating_add(log.in_segment(position(slot.link())))
    }

    /// The words of a candidate, at most; `None` if its value is large, or it lies nowhere.
    pub(super) fn item_range(&self, hash: KeyHash, slot: Slot, key_bytes: usize) -> Option<Range> {
        let start = self.item_start(hash, slot);
        let class = slot.class().filter(|class| class.index() <= self.inline_class_max.index())?;
        let words = HEADER_WORDS + words_for(key_bytes + class.bytes_max() as usize);
        let len = self.map.geometry().memory_bytes / WORD_BYTES as u64;
        let left = len.checked_sub(start).filter(|&left| left >= HEADER_WORDS as u64)?;
        Some(Range { start, words: words.min(left as usize) })
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
