//! Wakes one thread that parks while nothing is asked of it.

use crate::{
    SleepFlag,
    facade::{AtomicU32, Ordering},
};
use std::{
    sync::{Mutex, PoisonError},
    thread::{self, Thread},
    time::Duration,
};

/// Wakes one thread, at the price of a system call only when that thread sleeps.
///
/// The sleeper calls [`Bell::take`], does all work that it finds, and calls [`Bell::rest`]. A thread that adds work calls
/// [`Bell::ring`] afterwards, or while it holds the lock under which the sleeper looks.
#[derive(Debug, Default)]
pub struct Bell {
    has_rung: AtomicU32,
    flag: SleepFlag,
    /// The thread that rested last.
    sleeper: Mutex<Option<Thread>>,
}

impl Bell {
    /// True if it has rung since the last call. What was added before is seen from now on.
    pub fn take(&self) -> bool {
        self.has_rung.load(Ordering::Relaxed) != 0 && self.has_rung.swap(0, Ordering::AcqRel) != 0
    }

    /// Sleeps until it rings, or the time is over; not at all if it has rung since [`Bell::take`].
    pub fn rest(&self, timeout: Duration) {
        *self.sleeper.lock().unwrap_or_else(PoisonError::into_inner) = Some(thread::current());
        self.flag.prepare();
        if self.has_rung.load(Ordering::Relaxed) == 0 {
            thread::park_timeout(timeout);
        }
        self.flag.awake();
    }

    /// Ends the sleep, or the next one.
    pub fn ring(&self) {
        // Release: what was added before belongs to it. The fence of `rouse` orders it before the look at the sleeper.
        self.has_rung.store(1, Ordering::Release);
        if self.flag.rouse()
            && let Some(sleeper) = &*self.sleeper.lock().unwrap_or_else(PoisonError::into_inner)
        {
            sleeper.unpark();
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::{sync::Arc, time::Instant};

    /// Longer than the test may take.
    const LONG: Duration = Duration::from_secs(60);

    #[test]
    fn no_sleep_outlasts_a_ring() {
        let (there, back) = (Arc::new(Bell::default()), Arc::new(Bell::default()));
        let begun = Instant::now();
        let (own, others) = (Arc::clone(&there), Arc::clone(&back));
        let answering = thread::spawn(move || {
            for _ in 0..200 {
                while !own.take() {
                    own.rest(LONG);
                }
                others.ring();
            }
        });
        for _ in 0..200 {
            there.ring();
            while !back.take() {
                back.rest(LONG);
            }
        }
        answering.join().unwrap();
        assert!(begun.elapsed() < LONG, "a ring was lost");
    }

    #[test]
    fn a_ring_before_the_sleep_ends_it() {
        let bell = Bell::default();
        bell.ring();
        bell.rest(LONG);
        assert!(bell.take() && !bell.take());
    }
}
