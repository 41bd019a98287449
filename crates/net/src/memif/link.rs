//! The queues to the process at the other end, while there is one.

use std::sync::{
    Mutex, MutexGuard, PoisonError, TryLockError,
    atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed},
};

use super::ring::{Incoming, Outgoing};

/// What two processes have agreed on: a queue for each ring, by number.
#[derive(Debug, Default)]
pub(super) struct Queues {
    pub(super) incoming: Vec<Option<Incoming>>,
    pub(super) outgoing: Vec<Option<Outgoing>>,
}

/// The queues of all ports. A burst holds the lock of its queue, so that memory is there until it ends.
#[derive(Debug)]
pub(super) struct Link {
    incoming: Box<[Mutex<Option<Incoming>>]>,
    outgoing: Box<[Mutex<Option<Outgoing>>]>,
    /// How many of both the two processes have agreed on; the other one may have fewer than this.
    counts: [AtomicUsize; 2],
    /// Bytes that are shared; 0 while there is no other process.
    memory_bytes: AtomicU64,
}

impl Link {
    pub(super) fn new(queues: usize) -> Self {
        Self {
            incoming: (0..queues).map(|_| Mutex::default()).collect(),
            outgoing: (0..queues).map(|_| Mutex::default()).collect(),
            counts: [AtomicUsize::new(1), AtomicUsize::new(1)],
            memory_bytes: AtomicU64::new(0),
        }
    }

    /// Queues to receive from, and to send by: at least one.
    #[inline]
    pub(super) fn counts(&self) -> [usize; 2] {
        [self.counts[0].load(Relaxed), self.counts[1].load(Relaxed)]
    }

    pub(super) fn queues(&self) -> usize {
        self.incoming.len()
    }

    pub(super) fn memory_bytes(&self) -> u64 {
        self.memory_bytes.load(Relaxed)
    }

    /// Lets ports use these queues.
    pub(super) fn begin(&self, queues: Queues, memory_bytes: u64) {
        let Queues { incoming, outgoing } = &queues;
        let found = [incoming.iter().flatten().count(), outgoing.iter().flatten().count()];
        self.counts.iter().zip(found).for_each(|(count, found)| count.store(found.max(1), Relaxed));
        for (place, queue) in self.incoming.iter().zip(queues.incoming) {
            *lock(place) = queue;
        }
        for (place, queue) in self.outgoing.iter().zip(queues.outgoing) {
            *lock(place) = queue;
        }
        self.memory_bytes.store(memory_bytes, Relaxed);
    }

    /// Gives the queues up, once bursts under way have ended.
    pub(super) fn end(&self) {
        self.memory_bytes.store(0, Relaxed);
        self.incoming.iter().for_each(|place| *lock(place) = None);
        self.outgoing.iter().for_each(|place| *lock(place) = None);
    }

    /// A queue to receive from, unless another thread does.
    #[inline]
    pub(super) fn incoming(&self, number: usize) -> Option<MutexGuard<'_, Option<Incoming>>> {
        match self.incoming.get(number)?.try_lock() {
            Ok(queue) => Some(queue),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// A queue to send by.
    #[inline]
    pub(super) fn outgoing(&self, number: usize) -> MutexGuard<'_, Option<Outgoing>> {
        lock(&self.outgoing[number])
    }
}

fn lock<T>(place: &Mutex<T>) -> MutexGuard<'_, T> {
    place.lock().unwrap_or_else(PoisonError::into_inner)
}
