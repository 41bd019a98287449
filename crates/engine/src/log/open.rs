//! Finding a log again in memory that another process has left.

use super::{END, FIRST, GEOMETRY, HEAD, Log, TAIL, WALKED};
use crate::position::{Position, PositionBits};
use minos_region::{Offset, Region, View};
use std::sync::atomic::Ordering::Relaxed;

impl<B: PositionBits> Log<B> {
    /// The log in the words from `start` on; `None` if they are not those of such a log.
    ///
    /// Checks the log's own words only: positions must be in order, and all segments within the region.
    /// [`Log::live_entries`] checks the segments' contents, and the heap checks who owns them.
    ///
    /// # Panics
    /// As [`Log::create`], and if the words do not lie within the region.
    pub fn open(region: &Region, start: Offset, segment_words: u64, table_len: u64) -> Option<Self> {
        let log = Self::find(region, start, segment_words, table_len)?;
        (log.is_in_order(region) && log.is_within(region)).then_some(log)
    }

    /// As [`Log::open`], for readers: the log's writer may be at work, so only its constant words are checked.
    ///
    /// # Panics
    /// As [`Log::open`].
    pub fn find(region: &View, start: Offset, segment_words: u64, table_len: u64) -> Option<Self> {
        let log = Self::at(start, segment_words, table_len);
        (log.seen(region, GEOMETRY).load(Relaxed) == log.geometry()).then_some(log)
    }

    /// The oldest position that is alive.
    pub(crate) fn head(&self, region: &Region) -> Position<B> {
        self.position(region, HEAD)
    }

    /// Stops reporting entries that were evicted so far.
    pub(crate) fn forget_evicted(&self, region: &Region) {
        self.set(region, WALKED, self.head(region));
    }

    fn is_in_order(&self, region: &Region) -> bool {
        let words = [FIRST, WALKED, HEAD, TAIL, END].map(|at| self.word(region, at).load(Relaxed));
        let positions = words.map(Position::<B>::from_words);
        let [first, _, head, _, end] = positions;
        let from_first = positions.map(|position| position.distance_from(first));
        words.into_iter().eq(positions.map(Position::words))
            && from_first.is_sorted()
            && [first, head, end].iter().all(|position| self.in_segment(*position) == 0)
            && self.segments(region) <= self.table_mask + 1
    }

    fn is_within(&self, region: &Region) -> bool {
        let first = self.position(region, FIRST);
        (0..self.segments(region)).all(|at| {
            let start = region.word(self.table_place(first.plus(at << self.segment_bits))).load(Relaxed);
            start.checked_add(self.segment_words()).is_some_and(|end| end <= region.len_words())
        })
    }
}
