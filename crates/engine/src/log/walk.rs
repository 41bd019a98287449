//! Walks from tag to tag: over evicted entries in small steps, over live ones at once, and ahead of the head, with what
//! is known of the entries' copies elsewhere.

use super::{
    END, FIRST, HEAD, Log, LogEntry, TAIL, Twin, WALKED,
    tag::{Kind, Tag},
};
use crate::position::{Position, PositionBits};
use minos_region::{Offset, Region, View};
use std::sync::atomic::Ordering::Relaxed;

impl<B: PositionBits> Log<B> {
    /// Reports every entry from the head to the tail, dead ones too, the oldest first.
    ///
    /// False if the words are not a chain of tags; entries reported until then may be garbage.
    pub fn live_entries(&self, region: &Region, mut f: impl FnMut(LogEntry<B>)) -> bool {
        let (mut at, tail) = (self.position(region, HEAD), self.position(region, TAIL));
        while at != tail {
            let (kind, next) = self.step(region, at, &mut f);
            if kind == Kind::Broken || next.distance_from(at) > tail.distance_from(at) {
                return false;
            }
            at = next;
        }
        true
    }

    /// Reports everything that was evicted and not yet walked.
    pub fn finish_walk(&self, region: &Region, on_evicted: &mut impl FnMut(LogEntry<B>)) {
        self.walk(region, u64::MAX, on_evicted);
    }

    /// Walks over at least `words` words of evicted entries, if there are that many.
    #[inline]
    pub(super) fn walk(&self, region: &Region, words: u64, on_evicted: &mut impl FnMut(LogEntry<B>)) {
        let (walked, head) = (self.position(region, WALKED), self.position(region, HEAD));
        if walked != head {
            self.walk_on(region, walked, words.min(head.distance_from(walked)), on_evicted);
        }
    }

    /// True if the first segment was evicted and walked.
    pub(super) fn has_reusable(&self, region: &Region) -> bool {
        let walked = self.position(region, WALKED).distance_from(self.position(region, FIRST));
        walked >= self.segment_words()
    }

    #[cold]
    fn walk_on(
        &self,
        region: &Region,
        start: Position<B>,
        words: u64,
        on_evicted: &mut impl FnMut(LogEntry<B>),
    ) {
        let mut at = start;
        while at.distance_from(start) < words {
            at = self.step(region, at, on_evicted).1;
        }
        self.set(region, WALKED, at);
    }

    /// Reports the entry whose tag is at `at`, if there is one, and returns the position of the next tag.
    ///
    /// An invalid tag ends the segment, so that a damaged file cannot lead the walk out of the segment.
    #[inline]
    pub(super) fn step(
        &self,
        region: &Region,
        at: Position<B>,
        f: &mut impl FnMut(LogEntry<B>),
    ) -> (Kind, Position<B>) {
        let place = self.place(region, at);
        let room = self.segment_words() - self.in_segment(at);
        let tag = Tag(region.word(place).load(Relaxed));
        let kind = tag.kind(room);
        let Kind::Entry(words) = kind else { return (kind, at.plus(room)) };
        f(LogEntry {
            payload: place.plus(1),
            words,
            position: at.plus(1),
            is_dead: tag.is_dead(),
            owns_extent: tag.owns_extent(),
        });
        (kind, at.plus(words + 1))
    }

    /// Where a walk continues that came to `at`: behind what was evicted meanwhile.
    pub(crate) fn not_before_head(&self, region: &View, at: Option<Position<B>>) -> Position<B> {
        let head = self.position(region, HEAD);
        at.filter(|at| !at.is_before(head)).unwrap_or(head)
    }

    /// The end of the oldest segment that is alive, `segments` segments further.
    pub(crate) fn head_end(&self, region: &View, segments: u64) -> Position<B> {
        self.position(region, HEAD).plus(segments << self.segment_bits)
    }

    /// As [`Log::head_end`], but not beyond the segments that are full.
    pub(crate) fn full_end(&self, region: &View, segments: u64) -> Position<B> {
        let (end, full) = (self.head_end(region, segments), self.tail_segment(region));
        if end.is_before(full) { end } else { full }
    }

    pub(crate) fn segment_of(&self, position: Position<B>) -> u64 {
        position.words() >> self.segment_bits
    }

    /// The number of the oldest segment that is alive.
    pub(crate) fn head_segment(&self, region: &View) -> u64 {
        self.segment_of(self.position(region, HEAD))
    }

    /// Where the next tag goes.
    pub(crate) fn tail(&self, region: &View) -> Position<B> {
        self.position(region, TAIL)
    }

    /// The beginning of the segment that is being filled.
    pub(crate) fn tail_segment(&self, region: &View) -> Position<B> {
        let tail = self.position(region, TAIL);
        tail.minus(self.in_segment(tail))
    }

    /// True if the oldest segment is evicted by one of the next appends.
    pub(crate) fn is_near_the_end(&self, region: &View) -> bool {
        let free = self.position(region, END).distance_from(self.position(region, TAIL));
        let is_first = self.position(region, FIRST) == self.position(region, HEAD);
        self.is_moving(region) && is_first && free < self.segment_words() / 4 * 3
    }

    /// The entry whose tag is at `at`, if there is one, and the position of the next tag.
    pub(crate) fn entry_at(&self, region: &Region, at: Position<B>) -> (Option<LogEntry<B>>, Position<B>) {
        let mut entry = None;
        let next = self.step(region, at, &mut |found| entry = Some(found)).1;
        (entry, next)
    }

    pub(crate) fn copy_of(&self, region: &View, payload: Offset) -> Twin {
        Tag(region.word(payload.minus(1)).load(Relaxed)).copy()
    }

    pub(crate) fn set_copy(&self, region: &Region, payload: Offset, copy: Twin) {
        let tag = region.word(payload.minus(1));
        tag.store(Tag(tag.load(Relaxed)).with_copy(copy).0, Relaxed);
    }
}
