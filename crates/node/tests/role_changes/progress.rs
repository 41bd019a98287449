//! The common progress of all clients of a run, for those that wait for it.

use parking_lot::{Condvar, Mutex};

use crate::items::Sizes;

/// Steps of all clients until the tide changes.
const TIDE_STEPS: u64 = 200;

#[derive(Default)]
struct Counts {
    steps: u64,
    taking_part: usize,
    waiting: usize,
}

/// Counts the steps of all clients.
#[derive(Default)]
pub(crate) struct Progress {
    counts: Mutex<Counts>,
    changed: Condvar,
}

/// Counts a client as taking part until it is dropped.
pub(crate) struct TakesPart<'a>(&'a Progress);

impl Drop for TakesPart<'_> {
    fn drop(&mut self) {
        self.0.change(|counts| counts.taking_part -= 1);
    }
}

impl Progress {
    /// Counts a client that begins.
    pub(crate) fn take_part(&self) -> TakesPart<'_> {
        self.change(|counts| counts.taking_part += 1);
        TakesPart(self)
    }

    /// Counts a reply that a client received.
    pub(crate) fn step(&self) {
        self.change(|counts| counts.steps += 1);
    }

    /// The sizes that most clients draw now, so that there is a reason to change roles.
    pub(crate) fn tide(&self) -> Sizes {
        let steps = self.counts.lock().steps;
        [Sizes::Small, Sizes::Mixed, Sizes::Large][(steps / TIDE_STEPS % 3) as usize]
    }

    /// Waits for `steps` steps of other clients, or until all of them wait too.
    pub(crate) fn await_others(&self, steps: u64) {
        let mut counts = self.counts.lock();
        let end = counts.steps + steps;
        counts.waiting += 1;
        self.changed.notify_all();
        while counts.steps < end && counts.waiting < counts.taking_part {
            self.changed.wait(&mut counts);
        }
        counts.waiting -= 1;
    }

    fn change(&self, change: impl FnOnce(&mut Counts)) {
        change(&mut self.counts.lock());
        self.changed.notify_all();
    }
}
