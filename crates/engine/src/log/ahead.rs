//! Walks ahead of the head, over entries that are still alive, and what is known of their copies elsewhere.

use super::{END, FIRST, HEAD, Log, LogEntry, TAIL, Tag, Twin};
use crate::position::{Position, PositionBits};
use minos_region::{Offset, Region, View};
use std::sync::atomic::Ordering::Relaxed;

impl<B: PositionBits> Log<B> {
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
