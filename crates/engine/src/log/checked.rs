//! A log checked against a queue of its expected entries, each with a distinct payload.

use super::*;
use crate::position::Wide;
use minos_region::Backing;
use std::collections::VecDeque;

/// The contents of a free segment.
pub(super) const POISON: u64 = 0xdead_dead_dead_dead;

/// Segments cut from a plain region, behind the log's own words.
pub(super) struct Pool<'a> {
    pub(super) region: &'a Region,
    pub(super) words: u64,
    pub(super) free: Vec<Offset>,
}

impl<'a> Pool<'a> {
    pub(super) fn new(region: &'a Region, words: u64, count: u64) -> Self {
        let first = Offset::from_words(Log::<Wide>::words(64).next_multiple_of(8));
        let free: Vec<_> = (0..count).map(|at| first.plus(at * words)).collect();
        free.iter().for_each(|segment| poison(region, *segment, words));
        Self { region, words, free }
    }
}

fn poison(region: &Region, segment: Offset, words: u64) {
    region.words(segment, words as usize).iter().for_each(|word| word.store(POISON, Relaxed));
}

impl Segments for Pool<'_> {
    fn take(&mut self) -> Option<Offset> {
        self.free.pop()
    }

    fn give_back(&mut self, segment: Offset) {
        assert!(!self.free.contains(&segment), "given back twice");
        poison(self.region, segment, self.words);
        self.free.push(segment);
    }

    fn words(&self) -> u64 {
        self.words
    }

    fn is_scarce(&self) -> bool {
        self.free.len() < 2
    }
}

pub(super) fn region() -> Region {
    Region::map(1 << 20, &Backing::Private).unwrap()
}

/// The words that belong to an entry with this number.
pub(super) fn fill(region: &Region, payload: Offset, words: u64, number: u64) {
    for (at, word) in region.words(payload, words as usize).iter().enumerate() {
        word.store(pattern(number, at), Relaxed);
    }
}

pub(super) fn pattern(number: u64, at: usize) -> u64 {
    (number << 8 | at as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

pub(super) fn holds(region: &Region, payload: Offset, words: u64, number: u64) -> bool {
    let words = region.words(payload, words as usize);
    words.iter().enumerate().all(|(at, word)| word.load(Relaxed) == pattern(number, at))
}

/// Words of entries in an order that repeats late.
pub(super) fn sizes() -> impl Iterator<Item = u64> {
    (0u64..).map(|at| at.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 61)
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Known<B: PositionBits> {
    pub(super) number: u64,
    pub(super) position: Position<B>,
    pub(super) payload: Offset,
    pub(super) words: u64,
    pub(super) is_dead: bool,
    pub(super) owns_extent: bool,
}

/// A log, its segments, and its expected entries.
pub(super) struct Checked<'a, B: PositionBits> {
    pub(super) region: &'a Region,
    pub(super) log: Log<B>,
    pub(super) pool: Pool<'a>,
    /// Everything that was not reported as evicted.
    pub(super) queue: VecDeque<Known<B>>,
    /// The entries reported last.
    pub(super) gone: VecDeque<Known<B>>,
    pub(super) appended: u64,
}

impl<'a, B: PositionBits> Checked<'a, B> {
    pub(super) fn new(
        region: &'a Region,
        segment_words: u64,
        table_len: u64,
        segments: u64,
        start: u64,
    ) -> Self {
        let log = Log::<B>::create(region, Offset::from_words(0), segment_words, table_len);
        let start = Position::from_words(start).minus(log.in_segment(Position::from_words(start)));
        for at in [HEAD, FIRST, END, TAIL, WALKED, SCANNED] {
            log.set(region, at, start);
        }
        let pool = Pool::new(region, segment_words, segments);
        Self { region, log, pool, queue: VecDeque::new(), gone: VecDeque::new(), appended: 0 }
    }

    /// Checks that a reported entry is the oldest unreported one, with its bytes unchanged.
    pub(super) fn reported(
        region: &Region,
        queue: &mut VecDeque<Known<B>>,
        gone: &mut VecDeque<Known<B>>,
        entry: LogEntry<B>,
    ) {
        let known = queue.pop_front().expect("reported too much");
        let flags = (known.is_dead, known.owns_extent);
        assert_eq!(
            (entry.position, entry.payload, entry.words),
            (known.position, known.payload, known.words)
        );
        assert_eq!((entry.is_dead, entry.owns_extent), flags, "{known:?}");
        assert!(holds(region, known.payload, known.words, known.number), "used again before: {known:?}");
        gone.push_back(known);
        if gone.len() > 100 {
            gone.pop_front();
        }
    }

    pub(super) fn append(&mut self, words: u64, owns_extent: bool) -> bool {
        let Self { region, log, pool, queue, gone, .. } = self;
        let report = &mut |entry| Self::reported(region, queue, gone, entry);
        let Some((position, payload)) = log.append(region, pool, words, report) else { return false };
        if owns_extent {
            log.own_extent(region, payload);
        }
        let (number, words) = (self.appended, words.max(1));
        fill(region, payload, words, number);
        queue.push_back(Known { number, position, payload, words, is_dead: false, owns_extent });
        self.appended += 1;
        true
    }

    /// Appends entries of many sizes, for which there is room.
    pub(super) fn append_many(&mut self, count: usize) {
        sizes().take(count).for_each(|words| assert!(self.append(words, false)));
    }

    pub(super) fn kill(&mut self, choice: usize) {
        let len = self.queue.len();
        if let Some(known) = self.queue.get_mut(choice % len.max(1)) {
            let was_there = self.log.locate(self.region, known.position).is_some();
            assert_eq!(self.log.kill(self.region, known.position), was_there);
            known.is_dead |= was_there;
        }
    }

    pub(super) fn release(&mut self) -> bool {
        let Self { region, log, pool, queue, gone, .. } = self;
        let before = log.segments(region);
        let report = &mut |entry| Self::reported(region, queue, gone, entry);
        let has_released = log.release_head(region, pool, report);
        assert_eq!(has_released, before > 1);
        assert_eq!(log.segments(region), before - u64::from(has_released));
        has_released
    }

    pub(super) fn live(&self) -> usize {
        self.queue.iter().filter(|known| self.log.locate(self.region, known.position).is_some()).count()
    }

    /// Checks that live entries are those appended last, at their old places, and that no others are found.
    pub(super) fn check(&self) {
        let (region, log) = (self.region, self.log);
        let evicted = self.queue.len() - self.live();
        for (at, known) in self.queue.iter().enumerate() {
            let expected = (at >= evicted).then_some(known.payload);
            assert_eq!(log.locate(region, known.position), expected, "not the oldest: {known:?}");
            assert!(holds(region, known.payload, known.words, known.number), "overwritten: {known:?}");
            assert_eq!(log.entry_words(region, known.payload), known.words);
        }
        for known in &self.gone {
            assert_eq!(log.locate(region, known.position), None, "{known:?}");
            assert!(!log.is_there(region, known.position) || is_left_out("version-check"));
            assert!(!log.kill(region, known.position));
        }
        let mut listed = Vec::new();
        assert!(log.live_entries(region, |entry| listed.push((entry.position, entry.is_dead))));
        let expected = self.queue.iter().skip(evicted).map(|known| (known.position, known.is_dead));
        assert!(listed.into_iter().eq(expected));
        let held: Vec<_> = log.segment_starts(region).collect();
        assert!(held.iter().all(|start| !self.pool.free.contains(start)), "held and free");
        let table_len = log.table_mask + 1;
        let reopened = Log::<B>::open(region, log.start, log.segment_words(), table_len);
        assert!(reopened.is_some(), "out of order");
    }
}
