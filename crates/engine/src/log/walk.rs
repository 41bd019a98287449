//! Walks from tag to tag: over evicted entries in small steps, over live ones at once.

use super::{
    FIRST, HEAD, Log, LogEntry, TAIL, WALKED,
    tag::{Kind, Tag},
};
use crate::position::{Position, PositionBits};
use minos_region::Region;
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
}
