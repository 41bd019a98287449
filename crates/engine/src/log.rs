//! A circular log: entries are appended at the tail, and the oldest are evicted at the head (MICA §4.3.1).
//!
//! The log consists of equal segments, which it allocates and frees, so that memory moves between the logs,
//! the index and large values. An entry never straddles a segment's end: no range check, no second mapping.
//!
//! ```text
//! word 0   head: the first position that is alive      word 8    tail: where the next tag goes
//! word 1   first: where the memory of the log begins   word 9    walked: up to here, losses were counted
//! word 2   end: where its memory ends                  word 11   head at the last share of a scan
//! word 3   geometry                                    word 12   what that share left over
//! word 4   segments evicted so far
//! word 5   whether entries that are read are to be moved
//! word 16  segment table: offset of the segment of each position, by its number modulo the table's length
//! ```
//!
//! Head, first, end, tail and walked are [`Position`]s, and `first <= walked <= head <= tail <= end`:
//!
//! ```text
//! first       walked        head                       tail       end
//!   | reusable  | evicted     | alive                    | free     |
//! ```
//!
//! Readers use words 0 to 5, which change once a segment; words 8 to 12 are the writer's.
//!
//! **Eviction** moves the head past one whole segment, by one store, and touches no index: a slot that refers
//! to a position before the head dangles ([`Log::locate`]). Then each append walks a few entries of the
//! evicted segment, to report the lost items; a segment walked to its end is reused or freed.
//!
//! **Readers** take no lock. Their copies are valid if [`Log::is_there`] holds afterwards. The orderings are
//! those of [`minos_sync::horizon`], and hold if each writer entered by taking a lock of `minos_sync`. Its
//! statements about one segment hold for everything before the head.

mod append;
#[cfg(test)]
mod checked;
mod open;
#[cfg(test)]
mod open_tests;
#[cfg(test)]
mod stress;
mod tag;
#[cfg(test)]
mod tests;
mod walk;

use crate::position::{Position, PositionBits};
use minos_base::is_left_out;
use minos_region::{Offset, Region, View};
use minos_sync::{ReadWord, horizon};
use std::{
    marker::PhantomData,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
};
use tag::Tag;
pub use tag::Twin;

const HEAD: u64 = 0;
const FIRST: u64 = 1;
const END: u64 = 2;
const GEOMETRY: u64 = 3;
const TAIL: u64 = 8;
const WALKED: u64 = 9;
const SEGMENTS_EVICTED: u64 = 4;
const MOVING: u64 = 5;
const SCANNED: u64 = 11;
const SCAN_REST: u64 = 12;
const TABLE: u64 = 16;

/// An entry takes at most this part of a segment. All but items with long keys take an eighth of it at most, so that
/// little is lost where a segment is closed.
const ENTRIES_PER_SEGMENT_MIN: u64 = 2;

/// Where a log takes its segments from.
pub trait Segments {
    /// A segment of [`Segments::words`] words, aligned to a cache line; `None` when none is available.
    fn take(&mut self) -> Option<Offset>;

    /// Frees a segment. Readers without a lock may still read it.
    fn give_back(&mut self, segment: Offset);

    /// Words of every segment: a power of two.
    fn words(&self) -> u64;

    /// True if few segments are left, so that the log will soon have to evict.
    fn is_scarce(&self) -> bool;

    /// True if the log may evict its oldest segment.
    #[inline]
    fn may_evict(&self) -> bool {
        true
    }
}

/// An entry of a log, as it is reported when it is lost or listed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogEntry<B: PositionBits> {
    /// Where its payload lies.
    pub payload: Offset,
    /// Words of the payload.
    pub words: u64,
    /// The position that index slots store for it.
    pub position: Position<B>,
    /// True if it was deleted or replaced before ([`Log::kill`]).
    pub is_dead: bool,
    /// True if it owns an extent ([`Log::own_extent`]). [`Log::kill`]'s caller
    /// has released a dead entry's extent.
    pub owns_extent: bool,
}

/// The log of one partition: the place of its words in the region.
///
/// Any thread may call [`Log::locate`], [`Log::is_there`] and [`Log::is_closer_to_head`] at any time. All
/// other functions are the writer's; the caller ensures that there is one writer at a time.
#[derive(Clone, Copy, Debug)]
pub struct Log<B: PositionBits> {
    start: Offset,
    segment_bits: u32,
    table_mask: u64,
    bits: PhantomData<B>,
}

impl<B: PositionBits> Log<B> {
    /// Words of the smallest segment.
    pub const SEGMENT_WORDS_MIN: u64 = 64;

    /// Words that a log of at most `table_len` segments takes besides them.
    pub const fn words(table_len: u64) -> u64 {
        TABLE + table_len
    }

    /// Makes an empty log without a segment in the words from `start` on, which are on a cache line.
    ///
    /// # Panics
    /// If `segment_words` or `table_len` is not a power of two, a segment is smaller than
    /// [`Log::SEGMENT_WORDS_MIN`], or all segments together are more than a quarter of the positions.
    pub fn create(region: &Region, start: Offset, segment_words: u64, table_len: u64) -> Self {
        let log = Self::at(start, segment_words, table_len);
        for word in region.words(start, Self::words(table_len) as usize) {
            word.store(0, Relaxed);
        }
        log.word(region, GEOMETRY).store(log.geometry(), Relaxed);
        log
    }

    /// The log in these words, which are not looked at.
    pub(crate) fn at(start: Offset, segment_words: u64, table_len: u64) -> Self {
        assert!(segment_words.is_power_of_two() && segment_words >= Self::SEGMENT_WORDS_MIN, "segment size");
        assert!(table_len.is_power_of_two(), "length of the segment table");
        let segment_bits = segment_words.ilog2();
        assert!(segment_bits + table_len.ilog2() <= B::BITS - 2, "too long for its positions");
        Self { start, segment_bits, table_mask: table_len - 1, bits: PhantomData }
    }

    /// Where the entry at `position` lies; `None` if it was evicted.
    ///
    /// Bytes read there without a lock are valid only if [`Log::is_there`] holds afterwards. For any position
    /// from a racing reader, the offset is one of this log, or that of a word near the region's beginning.
    #[inline]
    pub fn locate(&self, region: &View, position: Position<B>) -> Option<Offset> {
        let head = Position::from_words(horizon::look(self.seen(region, HEAD)));
        if position.is_before(head) { None } else { Some(self.place(region, position)) }
    }

    /// True if the entry at `position` stayed in place while its bytes were copied. Call it after the copy.
    ///
    /// In the control `version-check` the answer is always yes, as that of `version::still`.
    #[inline]
    pub fn is_there(&self, region: &View, position: Position<B>) -> bool {
        let head = Position::from_words(horizon::look_again(self.seen(region, HEAD)));
        !position.is_before(head) || is_left_out("version-check")
    }

    /// True if an entry is in the older half of a log that evicts, or soon will; false if it was evicted.
    /// Reinserting only the entries read there approximates LRU (MICA §4.3.1).
    #[inline]
    pub fn is_closer_to_head(&self, region: &View, position: Position<B>) -> bool {
        if !self.is_moving(region) {
            return false;
        }
        let head = self.position(region, HEAD);
        2 * position.distance_from(head) < self.position(region, END).distance_from(head)
    }

    /// True if an entry of a log that evicts, or soon will, is in an older segment than the one being filled.
    /// Reinserting every entry read there is LRU (MICA §4.3.1), as whole segments are evicted.
    #[inline]
    pub fn is_before_tail_segment(&self, region: &View, position: Position<B>) -> bool {
        if !self.is_moving(region) {
            return false;
        }
        let tail = self.position(region, TAIL);
        tail.distance_from(position) > self.in_segment(tail)
    }

    /// Words that were appended since `position`: the more, the older.
    ///
    /// Of the slots of one bucket, the oldest entry, dangling or not, is the farthest from the tail.
    #[inline]
    pub fn distance_from_tail(&self, region: &View, position: Position<B>) -> u64 {
        self.position(region, TAIL).distance_from(position)
    }

    /// Room of an entry for updates in place: the words requested when it was appended.
    #[inline]
    pub fn entry_words(&self, region: &View, payload: Offset) -> u64 {
        Tag(region.word(payload.minus(1)).load(Relaxed)).words()
    }

    /// Marks an entry as deleted or replaced, so that it is not counted as lost; false if it was evicted.
    ///
    /// Takes a position, not an offset, because appending the replacement may have evicted the entry.
    pub fn kill(&self, region: &Region, position: Position<B>) -> bool {
        let Some(payload) = self.locate(region, position) else { return false };
        let tag = region.word(payload.minus(1));
        tag.store(Tag(tag.load(Relaxed)).dead().0, Relaxed);
        true
    }

    /// Takes [`Log::kill`] back; false if the entry was evicted meanwhile.
    pub fn revive(&self, region: &Region, position: Position<B>) -> bool {
        let Some(payload) = self.locate(region, position) else { return false };
        let tag = region.word(payload.minus(1));
        tag.store(Tag(tag.load(Relaxed)).alive().0, Relaxed);
        true
    }

    /// Marks a just-appended entry as the owner of an extent.
    pub fn own_extent(&self, region: &Region, payload: Offset) {
        let tag = region.word(payload.minus(1));
        tag.store(Tag(tag.load(Relaxed)).with_extent().0, Relaxed);
    }

    /// The largest entry, in words.
    #[inline]
    pub fn entry_words_max(&self) -> u64 {
        self.segment_words() / ENTRIES_PER_SEGMENT_MIN
    }

    /// Words of a segment.
    #[inline]
    pub fn segment_words(&self) -> u64 {
        1 << self.segment_bits
    }

    /// How many segments the log holds.
    pub fn segments(&self, region: &View) -> u64 {
        self.position(region, END).distance_from(self.position(region, FIRST)) >> self.segment_bits
    }

    /// Where each segment that the log holds begins, the oldest first.
    pub fn segment_starts<'a>(&self, region: &'a View) -> impl Iterator<Item = Offset> + use<'a, B> {
        let (log, first) = (*self, self.position(region, FIRST));
        (0..self.segments(region)).map(move |at| log.place(region, first.plus(at << log.segment_bits)))
    }

    /// Words from the head to the tail: live and dead entries, and unused words at segments' ends.
    pub fn used_words(&self, region: &View) -> u64 {
        self.position(region, TAIL).distance_from(self.position(region, HEAD))
    }

    /// True if the log evicts, or soon will. While much memory is free, moving entries would only fill it.
    #[inline]
    pub(crate) fn is_moving(&self, region: &View) -> bool {
        self.seen(region, MOVING).load(Relaxed) != 0
    }

    /// The log will soon have to evict, because it has more than it may have.
    pub(crate) fn expect_eviction(&self, region: &Region) {
        self.word(region, MOVING).store(1, Relaxed);
    }

    /// How many segments were evicted since the log was made.
    #[cfg(test)]
    fn segments_evicted(&self, region: &View) -> u64 {
        self.seen(region, SEGMENTS_EVICTED).load(Relaxed)
    }

    /// True if the head has moved since the last [`Log::scan_share`].
    #[inline]
    pub fn is_scan_due(&self, region: &View) -> bool {
        self.position(region, HEAD) != self.position(region, SCANNED)
    }

    /// The number of buckets, of an index of `buckets`, to free of dangling
    /// slots now. To be called after appends.
    ///
    /// Follows the head: a pass over the index ends when the head has moved by a quarter of the positions, so
    /// that no slot dangles until its position wraps around, even if slots move to buckets that this pass has
    /// already scanned. The remainder of the division is kept for the next call.
    pub fn scan_share(&self, region: &Region, buckets: u64) -> u64 {
        if !self.is_scan_due(region) {
            return 0;
        }
        let (head, scanned) = (self.position(region, HEAD), self.position(region, SCANNED));
        let rest = self.word(region, SCAN_REST);
        // 38 bits times 32 bits and more.
        let due = u128::from(head.distance_from(scanned)) * u128::from(buckets);
        let due = due + u128::from(rest.load(Relaxed));
        rest.store((due & ((1 << (B::BITS - 2)) - 1)) as u64, Relaxed);
        self.set(region, SCANNED, head);
        buckets.min((due >> (B::BITS - 2)) as u64)
    }

    /// The offset of a position, by the segment table.
    #[inline]
    fn place(&self, region: &View, position: Position<B>) -> Offset {
        // Relaxed: an entry of the table changes only after the head has moved past its old segment, so that
        // a reader that sees the new value finds the entry evicted. The table entry was written before the
        // slot that refers to the segment, and the slot's version orders the two.
        let start = region.word(self.table_place(position)).load(Relaxed);
        // Of a reader in another process, this may be garbage.
        Offset::from_words(start.wrapping_add(self.in_segment(position)))
    }

    #[inline]
    pub(crate) fn table_place(&self, position: Position<B>) -> Offset {
        self.start.plus(TABLE + (position.words() >> self.segment_bits & self.table_mask))
    }

    /// Where the first position is that is alive.
    pub(crate) fn head_place(&self) -> Offset {
        self.start.plus(HEAD)
    }

    /// Words from the beginning of its segment.
    #[inline]
    pub(crate) fn in_segment(&self, position: Position<B>) -> u64 {
        position.words() & (self.segment_words() - 1)
    }

    /// A word of this log by its place in the table above, as readers see it.
    #[inline]
    fn seen<'a>(&self, region: &'a View, at: u64) -> &'a ReadWord {
        region.word(self.start.plus(at))
    }

    /// A word of this log for its writer.
    #[inline]
    fn word<'a>(&self, region: &'a Region, at: u64) -> &'a AtomicU64 {
        region.word(self.start.plus(at))
    }

    #[inline]
    fn position(&self, region: &View, at: u64) -> Position<B> {
        // Relaxed: readers use head and end as hints only; all other words are the writer's.
        Position::from_words(self.seen(region, at).load(Relaxed))
    }

    #[inline]
    fn set(&self, region: &Region, at: u64, position: Position<B>) {
        self.word(region, at).store(position.words(), Relaxed);
    }

    /// The values that must match when the log is reopened: sizes, and bits of a position.
    fn geometry(&self) -> u64 {
        u64::from(self.segment_bits) << 48 | u64::from(B::BITS) << 40 | (self.table_mask + 1)
    }
}
