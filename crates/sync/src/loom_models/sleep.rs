//! A worker that goes to sleep while others bring it work.

use super::{beside, explore};
use crate::{Ring, SleepFlag};
use loom::{
    sync::{
        Arc,
        atomic::{AtomicU64, AtomicUsize, Ordering, fence},
    },
    thread,
};

/// The flag that a sleeper and its wakers share beside the work.
trait Flag: Send + Sync + 'static {
    fn new() -> Self;
    fn prepare(&self);
    fn rouse(&self) -> bool;
}

impl Flag for SleepFlag {
    fn new() -> Self {
        Self::new()
    }

    fn prepare(&self) {
        self.prepare();
    }

    fn rouse(&self) -> bool {
        self.rouse()
    }
}

/// A flag whose sleeper, or whose wakers, do not fence.
struct Fenceless<const SLEEPER_FENCES: bool>(AtomicUsize);

impl<const SLEEPER_FENCES: bool> Flag for Fenceless<SLEEPER_FENCES> {
    fn new() -> Self {
        Self(AtomicUsize::new(0))
    }

    fn prepare(&self) {
        self.0.store(1, Ordering::Relaxed);
        if SLEEPER_FENCES {
            fence(Ordering::SeqCst);
        }
    }

    fn rouse(&self) -> bool {
        if !SLEEPER_FENCES {
            fence(Ordering::SeqCst);
        }
        self.0.load(Ordering::Relaxed) != 0 && self.0.swap(0, Ordering::Relaxed) != 0
    }
}

/// A worker with a ring of work and a descriptor, which is readable once it was written to.
struct Sleeper<F> {
    flag: F,
    ring: Ring<u64>,
    readable: AtomicU64,
}

impl<F: Flag> Sleeper<F> {
    fn new() -> Arc<Self> {
        Arc::new(Self { flag: F::new(), ring: Ring::new(2), readable: AtomicU64::new(0) })
    }

    /// Brings work, and wakes the worker if it sleeps.
    fn bring(sleeper: &Arc<Self>, value: u64) -> thread::JoinHandle<()> {
        beside(sleeper, move |sleeper| {
            sleeper.ring.push(value).unwrap();
            if sleeper.flag.rouse() {
                sleeper.readable.store(1, Ordering::Relaxed);
            }
        })
    }

    /// True if the worker sleeps: it checks for work after it has announced its sleep.
    fn goes_to_sleep(&self) -> bool {
        self.flag.prepare();
        self.ring.is_empty()
    }

    /// As [`Self::goes_to_sleep`], but checks for work first.
    fn goes_to_sleep_after_a_look(&self) -> bool {
        let is_empty = self.ring.is_empty();
        self.flag.prepare();
        is_empty
    }

    /// All work was brought: a worker that waits must have been woken.
    fn check(&self, sleeps: bool) {
        let is_readable = self.readable.load(Ordering::Relaxed) == 1;
        assert!(!sleeps || self.ring.is_empty() || is_readable, "asleep beside its work");
    }
}

/// One goes to sleep while others bring it work.
fn sleeper_beside<F: Flag>(bringers: u64, goes_to_sleep: fn(&Sleeper<F>) -> bool) {
    explore(move || {
        let sleeper = Sleeper::<F>::new();
        let bringers: Vec<_> = (0..bringers).map(|value| Sleeper::bring(&sleeper, value)).collect();
        let sleeps = goes_to_sleep(&sleeper);
        bringers.into_iter().for_each(|bringer| bringer.join().unwrap());
        sleeper.check(sleeps);
    });
}

#[test]
fn loom_sleepers_are_woken() {
    sleeper_beside::<SleepFlag>(1, Sleeper::goes_to_sleep);
}

#[test]
fn loom_sleepers_are_woken_by_one_of_two() {
    sleeper_beside::<SleepFlag>(2, Sleeper::goes_to_sleep);
}

/// The first sleep ends by itself: a waker that saw its flag wakes the second sleep, or none.
#[test]
fn loom_sleepers_are_woken_from_a_second_sleep() {
    explore(|| {
        let sleeper = Sleeper::<SleepFlag>::new();
        let bringer = Sleeper::bring(&sleeper, 1);
        let mut sleeps = sleeper.goes_to_sleep();
        if sleeps {
            sleeper.flag.awake();
            sleeps = sleeper.ring.pop().is_none() && sleeper.goes_to_sleep();
        }
        bringer.join().unwrap();
        sleeper.check(sleeps);
    });
}

#[test]
#[should_panic(expected = "asleep beside its work")]
fn loom_control_sleepers_look_before_they_say_so() {
    sleeper_beside::<SleepFlag>(1, Sleeper::goes_to_sleep_after_a_look);
}

#[test]
#[should_panic(expected = "asleep beside its work")]
fn loom_control_sleepers_do_not_fence() {
    sleeper_beside::<Fenceless<false>>(1, Sleeper::goes_to_sleep);
}

#[test]
#[should_panic(expected = "asleep beside its work")]
fn loom_control_wakers_do_not_fence() {
    sleeper_beside::<Fenceless<true>>(1, Sleeper::goes_to_sleep);
}
