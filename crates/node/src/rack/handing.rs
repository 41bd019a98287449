//! Changes on their way from workers to the driver, for the followers of this node's micro-shards.

use std::{
    fmt::Display,
    sync::{
        OnceLock,
        atomic::{AtomicU64, Ordering},
    },
};

use minos_base::KeyHash;
use minos_unit::Behind;
use parking_lot::Mutex;

use super::Right;

/// Most changes that wait for the driver. With more, followers have to begin anew.
const CHANGES_MAX: usize = 1 << 20;

/// What the reply to changes waits for.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Owed {
    /// The hand-over that followers must have, whichever worker has made it.
    pub(crate) handed: u64,
    /// The right under which the first change was made. The node must have had it all the time.
    pub(crate) right: Option<Right>,
}

/// The changes of all workers, and how many of them the followers have.
#[derive(Default)]
pub(crate) struct Handing {
    queue: Mutex<Queue>,
    /// The number of the last hand-over that all followers have which are waited for.
    confirmed: AtomicU64,
    /// Called when changes begin to wait.
    listener: OnceLock<Box<dyn Fn() + Send + Sync>>,
    /// How far each follower is behind.
    behind: Mutex<Vec<Behind>>,
}

/// Changes that wait for the driver.
#[derive(Default)]
pub(crate) struct Queue {
    /// The last hand-over.
    pub(crate) number: u64,
    /// Micro-shards and keys.
    pub(crate) changes: Vec<(u32, KeyHash)>,
    /// True if there were too many.
    pub(crate) is_overrun: bool,
}

impl Handing {
    /// Sets who is called when changes begin to wait. There is one driver.
    pub(crate) fn listen(&self, listener: impl Fn() + Send + Sync + 'static) {
        drop(self.listener.set(Box::new(listener)));
    }

    /// Hands changes over; returns the number of the hand-over.
    pub(crate) fn hand(&self, changes: impl ExactSizeIterator<Item = (u32, KeyHash)>) -> u64 {
        let mut queue = self.queue.lock();
        let is_first = queue.changes.is_empty() && !queue.is_overrun;
        queue.number += 1;
        queue.is_overrun |= queue.changes.len() + changes.len() > CHANGES_MAX;
        if !queue.is_overrun {
            queue.changes.extend(changes);
        }
        // With the lock: changes after these find the queue not empty, and their followers must hear of both in time.
        if let Some(listener) = self.listener.get().filter(|_| is_first) {
            listener();
        }
        queue.number
    }

    /// Takes what waits.
    pub(crate) fn take(&self) -> Queue {
        let mut queue = self.queue.lock();
        let number = queue.number;
        std::mem::replace(&mut *queue, Queue { number, ..Queue::default() })
    }

    /// Confirms all changes up to a hand-over.
    pub(crate) fn confirm(&self, number: u64) {
        self.confirmed.store(number, Ordering::SeqCst);
    }

    /// True if the followers that are waited for have all changes up to a hand-over.
    #[inline]
    pub(crate) fn is_confirmed(&self, number: u64) -> bool {
        self.confirmed.load(Ordering::SeqCst) >= number
    }

    /// Shows how far followers are behind.
    pub(crate) fn show(&self, behind: Vec<Behind>) {
        *self.behind.lock() = behind;
    }

    /// Emits what `stats rack` shows of followers.
    pub(crate) fn emit(&self, now_us: u64, emit: &mut dyn FnMut(&str, &dyn Display)) {
        for behind in &*self.behind.lock() {
            let node = behind.node.0;
            let age_us = behind.since_us.map_or(0, |since_us| now_us.saturating_sub(since_us));
            emit(&format!("follower:{node}:follows"), &behind.micro_shards);
            emit(&format!("follower:{node}:behind_keys"), &behind.changes);
            emit(&format!("follower:{node}:behind_us"), &age_us);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, atomic::AtomicUsize};

    use super::*;

    #[test]
    fn changes_are_taken_once_and_the_first_wakes_the_driver() {
        let (handing, calls) = (Handing::default(), Arc::new(AtomicUsize::new(0)));
        let counted = Arc::clone(&calls);
        handing.listen(move || {
            counted.fetch_add(1, Ordering::Relaxed);
        });
        let change = |hash| (1, KeyHash(hash));
        assert_eq!(handing.hand([change(7)].into_iter()), 1);
        assert_eq!(handing.hand([change(7), change(8)].into_iter()), 2);
        assert_eq!(calls.load(Ordering::Relaxed), 1);
        let taken = handing.take();
        assert_eq!((taken.number, taken.changes.len(), taken.is_overrun), (2, 3, false));
        assert!(!handing.is_confirmed(1));
        handing.confirm(2);
        assert!(handing.is_confirmed(2) && !handing.is_confirmed(3));
        handing.hand(vec![change(9); CHANGES_MAX + 1].into_iter());
        assert_eq!(calls.load(Ordering::Relaxed), 2);
        let taken = handing.take();
        assert!(taken.is_overrun && taken.changes.is_empty() && taken.number == 3);
        handing.hand([change(7)].into_iter());
        assert!(calls.load(Ordering::Relaxed) == 3 && !handing.take().is_overrun);
    }
}
