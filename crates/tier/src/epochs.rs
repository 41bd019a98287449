//! Epochs: a segment is used again only when no reader can still see a slot that named it.

use parking_lot::Mutex;
use std::{
    collections::VecDeque,
    sync::{
        Arc, Weak,
        atomic::{
            AtomicU64,
            Ordering::{Acquire, Release, SeqCst},
            fence,
        },
    },
};

/// No look-up is under way.
const IDLE: u64 = u64::MAX;

/// The log's epoch, and the oldest of each reader.
#[derive(Debug, Default)]
pub(crate) struct Epochs {
    now: AtomicU64,
    readers: Mutex<Vec<Weak<AtomicU64>>>,
}

impl Epochs {
    /// The place of a new reader.
    pub(crate) fn seat(self: &Arc<Self>) -> Seat {
        let at = Arc::new(AtomicU64::new(IDLE));
        let mut readers = self.readers.lock();
        readers.retain(|reader| reader.strong_count() > 0);
        readers.push(Arc::downgrade(&at));
        Seat { epochs: Arc::clone(self), at, held: VecDeque::new() }
    }

    /// The log is in this epoch: slots that it emptied before are no longer in the index.
    pub(crate) fn publish(&self, epoch: u64) {
        // Release: after the changes of the index.
        self.now.store(epoch, Release);
    }

    /// Look-ups of earlier epochs have ended.
    pub(crate) fn passed(&self) -> u64 {
        // A reader that this scan takes for idle has yet to look, and sees the index as it is now.
        fence(SeqCst);
        let readers = self.readers.lock();
        let seats = readers.iter().filter_map(Weak::upgrade);
        seats.map(|seat| seat.load(Acquire)).min().unwrap_or(IDLE)
    }
}

/// One reader's look-ups under way.
#[derive(Debug)]
pub(crate) struct Seat {
    epochs: Arc<Epochs>,
    at: Arc<AtomicU64>,
    /// Epochs with the number of their look-ups, the oldest first.
    held: VecDeque<(u64, usize)>,
}

impl Seat {
    /// Begins a look-up; its epoch, to be left when its reads have ended.
    pub(crate) fn enter(&mut self) -> u64 {
        let epoch = self.epochs.now.load(Acquire);
        if self.held.is_empty() {
            self.at.store(epoch, SeqCst);
            // Before the look-up: pairs with the fence of `passed`.
            fence(SeqCst);
        }
        match self.held.back_mut() {
            Some((last, count)) if *last == epoch => *count += 1,
            _ => self.held.push_back((epoch, 1)),
        }
        epoch
    }

    /// Ends a look-up of this epoch.
    pub(crate) fn leave(&mut self, epoch: u64) {
        if let Some((_, count)) = self.held.iter_mut().find(|(held, _)| *held == epoch) {
            *count -= 1;
        }
        while self.held.front().is_some_and(|(_, count)| *count == 0) {
            self.held.pop_front();
        }
        let oldest = self.held.front().map_or(IDLE, |(epoch, _)| *epoch);
        // Release: after the reads.
        self.at.store(oldest, Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_look_up_of_any_reader_counts() {
        let epochs = Arc::new(Epochs::default());
        let (mut first, mut second) = (epochs.seat(), epochs.seat());
        assert_eq!(epochs.passed(), IDLE);
        epochs.publish(5);
        let old = first.enter();
        epochs.publish(7);
        let new = second.enter();
        assert_eq!((old, new, first.enter()), (5, 7, 7));
        assert_eq!(epochs.passed(), 5);
        first.leave(old);
        assert_eq!(epochs.passed(), 7);
        first.leave(7);
        drop(second);
        assert_eq!(epochs.passed(), IDLE, "a reader that is gone reads no more");
    }
}
