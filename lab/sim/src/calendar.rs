//! The calendar of events.

use std::{cmp::Reverse, collections::BinaryHeap};

/// A point in simulated time, or a span of it. The simulation defines the length of a tick.
pub type Ticks = u64;

/// Events by time; those at the same time in the order in which they were scheduled.
#[derive(Clone, Debug)]
pub struct Calendar<E> {
    now: Ticks,
    scheduled: u64,
    events: BinaryHeap<Reverse<Entry<E>>>,
}

#[derive(Clone, Copy, Debug)]
struct Entry<E> {
    at: Ticks,
    number: u64,
    event: E,
}

impl<E> Calendar<E> {
    /// An empty calendar at time zero.
    pub fn new() -> Self {
        Self { now: 0, scheduled: 0, events: BinaryHeap::new() }
    }

    /// The time of the latest event that was taken.
    #[inline]
    pub fn now(&self) -> Ticks {
        self.now
    }

    /// Schedules `event` after `delay`.
    #[inline]
    pub fn after(&mut self, delay: Ticks, event: E) {
        self.at(self.now.saturating_add(delay), event);
    }

    /// Schedules `event` at `time`, or now if that has passed.
    #[inline]
    pub fn at(&mut self, time: Ticks, event: E) {
        let entry = Entry { at: time.max(self.now), number: self.scheduled, event };
        self.scheduled += 1;
        self.events.push(Reverse(entry));
    }

    /// Advances to the next event, if there is one.
    #[inline]
    pub fn take_next(&mut self) -> Option<E> {
        let Reverse(entry) = self.events.pop()?;
        self.now = entry.at;
        Some(entry.event)
    }

    /// When the next event is, if there is one.
    #[inline]
    pub fn next_at(&self) -> Option<Ticks> {
        self.events.peek().map(|Reverse(entry)| entry.at)
    }

    /// Advances the time without an event, not beyond the next one.
    #[inline]
    pub fn advance_to(&mut self, time: Ticks) {
        debug_assert!(time >= self.now && self.next_at().is_none_or(|next| time <= next));
        self.now = time;
    }
}

impl<E> Default for Calendar<E> {
    fn default() -> Self {
        Self::new()
    }
}

impl<E> Entry<E> {
    fn key(&self) -> (Ticks, u64) {
        (self.at, self.number)
    }
}

impl<E> PartialEq for Entry<E> {
    fn eq(&self, other: &Self) -> bool {
        self.key() == other.key()
    }
}

impl<E> Eq for Entry<E> {}

impl<E> PartialOrd for Entry<E> {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl<E> Ord for Entry<E> {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.key().cmp(&other.key())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_come_by_time_then_in_order() {
        let mut calendar = Calendar::new();
        for (time, event) in [(5, 'c'), (1, 'a'), (5, 'd'), (2, 'b')] {
            calendar.at(time, event);
        }
        let mut had = Vec::new();
        while let Some(event) = calendar.take_next() {
            had.push((calendar.now(), event));
            if event == 'c' {
                calendar.after(0, 'e');
                calendar.at(1, 'f');
            }
        }
        assert_eq!(had, [(1, 'a'), (2, 'b'), (5, 'c'), (5, 'd'), (5, 'e'), (5, 'f')]);
    }
}
