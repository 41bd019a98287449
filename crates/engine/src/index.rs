//! Where buckets are, and how many (linear hashing over segments).
//!
//! ```text
//! word 0    number of buckets       word 1    flush generation
//! word 2    first free spare bucket, as a line number, 0 = none
//! word 8    segment table
//! ```
//!
//! Segment 0 holds the first 64 buckets. From there each doubling is made of eight equal segments, so
//! that at most a sixteenth of the index is reserved before it is used. Segments never move and are
//! never given back: a reader that computed a bucket from an old count finds a bucket there.

use minos_base::KeyHash;
use minos_region::{Memory, Offset, Region};
use std::sync::atomic::{
    AtomicU64,
    Ordering::{Acquire, Relaxed, Release},
};

/// Words of a bucket: one cache line (MICA §4.3.2).
pub(crate) const BUCKET_WORDS: usize = 8;

/// Slots of a bucket; the first word is its version and the next spare bucket.
pub(crate) const SLOTS: usize = BUCKET_WORDS - 1;

const BASE_BITS: u32 = 6;
const STEP_BITS: u32 = 3;
const BUCKETS_MAX: u64 = 1 << 32;

const BUCKETS: u64 = 0;
const GENERATION: u64 = 1;
pub(crate) const FREE_SPARE: u64 = 2;
const SEGMENTS: u64 = 8;

/// Words that the index of a partition takes besides its buckets.
pub(crate) const INDEX_WORDS: u64 = SEGMENTS + 1 + (((32 - BASE_BITS) as u64) << STEP_BITS);

/// The index of one partition. Its words are written under the partition's lock.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Index {
    start: Offset,
}

impl Index {
    /// Makes an empty index at `start`; `None` when there is no memory for the first buckets.
    pub(crate) fn create(memory: &Memory, start: Offset) -> Option<Self> {
        let index = Self { start };
        let region = memory.region();
        let segment = memory.allocate_forever((BUCKET_WORDS as u64) << BASE_BITS)?;
        index.word(region, SEGMENTS).store(segment.words(), Relaxed);
        for number in 0..1 << BASE_BITS {
            clear_bucket(region, index.bucket(region, number));
        }
        index.word(region, BUCKETS).store(1 << BASE_BITS, Release);
        Some(index)
    }

    /// How many buckets there are.
    #[inline]
    pub(crate) fn buckets(&self, region: &Region) -> u64 {
        // Acquire: the segment table and the new bucket were written before the count was raised.
        self.word(region, BUCKETS).load(Acquire)
    }

    /// The flush generation of items that are alive.
    #[inline]
    pub(crate) fn generation(&self, region: &Region) -> u64 {
        // Relaxed: a flush is not ordered with requests of other connections.
        self.word(region, GENERATION).load(Relaxed)
    }

    pub(crate) fn set_generation(&self, region: &Region, generation: u64) {
        self.word(region, GENERATION).store(generation, Relaxed);
    }

    /// A word of this index by its place in the table above.
    #[inline]
    pub(crate) fn word<'a>(&self, region: &'a Region, at: u64) -> &'a AtomicU64 {
        region.word(self.start.plus(at))
    }

    /// The bucket of `hash` while there are `buckets`.
    #[inline]
    pub(crate) fn bucket_of(&self, region: &Region, buckets: u64, hash: KeyHash) -> Offset {
        let low = buckets.ilog2();
        let bits = u64::from(hash.bucket_bits());
        let wide = bits & ((2 << low) - 1);
        let number = if wide < buckets { wide } else { bits & ((1 << low) - 1) };
        self.bucket(region, number)
    }

    /// The bucket with this number.
    #[inline]
    pub(crate) fn bucket(&self, region: &Region, number: u64) -> Offset {
        let (segment, position) = place(number);
        // Relaxed: ordered by the load of the count, or by the lock.
        let start = self.word(region, SEGMENTS + segment).load(Relaxed);
        Offset::from_words(start + position * BUCKET_WORDS as u64)
    }

    /// The bucket that the next growth splits.
    pub(crate) fn split_source(&self, region: &Region) -> Offset {
        let buckets = self.buckets(region);
        self.bucket(region, buckets - (1 << buckets.ilog2()))
    }

    /// Whether `hash` goes to the new bucket when the index grows by one.
    pub(crate) fn moves(buckets: u64, hash: KeyHash) -> bool {
        u64::from(hash.bucket_bits()) >> buckets.ilog2() & 1 == 1
    }

    /// An empty bucket behind the last one, which is not in use before [`Index::publish`].
    pub(crate) fn prepare(&self, memory: &Memory) -> Option<Offset> {
        let region = memory.region();
        let number = self.buckets(region);
        if number == BUCKETS_MAX {
            return None;
        }
        let (segment, position) = place(number);
        if position == 0 {
            let words = (BUCKET_WORDS as u64) << (number.ilog2() - STEP_BITS);
            let start = memory.allocate_forever(words)?;
            self.word(region, SEGMENTS + segment).store(start.words(), Relaxed);
        }
        let bucket = self.bucket(region, number);
        clear_bucket(region, bucket);
        Some(bucket)
    }

    /// Puts the prepared bucket into use.
    pub(crate) fn publish(&self, region: &Region) {
        let buckets = self.buckets(region);
        // Release: whoever sees the count sees segment table and bucket.
        self.word(region, BUCKETS).store(buckets + 1, Release);
    }

    /// Bytes of all segments taken so far.
    pub(crate) fn bytes(&self, region: &Region) -> u64 {
        let last = self.buckets(region) - 1;
        let segment_buckets =
            if last >> BASE_BITS == 0 { 1 << BASE_BITS } else { 1 << (last.ilog2() - STEP_BITS) };
        (last + 1).next_multiple_of(segment_buckets) * (BUCKET_WORDS * 8) as u64
    }
}

/// Segment of a bucket and its position there.
#[inline]
fn place(number: u64) -> (u64, u64) {
    if number >> BASE_BITS == 0 {
        return (0, number);
    }
    let shift = number.ilog2() - STEP_BITS;
    let octave = u64::from(number.ilog2() - BASE_BITS);
    let step = number >> shift & ((1 << STEP_BITS) - 1);
    (1 + (octave << STEP_BITS) + step, number & ((1 << shift) - 1))
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
    fn segments_are_filled_one_after_another() {
        let (mut segment, mut next) = (0, 0);
        for number in 0..100_000 {
            let at = place(number);
            if at != (segment, next) {
                assert_eq!(at, (segment + 1, 0), "{number}");
                (segment, next) = at;
            }
            next += 1;
        }
        assert!(place(BUCKETS_MAX - 1).0 + SEGMENTS < INDEX_WORDS);
    }
}
