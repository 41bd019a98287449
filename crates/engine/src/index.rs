//! The places and the number of buckets (linear hashing over segments).
//!
//! ```text
//! word 0    number of buckets       word 1    flush generation
//! word 2    first free spare bucket, as a line number, 0 = none
//! word 3    level of the table when the oldest slots on flash were made, at most, plus 1
//! word 8    segment table
//! ```
//!
//! Segments are of equal size, at most an arena, so that the index can grow into memory that a log frees, and
//! a bucket is found with one shift and one load from the table. Segments never move and are never freed: a
//! reader that computed a bucket from an old count finds a bucket there.

use crate::generation::Generation;
use minos_base::{ALIKE_BUCKET_BITS, KeyHash};
use minos_region::{Memory, Offset, Region, View};
use minos_sync::ReadWord;
use std::{
    ops::RangeInclusive,
    sync::atomic::{
        AtomicU64,
        Ordering::{Acquire, Relaxed, Release},
    },
};

/// Words of a bucket: one cache line (MICA §4.3.2).
pub(crate) const BUCKET_WORDS: usize = 8;

/// Slots of a bucket; the first word is its version and the next spare bucket.
pub(crate) const SLOTS: usize = BUCKET_WORDS - 1;

const BUCKETS_MAX: u64 = 1 << 32;

/// Buckets of a segment: from a page to an arena.
const SEGMENT_BITS_MIN: u32 = 6;
const SEGMENT_BITS_MAX: u32 = 14;
/// The log on flash parts the records of keys that any index may take for each other.
const _: () = assert!(SEGMENT_BITS_MIN >= ALIKE_BUCKET_BITS);

/// Segments for which there would be room in the share of a partition, about.
const SEGMENTS_PER_SHARE: u64 = 64;

pub(crate) const BUCKETS: u64 = 0;
pub(crate) const GENERATION: u64 = 1;
pub(crate) const FREE_SPARE: u64 = 2;
const FIRST_LEVEL: u64 = 3;
pub(crate) const SEGMENTS: u64 = 8;

/// How an index is cut into segments; the same for all partitions of a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Segments {
    /// Buckets of a segment, as a power of two.
    bits: u32,
    /// Most segments of a partition.
    count: u64,
}

impl Segments {
    /// For one of `partitions` in `memory_bytes`. A partition may take all of them, if its keys are many.
    pub(crate) fn new(memory_bytes: u64, partitions: u64) -> Self {
        let bytes = (memory_bytes / (partitions * SEGMENTS_PER_SHARE)).max(1);
        let bucket_bits = (BUCKET_WORDS as u64 * 8).ilog2();
        let bits = bytes.ilog2().saturating_sub(bucket_bits).clamp(SEGMENT_BITS_MIN, SEGMENT_BITS_MAX);
        let fitting = (memory_bytes >> (bits + bucket_bits)).max(1);
        // Not more than four times the even share, so that many partitions do not cost much memory.
        let count = fitting.min(SEGMENTS_PER_SHARE * 4 * fitting.div_ceil(SEGMENTS_PER_SHARE * partitions));
        Self { bits, count: count.min(BUCKETS_MAX >> bits) }
    }

    /// True if an index may have so many buckets.
    pub(crate) fn may_hold(self, buckets: u64) -> bool {
        (1 << SEGMENT_BITS_MIN..=self.count << self.bits).contains(&buckets)
    }

    /// Number of a bucket's segment, and words from the segment's beginning to the bucket.
    #[inline]
    pub(crate) fn place(self, number: u64) -> (u64, u64) {
        (number >> self.bits, (number & ((1 << self.bits) - 1)) * BUCKET_WORDS as u64)
    }

    /// Words of a segment.
    pub(crate) fn segment_words(self) -> u64 {
        (BUCKET_WORDS as u64) << self.bits
    }

    /// Words that the index of a partition takes besides its buckets.
    pub(crate) fn index_words(self) -> u64 {
        // Whole cache lines, because readers share the words that follow.
        (SEGMENTS + self.count).next_multiple_of(BUCKET_WORDS as u64)
    }
}

/// The index of one partition. Its words are written under the partition's lock.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Index {
    start: Offset,
    segments: Segments,
}

impl Index {
    /// Makes an empty index at `start`; `None` when there is no memory for the first buckets.
    pub(crate) fn create(memory: &Memory, start: Offset, segments: Segments) -> Option<Self> {
        let index = Self::at(start, segments);
        let region = memory.region();
        index.take_segment(memory, 0)?;
        let buckets = 1 << SEGMENT_BITS_MIN;
        for number in 0..buckets {
            clear_bucket(region, index.bucket(region, number));
        }
        index.set_generation(region, Generation::FIRST);
        index.word(region, BUCKETS).store(buckets, Release);
        Some(index)
    }

    fn at(start: Offset, segments: Segments) -> Self {
        Self { start, segments }
    }

    /// The existing index at `start`; `None` if its words are not valid.
    ///
    /// The contents of its buckets are not checked.
    pub(crate) fn find(region: &View, start: Offset, segments: Segments) -> Option<Self> {
        let index = Self::at(start, segments);
        // Once: it may be garbage that changes.
        let buckets = index.buckets(region);
        let has_count = segments.may_hold(buckets);
        let is_within = |segment: Offset| {
            let is_aligned = segment.words().is_multiple_of(BUCKET_WORDS as u64) && segment.words() > 0;
            is_aligned && region.try_words(segment, index.segment_words() as usize).is_some()
        };
        let is_whole = has_count && index.generation(region).is_whole();
        (is_whole && index.segments_of(region, buckets).all(is_within)).then_some(index)
    }

    #[inline]
    pub(crate) fn buckets(&self, region: &View) -> u64 {
        // Acquire: the segment table and the new bucket were written before the count was raised.
        self.seen(region, BUCKETS).load(Acquire)
    }

    /// Most buckets that the table has room for.
    pub(crate) fn buckets_max(&self) -> u64 {
        self.segments.count << self.segments.bits
    }

    /// The flush generation of items that are alive.
    #[inline]
    pub(crate) fn generation(&self, region: &View) -> Generation {
        // Relaxed: a flush is not ordered with requests of other connections.
        Generation::from_word(self.seen(region, GENERATION).load(Relaxed))
    }

    pub(crate) fn set_generation(&self, region: &Region, generation: Generation) {
        self.word(region, GENERATION).store(generation.to_word(), Relaxed);
    }

    /// The levels at which the slots on flash were made, at most; level `n` is from `1 << n` buckets on.
    pub(crate) fn levels(&self, region: &View, buckets: u64) -> RangeInclusive<u32> {
        let (first, level) = (self.seen(region, FIRST_LEVEL).load(Relaxed), buckets.ilog2());
        (first as u32).checked_sub(1).unwrap_or(level).min(level)..=level
    }

    /// Remembers the present level, at which a slot on flash is made: the only one, or one of several.
    pub(crate) fn remember_level(&self, region: &Region, is_only: bool) {
        let first = self.word(region, FIRST_LEVEL);
        if is_only || first.load(Relaxed) == 0 {
            first.store(u64::from(self.buckets(region).ilog2()) + 1, Relaxed);
        }
    }

    /// A word of this index by its place in the table above, as readers see it.
    #[inline]
    fn seen<'a>(&self, region: &'a View, at: u64) -> &'a ReadWord {
        region.word(self.start.plus(at))
    }

    /// A word of this index for its writer.
    #[inline]
    pub(crate) fn word<'a>(&self, region: &'a Region, at: u64) -> &'a AtomicU64 {
        region.word(self.start.plus(at))
    }

    /// The bucket of `hash` while there are `buckets`.
    #[inline]
    pub(crate) fn bucket_of(&self, region: &View, buckets: u64, hash: KeyHash) -> Offset {
        self.bucket(region, number_of(buckets, hash))
    }

    /// As [`Index::bucket_of`], for readers of words that may be garbage: the place then is any place, or none
    /// within the region.
    #[inline]
    pub(crate) fn seek(&self, region: &View, buckets: u64, hash: KeyHash) -> Offset {
        self.seek_number(region, number_of(buckets, hash))
    }

    /// As [`Index::bucket`], for readers of words that may be garbage.
    #[inline]
    pub(crate) fn seek_number(&self, region: &View, number: u64) -> Offset {
        let (segment, position) = self.place(number);
        // Relaxed: ordered by the load of the count.
        let start = region.try_word(self.start.plus(SEGMENTS + segment)).map_or(0, |word| word.load(Relaxed));
        Offset::from_words(start.wrapping_add(position))
    }

    #[inline]
    pub(crate) fn bucket(&self, region: &View, number: u64) -> Offset {
        let (segment, position) = self.place(number);
        // Relaxed: ordered by the load of the count, or by the lock.
        let start = self.seen(region, SEGMENTS + segment).load(Relaxed);
        Offset::from_words(start + position)
    }

    pub(crate) fn split_source(&self, region: &View) -> Offset {
        let buckets = self.buckets(region);
        self.bucket(region, buckets - (1 << buckets.ilog2()))
    }

    /// True if `hash` goes to the new bucket when the index grows by one.
    pub(crate) fn moves(buckets: u64, hash: KeyHash) -> bool {
        u64::from(hash.bucket_bits()) >> buckets.ilog2() & 1 == 1
    }

    /// An empty bucket behind the last one, which is not in use before [`Index::publish`].
    pub(crate) fn prepare(&self, memory: &Memory) -> Option<Offset> {
        let region = memory.region();
        let number = self.buckets(region);
        let (segment, position) = self.place(number);
        if position == 0 {
            self.take_segment(memory, segment)?;
        }
        let bucket = self.bucket(region, number);
        clear_bucket(region, bucket);
        Some(bucket)
    }

    /// Takes memory for a segment; `None` if there is none, or the table is full.
    fn take_segment(&self, memory: &Memory, segment: u64) -> Option<()> {
        if segment == self.segments.count {
            return None;
        }
        let start = memory.allocate_forever(self.segment_words())?;
        self.word(memory.region(), SEGMENTS + segment).store(start.words(), Relaxed);
        Some(())
    }

    /// Puts the prepared bucket into use.
    pub(crate) fn publish(&self, region: &Region) {
        let buckets = self.buckets(region);
        // Release: a thread that sees the count also sees segment table and bucket.
        self.word(region, BUCKETS).store(buckets + 1, Release);
    }

    pub(crate) fn segment_words(&self) -> u64 {
        self.segments.segment_words()
    }

    /// Bytes of all segments taken so far.
    pub(crate) fn bytes(&self, region: &View) -> u64 {
        self.buckets(region).next_multiple_of(1 << self.segments.bits) * (BUCKET_WORDS * 8) as u64
    }

    /// Where the segments begin that were taken so far.
    pub(crate) fn segments<'a>(&self, region: &'a View) -> impl Iterator<Item = Offset> + use<'a> {
        self.segments_of(region, self.buckets(region))
    }

    /// Where the segments begin that hold so many buckets.
    fn segments_of<'a>(&self, region: &'a View, buckets: u64) -> impl Iterator<Item = Offset> + use<'a> {
        let index = *self;
        (0..buckets.div_ceil(1 << self.segments.bits))
            .map(move |segment| Offset::from_words(index.seen(region, SEGMENTS + segment).load(Relaxed)))
    }

    /// As [`Segments::place`].
    #[inline]
    fn place(&self, number: u64) -> (u64, u64) {
        self.segments.place(number)
    }
}

/// Number of the bucket of `hash` while there are `buckets`.
#[inline]
pub(crate) fn number_of(buckets: u64, hash: KeyHash) -> u64 {
    // Never zero: the compiler need not check it.
    let low = (buckets | 1).ilog2();
    let bits = u64::from(hash.bucket_bits());
    // Garbage may be so large that the shift leaves nothing.
    let wide = bits & (2u64 << low).wrapping_sub(1);
    if wide < buckets { wide } else { bits & ((1 << low) - 1) }
}

pub(crate) fn clear_bucket(region: &Region, bucket: Offset) {
    for word in region.words(bucket, BUCKET_WORDS) {
        word.store(0, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_index_may_take_all_of_a_small_memory_and_four_shares_of_a_large_one() {
        let small = Segments::new(1 << 20, 1);
        assert!((small.count << small.bits) * 64 >= 1 << 20, "{small:?}");
        let large = Segments::new(16 << 30, 16);
        assert_eq!(large.bits, SEGMENT_BITS_MAX);
        assert!((large.count << large.bits) * 64 >= 4 << 30, "{large:?}");
        let many = Segments::new(64 << 20, 1 << 10);
        assert!(many.index_words() * 8 * 1024 <= 4 << 20, "{many:?}");
    }
}
