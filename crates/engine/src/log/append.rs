//! Appending at the tail, and where the room for it comes from.
//!
//! A full tail segment is followed by one that was evicted and walked, else by a new one, else by the oldest,
//! which is evicted and walked on the spot. So that this last case is rare, a log of some segments prepares
//! for it while a quarter of the tail segment is full: it takes a segment or evicts one, and with two words
//! walked for each word appended the walk has ended when the tail needs the segment.

use super::{END, FIRST, HEAD, Log, LogEntry, MOVING, SEGMENTS_EVICTED, Segments, TAIL, Tag};
use crate::position::{Position, PositionBits};
use minos_region::{Offset, Region};
use minos_sync::horizon;
use std::sync::atomic::Ordering::Relaxed;

/// Words that are walked for each word that is appended.
const WALK_RATE: u64 = 2;

/// A log of fewer segments evicts only when the tail needs one: memory counts for more than a longer stop.
const PREPARE_SEGMENTS_MIN: u64 = 4;

impl<B: PositionBits> Log<B> {
    /// Makes room for an entry of `words` words of payload, and evicts entries that are in its way.
    ///
    /// The payload still holds its segment's old bytes; no reader reaches it before the caller has written it
    /// and links the position. `on_evicted` sees every entry once, in the order of appending, before its
    /// memory is reused, and must not use the log. Entries evicted by this call keep their bytes until the
    /// caller writes the payload, or the next append; they may overlap the payload.
    ///
    /// `None` if `words` is more than [`Log::entry_words_max`], or no segment is available.
    /// Its time is bounded: by the walk of one segment in a log of few segments, by two
    /// words for each word appended in others.
    #[inline]
    pub fn append(
        &self,
        region: &Region,
        segments: &mut impl Segments,
        words: u64,
        on_evicted: &mut impl FnMut(LogEntry<B>),
    ) -> Option<(Position<B>, Offset)> {
        // An entry of no words would have the same position as the next one.
        let words = words.max(1);
        if words > self.entry_words_max() {
            return None;
        }
        self.walk(region, (words + 1) * WALK_RATE, on_evicted);
        if self.room(region) <= words {
            self.advance(region, segments, on_evicted)?;
        } else if self.should_prepare(region) && !self.extend(region, segments) && segments.may_evict() {
            self.evict_segment(region);
        }
        let tail = self.position(region, TAIL);
        let tag = self.place(region, tail);
        region.word(tag).store(Tag::entry(words).0, Relaxed);
        self.set(region, TAIL, tail.plus(words + 1));
        Some((tail.plus(1), tag.plus(1)))
    }

    /// Evicts, walks and frees the oldest segment, because others need the memory.
    ///
    /// A segment that is evicted or unused already is freed first. False if the log
    /// has one segment only, which it keeps.
    pub fn release_head(
        &self,
        region: &Region,
        segments: &mut impl Segments,
        on_evicted: &mut impl FnMut(LogEntry<B>),
    ) -> bool {
        if self.segments(region) <= 1 {
            return false;
        }
        let may_cut = self.may_cut(region, segments);
        let oldest = || may_cut.then(|| self.cut_oldest(region, on_evicted));
        let Some(segment) = self.cut_unused(region).or_else(oldest) else { return false };
        segments.give_back(segment);
        true
    }

    /// Words left in the tail segment.
    #[inline]
    fn room(&self, region: &Region) -> u64 {
        let tail = self.position(region, TAIL);
        let free = self.position(region, END).distance_from(tail);
        free.min(self.segment_words() - self.in_segment(tail))
    }

    /// True if the next segment should be prepared: the last one is a
    /// quarter full, and no eviction is pending.
    #[inline]
    fn should_prepare(&self, region: &Region) -> bool {
        let free = self.position(region, END).distance_from(self.position(region, TAIL));
        free < self.segment_words() / 4 * 3
            && self.position(region, FIRST) == self.position(region, HEAD)
            && self.segments(region) >= PREPARE_SEGMENTS_MIN
    }

    /// Closes the tail segment and continues in another; `None` if there is none.
    #[cold]
    fn advance(
        &self,
        region: &Region,
        segments: &mut impl Segments,
        on_evicted: &mut impl FnMut(LogEntry<B>),
    ) -> Option<()> {
        self.close(region);
        if self.position(region, TAIL) != self.position(region, END) {
            return Some(());
        }
        if self.has_reusable(region) || !self.extend(region, segments) {
            if self.segments(region) == 0 || !self.may_cut(region, segments) {
                return None;
            }
            let segment = self.cut_oldest(region, on_evicted);
            self.add(region, segment);
        }
        Some(())
    }

    /// Fills the tail segment up.
    fn close(&self, region: &Region) {
        let (tail, room) = (self.position(region, TAIL), self.room(region));
        if self.in_segment(tail) != 0 {
            region.word(self.place(region, tail)).store(Tag::filler(room).0, Relaxed);
            self.set(region, TAIL, tail.plus(room));
        }
    }

    /// Takes one more segment, if there is one and the table has room for it.
    #[cold]
    pub fn extend(&self, region: &Region, segments: &mut impl Segments) -> bool {
        debug_assert_eq!(segments.words(), self.segment_words(), "segments of another size");
        if self.segments(region) > self.table_mask {
            self.word(region, MOVING).store(1, Relaxed);
            return false;
        }
        let segment = segments.take();
        if segment.is_none() || segments.is_scarce() {
            self.word(region, MOVING).store(1, Relaxed);
        }
        segment.inspect(|segment| self.add(region, *segment)).is_some()
    }

    /// Puts a segment behind the last one.
    fn add(&self, region: &Region, segment: Offset) {
        let end = self.position(region, END);
        // Relaxed: see `Log::place`.
        region.word(self.table_place(end)).store(segment.words(), Relaxed);
        self.set(region, END, end.plus(self.segment_words()));
    }

    /// Cuts the last segment off, if nothing was appended to it yet.
    fn cut_unused(&self, region: &Region) -> Option<Offset> {
        let (tail, end) = (self.position(region, TAIL), self.position(region, END));
        if end.distance_from(tail) < self.segment_words() {
            return None;
        }
        let last = end.minus(self.segment_words());
        self.set(region, END, last);
        Some(self.place(region, last))
    }

    /// True if the first segment was evicted, or may be.
    #[inline]
    fn may_cut(&self, region: &Region, segments: &impl Segments) -> bool {
        segments.may_evict() || self.position(region, FIRST) != self.position(region, HEAD)
    }

    /// Removes the first segment, which is evicted and walked. The caller knows that there is one.
    fn cut_oldest(&self, region: &Region, on_evicted: &mut impl FnMut(LogEntry<B>)) -> Offset {
        let first = self.position(region, FIRST);
        if first == self.position(region, HEAD) {
            self.evict_segment(region);
        }
        while !self.has_reusable(region) {
            self.walk(region, self.segment_words(), on_evicted);
        }
        self.set(region, FIRST, first.plus(self.segment_words()));
        self.place(region, first)
    }

    /// Makes the oldest segment dangle, whose memory is not used before it was walked.
    fn evict_segment(&self, region: &Region) {
        let head = self.position(region, HEAD).plus(self.segment_words());
        horizon::raise(self.word(region, HEAD), head.words());
        let evicted = self.word(region, SEGMENTS_EVICTED);
        evicted.store(evicted.load(Relaxed) + 1, Relaxed);
    }
}
