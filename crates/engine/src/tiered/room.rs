//! The writer's own state of a partition above flash: copies on their way, and tombstones that are due.

use crate::{
    config::TierConfig,
    log::Log,
    position::{Position, PositionBits},
};
use minos_base::FlashPlace;
pub use minos_base::Tombstone;
use minos_region::Region;
use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    ops::Range,
};

/// Tickets are numbered modulo this: as many bits as a tag has for a copy.
const NUMBERS: u64 = 1 << 38;

/// Pages of an area that is given up where there was no room for a tombstone: 16 MiB.
const AREA_PAGES: u32 = 4096;

/// The writer's own state of a partition above flash. Nothing of it outlives the process: an item whose copy
/// was on its way is still in memory.
#[derive(Debug)]
pub(crate) struct FlashRoom {
    pub(super) config: TierConfig,
    /// Words up to which the log was walked so that its entries leave.
    pub(super) ahead: Option<u64>,
    /// Words up to which it was walked so that its large values leave.
    pub(super) large_ahead: Option<u64>,
    /// Words up to which it was walked so that its entries have copies.
    pub(super) copied: Option<u64>,
    /// Copies on their way, the oldest first.
    open: VecDeque<Open>,
    /// Positions and segments of entries that were walked over and changed since: to be settled again.
    again: VecDeque<(u64, u64)>,
    /// Of both, how many are not settled, by segment.
    by_segment: BTreeMap<u64, usize>,
    pub(super) next: u64,
    /// The tail segment when something was appended last, and if the log was full.
    tail: (u64, bool),
    pub(super) tombstones: Queue,
}

#[derive(Debug)]
struct Open {
    position: u64,
    segment: u64,
    to: FlashPlace,
    stage: Stage,
}

/// How far a copy is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// On its way; its item waits for it in memory.
    Awaited,
    /// On its way; its item had to leave memory.
    Left,
    /// Written, or never to be.
    Ended,
}

impl FlashRoom {
    pub(crate) fn new(config: TierConfig) -> Self {
        Self {
            config,
            ahead: None,
            large_ahead: None,
            copied: None,
            open: VecDeque::new(),
            again: VecDeque::new(),
            by_segment: BTreeMap::new(),
            next: 0,
            tail: (0, false),
            tombstones: Queue::default(),
        }
    }

    /// True if the log has taken another segment since the last call, or has become full.
    pub(super) fn has_advanced(&mut self, tail: u64, is_full: bool) -> bool {
        std::mem::replace(&mut self.tail, (tail, is_full)) != (tail, is_full)
    }

    /// The position up to which the log was walked.
    pub(super) fn ahead<B: PositionBits>(&self) -> Option<Position<B>> {
        self.ahead.map(Position::from_words)
    }

    /// The position up to which the log was walked for large values.
    pub(super) fn large_ahead<B: PositionBits>(&self) -> Option<Position<B>> {
        self.large_ahead.map(Position::from_words)
    }

    /// The position up to which the log was walked for copies.
    pub(super) fn copied<B: PositionBits>(&self) -> Option<Position<B>> {
        self.copied.map(Position::from_words)
    }

    /// True if no entry of this segment, which was walked over, has yet to leave memory.
    pub(super) fn is_settled(&self, segment: u64) -> bool {
        !self.by_segment.contains_key(&segment)
    }

    /// True if the log may evict its oldest segment.
    pub(crate) fn may_evict<B: PositionBits>(&self, log: &Log<B>, region: &Region) -> bool {
        let ahead = log.not_before_head(region, self.ahead());
        !ahead.is_before(log.head_end(region, 1)) && self.is_settled(log.head_segment(region))
    }

    /// True if no more copies may be on their way.
    pub(super) fn is_full(&self) -> bool {
        self.open.len() >= self.config.tickets_max
    }

    pub(super) fn open_tickets(&self) -> usize {
        self.open.iter().filter(|open| open.stage != Stage::Ended).count()
    }

    /// Gives a ticket out for an entry of this segment, whose copy is on its way to this place.
    pub(super) fn open<B: PositionBits>(&mut self, (position, segment): (Position<B>, u64), to: FlashPlace) {
        self.open.push_back(Open { position: position.words(), segment, to, stage: Stage::Awaited });
        *self.by_segment.entry(segment).or_default() += 1;
        self.next = (self.next + 1) % NUMBERS;
    }

    /// True if the copy with this number is on its way, of this entry. An earlier process may have left the
    /// number with another one.
    pub(super) fn is_open(&self, number: u64, position: u64) -> bool {
        let open = self.at(number).map(|at| &self.open[at]);
        open.is_some_and(|open| open.stage == Stage::Awaited && open.position == position)
    }

    /// The copy with this number is no longer on its way.
    pub(super) fn settle(&mut self, number: u64) {
        if let Some(at) = self.at(number) {
            self.change(at, Stage::Ended);
        }
        while self.open.front().is_some_and(|open| open.stage == Stage::Ended) {
            self.open.pop_front();
        }
    }

    /// True if the copy of an item that had to leave memory is on its way to this page.
    pub(super) fn awaits(&self, page: u32) -> bool {
        self.open.iter().any(|open| open.stage == Stage::Left && open.to.page == page)
    }

    /// An entry of this segment changed that was walked over.
    pub(super) fn settle_again(&mut self, position: u64, segment: u64) {
        self.again.push_back((position, segment));
        *self.by_segment.entry(segment).or_default() += 1;
    }

    /// The position of the next entry that is to be settled again.
    pub(super) fn next_again(&self) -> Option<u64> {
        self.again.front().map(|(position, _)| *position)
    }

    /// The next entry that is to be settled again is settled.
    pub(super) fn end_again(&mut self) {
        if let Some((_, segment)) = self.again.pop_front() {
            self.count_out(segment);
        }
    }

    /// Gives up all that keeps a segment from being settled: the positions, with the numbers and places of copies.
    pub(super) fn give_up(&mut self, segment: u64) -> Vec<(u64, Option<(u64, FlashPlace)>)> {
        let (own, others) = self.again.iter().partition(|(_, other)| *other == segment);
        self.again = others;
        let own: VecDeque<(u64, u64)> = own;
        own.iter().for_each(|(_, segment)| self.count_out(*segment));
        let mut given_up: Vec<_> = own.into_iter().map(|(position, _)| (position, None)).collect();
        for at in 0..self.open.len() {
            let Open { position, segment: own, to, stage } = self.open[at];
            if own == segment && stage == Stage::Awaited {
                let back = (self.open.len() - at) as u64;
                given_up.push((position, Some(((self.next + NUMBERS - back) % NUMBERS, to))));
                self.change(at, Stage::Left);
            }
        }
        given_up
    }

    fn change(&mut self, at: usize, stage: Stage) {
        let open = &mut self.open[at];
        let segment = open.segment;
        if std::mem::replace(&mut open.stage, stage) == Stage::Awaited {
            self.count_out(segment);
        }
    }

    fn count_out(&mut self, segment: u64) {
        if let Some(count) = self.by_segment.get_mut(&segment) {
            *count -= 1;
            if *count == 0 {
                self.by_segment.remove(&segment);
            }
        }
    }

    /// Where the copy with this number is in the queue.
    fn at(&self, number: u64) -> Option<usize> {
        let back = ((self.next + NUMBERS - number) % NUMBERS) as usize;
        self.open.len().checked_sub(back).filter(|_| back > 0)
    }
}

/// Tombstones that are due.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tombstones {
    /// The oldest first.
    pub list: Vec<Tombstone>,
    /// Pages with dead records for which there was no room in the queue. Their segments must be given up, and
    /// [`crate::Engine::forget_pages`] be called for them. Only in a table that may lose items.
    pub areas: Vec<Range<u32>>,
}

#[derive(Debug, Default)]
pub(super) struct Queue {
    waiting: VecDeque<Tombstone>,
    areas: BTreeSet<u32>,
}

impl Queue {
    pub(super) fn len(&self) -> usize {
        self.waiting.len()
    }

    pub(super) fn push(&mut self, tombstone: Tombstone) {
        self.waiting.push_back(tombstone);
    }

    /// Gives up the area of a page instead.
    pub(super) fn give_up(&mut self, page: u32) {
        self.areas.insert(page / AREA_PAGES);
    }

    pub(super) fn take(&mut self, max: usize) -> Tombstones {
        let list = self.waiting.drain(..max.min(self.waiting.len())).collect();
        let area = |number: u32| number * AREA_PAGES..(number + 1) * AREA_PAGES;
        Tombstones { list, areas: std::mem::take(&mut self.areas).into_iter().map(area).collect() }
    }
}
