//! The state of every segment.

use crate::{
    format::{Held, Journal, Layout, Life, PAGE_BYTES, RoughLength, Stream, Use, footer_block_bytes},
    switches::{Safeguard, is_on},
};
use std::collections::HashSet;

/// The state of a segment, in the order in which it passes through them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// Holds nothing, also after a crash, and no lane reads it.
    Free,
    /// Has a life that the durable journal does not know.
    Promised,
    /// May be opened.
    Reserved,
    /// Records are added.
    Open,
    /// Full; its records are not all durable, or its footers not yet written.
    Full,
    /// Only read.
    Sealed,
    /// Its records are dead or moved; the durable journal does not know.
    Emptied,
    /// Its life has ended durably; lanes may still read.
    Cooling,
    /// Never used again.
    Bad,
}

/// Number of segments in each use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Hold nothing.
    pub free: usize,
    /// Will be opened next.
    pub reserved: usize,
    /// Records are added.
    pub open: usize,
    /// Full, but not yet durable with their footers.
    pub closing: usize,
    /// Only read.
    pub sealed: usize,
    /// Hold nothing that counts, and are not yet free.
    pub ending: usize,
    /// Never used again: the device failed there.
    pub bad: usize,
}

/// Share of a segment that records fill, before any was filled.
const FULL_PERCENT: u64 = 96;

const STATES: usize = State::Bad as usize + 1;

/// One segment.
#[derive(Clone, Copy, Debug)]
pub(super) struct Segment {
    pub(super) state: State,
    pub(super) life: Life,
    /// The life that follows, if a journal that ends this one promises it.
    next_life: Life,
    pub(super) stream: Stream,
    /// Batches that are not durable.
    pub(super) unsettled: u32,
    /// Bytes of live records by their rough lengths.
    pub(super) live_bytes: u64,
    /// Bytes of the footers at its end; `None`: its pages must be scanned.
    pub(super) footers: Option<u32>,
    /// A write failed here, or a read: it ends before others do.
    pub(super) is_failing: bool,
    /// The place is to blame: it is not used again.
    is_bad: bool,
    /// Something that it holds was written, or may have been.
    pub(super) has_records: bool,
    /// Its records move out, and the durable journal knows.
    pub(super) is_leaving: bool,
    /// Something in it does not verify: its live records are to move out.
    is_given_up: bool,
    /// The epoch in which it was emptied.
    emptied: u64,
    /// Bytes from its beginning that were handed out as pages, or all.
    pub(super) end: u64,
    /// Somebody copies what it holds: it is not used again.
    pub(super) is_held: bool,
}

impl Segment {
    fn new(state: State, life: Life) -> Self {
        let stream = Stream::New;
        Self {
            state,
            life,
            next_life: Life::NONE,
            stream,
            unsettled: 0,
            live_bytes: 0,
            footers: None,
            is_failing: false,
            is_bad: false,
            has_records: true,
            is_leaving: false,
            is_given_up: false,
            emptied: 0,
            end: u64::MAX,
            is_held: false,
        }
    }

    /// One that holds nothing yet.
    fn empty(state: State, life: Life) -> Self {
        Self { end: 0, has_records: false, ..Self::new(state, life) }
    }
}

/// All segments of a table.
#[derive(Debug)]
pub(super) struct Segments {
    pub(super) layout: Layout,
    pub(super) list: Vec<Segment>,
    pub(super) next_life: Life,
    pub(super) least_life: Life,
    /// Counts emptied segments, for the lanes.
    pub(super) epoch: u64,
    /// Lives whose records would come back after a crash.
    alive: HashSet<Life>,
    counts: [usize; STATES],
    /// Segments that would be free if nobody held them.
    pub(super) held_back: usize,
    /// Bytes of live records by their rough lengths.
    live_bytes: u64,
    /// Bytes of appended records, and the same by their rough lengths.
    exact: u64,
    rough: u64,
    /// Bytes of records in a full segment: the rest are footers, stamps, and lost ends of pages.
    pub(super) full_bytes: u64,
    has_failed: bool,
}

impl Segments {
    /// As the journal says; each live segment is sealed. `lengths` are the bytes of records and the same by their rough
    /// lengths.
    pub(super) fn of(layout: Layout, journal: &Journal, (exact, rough): (u64, u64)) -> Self {
        let segment = |used: &Use| match *used {
            Use::Free => Segment::new(State::Free, Life::NONE),
            Use::Live(life) | Use::Leaving(life) | Use::Failing(life) if life < journal.least_life => {
                Segment::new(State::Emptied, life)
            }
            Use::Live(life) => Segment::new(State::Sealed, life),
            Use::Leaving(life) => Segment { is_leaving: true, ..Segment::new(State::Sealed, life) },
            Use::Failing(life) => {
                Segment { is_failing: true, is_bad: true, ..Segment::new(State::Sealed, life) }
            }
            Use::Bad => Segment::new(State::Bad, Life::NONE),
        };
        let list: Vec<_> = journal.uses.iter().map(segment).collect();
        let alive = list.iter().map(|segment| segment.life).filter(|life| *life != Life::NONE).collect();
        let mut counts = [0; STATES];
        list.iter().for_each(|segment| counts[segment.state as usize] += 1);
        let (next_life, least_life) = (journal.next_life, journal.least_life);
        let full_bytes = u64::from(layout.segment_bytes()) / 100 * FULL_PERCENT;
        Self {
            layout,
            list,
            next_life,
            least_life,
            epoch: 1,
            alive,
            counts,
            held_back: 0,
            live_bytes: 0,
            exact,
            rough,
            full_bytes,
            has_failed: true,
        }
    }

    pub(super) fn get(&self, number: u32) -> &Segment {
        &self.list[number as usize]
    }

    pub(super) fn get_mut(&mut self, number: u32) -> &mut Segment {
        &mut self.list[number as usize]
    }

    pub(super) fn set_state(&mut self, number: u32, state: State) {
        let segment = &mut self.list[number as usize];
        self.counts[segment.state as usize] -= 1;
        self.counts[state as usize] += 1;
        segment.state = state;
    }

    /// The numbers of the segments in this state.
    pub(super) fn in_state(&self, state: State) -> impl Iterator<Item = u32> + use<> {
        let numbers = self.list.iter().enumerate().filter(|(_, segment)| segment.state == state);
        numbers.map(|(number, _)| number as u32).collect::<Vec<_>>().into_iter()
    }

    /// The journal's view.
    pub(super) fn uses(&self, leaving: Option<u32>) -> Vec<Use> {
        let used = |(number, segment): (usize, &Segment)| match segment.state {
            State::Free | State::Cooling | State::Emptied if segment.is_bad => Use::Bad,
            State::Cooling | State::Emptied if segment.next_life != Life::NONE => {
                Use::Live(segment.next_life)
            }
            State::Free | State::Cooling | State::Emptied => Use::Free,
            State::Bad => Use::Bad,
            _ if segment.is_bad => Use::Failing(segment.life),
            // Of what failed there may be two copies, as of what moves out.
            _ if segment.is_leaving || segment.is_failing || leaving == Some(number as u32) => {
                Use::Leaving(segment.life)
            }
            _ => Use::Live(segment.life),
        };
        self.list.iter().enumerate().map(used).collect()
    }

    /// What the journal promises that each holds: a sealed one all of it, once its footers are durable.
    pub(super) fn held(&self) -> Vec<Held> {
        let is_whole = |segment: &Segment| {
            segment.state == State::Sealed
                && segment.footers.is_some()
                && segment.unsettled == 0
                && !segment.is_failing
                && !segment.is_given_up
        };
        let held = |segment: &Segment| if is_whole(segment) { Held::Sealed } else { Held::Unknown };
        self.list.iter().map(held).collect()
    }

    /// The device failed in this segment.
    pub(super) fn fail(&mut self, number: u32) {
        self.get_mut(number).is_bad = true;
        self.end_early(number);
    }

    /// There was no room on the device for what this segment was to hold.
    pub(super) fn end_early(&mut self, number: u32) {
        self.get_mut(number).is_failing = true;
        self.has_failed = true;
    }

    /// Something in this segment does not verify.
    pub(super) fn give_up(&mut self, number: u32) {
        self.get_mut(number).is_given_up = true;
        self.has_failed = true;
    }

    /// Segments that end before any other does, also those that are not sealed yet.
    pub(super) fn first_to_end(&mut self) -> Vec<u32> {
        if !self.has_failed {
            return Vec::new();
        }
        let is_first = |segment: &Segment| segment.is_leaving || segment.is_failing || segment.is_given_up;
        let states = [State::Open, State::Full, State::Sealed].into_iter();
        let first: Vec<u32> = states.flat_map(|state| self.in_state(state)).collect();
        let first: Vec<u32> = first.into_iter().filter(|&number| is_first(self.get(number))).collect();
        self.has_failed = !first.is_empty();
        first
    }

    pub(super) fn count(&self, state: State) -> usize {
        self.counts[state as usize]
    }

    pub(super) fn usage(&self) -> Usage {
        Usage {
            free: self.count(State::Free),
            reserved: self.count(State::Promised) + self.count(State::Reserved),
            open: self.count(State::Open),
            closing: self.count(State::Full),
            sealed: self.count(State::Sealed),
            ending: self.ending(),
            bad: self.count(State::Bad),
        }
    }

    /// Segments that may be opened now or after a journal.
    pub(super) fn available(&self) -> usize {
        [State::Free, State::Promised, State::Reserved].into_iter().map(|state| self.count(state)).sum()
    }

    /// Segments that will be available when journal and lanes allow.
    pub(super) fn ending(&self) -> usize {
        self.count(State::Emptied) + self.count(State::Cooling)
    }

    /// Gives lives to free segments until `wanted` are promised or reserved. Returns true if any got one.
    pub(super) fn promise(&mut self, wanted: usize) -> bool {
        let missing = wanted.saturating_sub(self.count(State::Promised) + self.count(State::Reserved));
        let free: Vec<_> = self.in_state(State::Free).take(missing).collect();
        for &number in &free {
            let life = self.new_life();
            *self.get_mut(number) = Segment::empty(State::Free, life);
            self.set_state(number, State::Promised);
        }
        !free.is_empty()
    }

    /// As [`Segments::promise`], to segments that the next journal ends: it need not be followed by another.
    pub(super) fn promise_ended(&mut self, wanted: usize) {
        let is_next = |segment: &&Segment| segment.next_life != Life::NONE;
        let promised = self.list.iter().filter(is_next).count();
        let ready = self.count(State::Promised) + self.count(State::Reserved) + promised;
        for number in self.in_state(State::Emptied).take(wanted.saturating_sub(ready)) {
            let segment = *self.get(number);
            if segment.next_life == Life::NONE && !segment.is_bad && !segment.is_held {
                self.get_mut(number).next_life = self.new_life();
            }
        }
    }

    /// A life that no segment has had.
    fn new_life(&mut self) -> Life {
        let life = self.next_life;
        self.alive.insert(life);
        self.next_life.0 += 1;
        life
    }

    /// Opens the reserved segment with the lowest life.
    pub(super) fn open(&mut self, stream: Stream) -> Option<u32> {
        let number = self.in_state(State::Reserved).min_by_key(|&number| self.get(number).life)?;
        self.set_state(number, State::Open);
        self.get_mut(number).stream = stream;
        Some(number)
    }

    /// The journal that was made when `snapshot` held is durable.
    pub(super) fn journaled(&mut self, snapshot: &[Use]) {
        for (number, used) in snapshot.iter().enumerate() {
            let segment = self.list[number];
            if matches!(used, Use::Leaving(life) | Use::Failing(life) if *life == segment.life) {
                self.list[number].is_leaving = true;
            }
            let next = match (segment.state, used) {
                (State::Promised, Use::Live(life) | Use::Failing(life)) if *life == segment.life => {
                    State::Reserved
                }
                (State::Emptied, Use::Free) => State::Cooling,
                (State::Emptied, Use::Live(life)) if *life == segment.next_life => State::Cooling,
                (State::Emptied, Use::Bad) => State::Bad,
                _ => continue,
            };
            if next != State::Reserved {
                self.alive.remove(&segment.life);
            }
            self.set_state(number as u32, next);
        }
    }

    /// Takes back the lives that were promised to segments with the end of another.
    pub(super) fn take_back(&mut self) {
        for segment in self.list.iter_mut().filter(|segment| segment.next_life != Life::NONE) {
            self.alive.remove(&segment.next_life);
            segment.next_life = Life::NONE;
        }
    }

    /// The segment's records are dead or moved, and no slot names it.
    pub(super) fn empty(&mut self, number: u32) {
        self.set_state(number, State::Emptied);
        let epoch = self.epoch;
        let segment = self.get_mut(number);
        let live_bytes = std::mem::take(&mut segment.live_bytes);
        segment.emptied = epoch;
        self.live_bytes -= live_bytes;
        self.epoch += 1;
    }

    /// No lane reads what it looked up before `epoch`.
    pub(super) fn lanes_at(&mut self, epoch: u64) {
        self.held_back = 0;
        if self.count(State::Cooling) == 0 {
            return;
        }
        for number in self.in_state(State::Cooling) {
            let segment = *self.get(number);
            let is_held = segment.is_held && is_on(Safeguard::Held);
            let has_passed = segment.emptied < epoch || !is_on(Safeguard::Epoch);
            self.held_back += usize::from(is_held);
            if segment.unsettled == 0 && has_passed && !is_held {
                let life = segment.next_life;
                // A write may have failed since the journal was made that promises its next life.
                let state = match (life, segment.is_bad) {
                    (Life::NONE, _) => State::Free,
                    (_, false) => State::Reserved,
                    (_, true) => State::Bad,
                };
                *self.get_mut(number) = Segment::empty(State::Cooling, life);
                self.set_state(number, state);
            }
        }
    }

    /// The life of the segment with this page, if its records would come back after a crash.
    pub(super) fn life_of_page(&self, page: u32) -> Option<Life> {
        let life = self.get(self.segment_of_page(page)?).life;
        self.is_alive(life).then_some(life)
    }

    pub(super) fn segment_of_page(&self, page: u32) -> Option<u32> {
        let at = u64::from(page) * PAGE_BYTES as u64;
        self.layout.segment_of(at).map(|(segment, _)| segment)
    }

    /// True if records of this life would come back after a crash.
    pub(super) fn is_alive(&self, life: Life) -> bool {
        self.alive.contains(&life)
    }

    /// A record of `bytes` with this rough length was appended.
    pub(super) fn learn(&mut self, bytes: u64, length: RoughLength) {
        if self.rough >> 40 != 0 {
            (self.exact, self.rough) = (self.exact / 2, self.rough / 2);
        }
        self.exact += bytes;
        self.rough += length.bytes_typical();
    }

    /// A segment took records of so many bytes, and no more.
    pub(super) fn learn_full(&mut self, record_bytes: u64) {
        const WEIGHT: u64 = 8;
        self.full_bytes = (self.full_bytes * (WEIGHT - 1) + record_bytes) / WEIGHT;
    }

    /// A segment is full whose footers have so many bytes.
    pub(super) fn learn_footers(&mut self, entry_bytes: u32) {
        let left = u64::from(self.layout.segment_bytes()) - footer_block_bytes(entry_bytes);
        // Stamps and the ends of pages take the rest.
        self.learn_full(left / 100 * 99);
    }

    /// Bytes behind a sum of rough lengths, as records are nowadays.
    pub(super) fn exact(&self, rough_bytes: u64) -> u64 {
        if self.rough == 0 {
            return rough_bytes;
        }
        (u128::from(rough_bytes) * u128::from(self.exact) / u128::from(self.rough)) as u64
    }

    /// A record became live.
    pub(super) fn credit(&mut self, number: u32, length: RoughLength) {
        let bytes = length.bytes_typical();
        let segment = self.get_mut(number);
        segment.live_bytes += bytes;
        self.live_bytes += bytes;
    }

    /// A record died.
    pub(super) fn debit(&mut self, number: u32, length: RoughLength) {
        let segment = self.get_mut(number);
        let bytes = length.bytes_typical().min(segment.live_bytes);
        segment.live_bytes -= bytes;
        self.live_bytes -= bytes;
    }

    /// Bytes of all live records, about.
    pub(super) fn live_bytes(&self) -> u64 {
        self.exact(self.live_bytes)
    }
}
