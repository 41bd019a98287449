//! A flag that shows wakers whether a thread sleeps.

use crate::facade::{AtomicU32, Ordering, fence};

/// Set while a thread sleeps or is about to, so that waking costs something only then.
///
/// The sleeper calls [`SleepFlag::prepare`], checks once more for work, and sleeps only if there is
/// none; then it calls [`SleepFlag::awake`]. A thread that has added work calls [`SleepFlag::rouse`],
/// and wakes the sleeper if that returns true.
#[derive(Debug, Default)]
pub struct SleepFlag {
    sleeping: AtomicU32,
}

impl SleepFlag {
    /// Of a thread that is awake.
    pub fn new() -> Self {
        Self::default()
    }

    /// Announces that the thread is about to sleep.
    pub fn prepare(&self) {
        self.sleeping.store(1, Ordering::Relaxed);
        // With the fence in `rouse`: either the waker sees `sleeping`, or the sleeper, which checks for work
        // after this fence, sees the work that the waker added before its own fence.
        fence(Ordering::SeqCst);
    }

    /// Announces that the thread is awake.
    pub fn awake(&self) {
        self.sleeping.store(0, Ordering::Relaxed);
    }

    /// Clears the flag; returns true if it was set, so that exactly one caller wakes the thread.
    pub fn rouse(&self) -> bool {
        fence(Ordering::SeqCst);
        self.is_set() && self.sleeping.swap(0, Ordering::Relaxed) != 0
    }

    /// True if the thread sleeps, or did a moment ago.
    pub fn is_set(&self) -> bool {
        self.sleeping.load(Ordering::Relaxed) != 0
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn one_waker_alone_is_told_of_a_sleeper() {
        let flag = SleepFlag::new();
        assert!(!flag.rouse());
        flag.prepare();
        assert!(flag.is_set() && flag.rouse() && !flag.rouse());
        flag.prepare();
        flag.awake();
        assert!(!flag.is_set() && !flag.rouse());
    }
}
