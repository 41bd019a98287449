//! A session's record of its operations.

use minos_sched::WorkerId;

use super::terms::{ONCE_WINDOW, Outcome};

/// The last [`ONCE_WINDOW`] numbers up to the newest one. They may come in any order.
#[derive(Debug)]
pub(super) struct OnceWindow {
    /// One more than the newest number; zero before the first.
    next: u64,
    /// Number `n` is entry `n % ONCE_WINDOW` while it is in the window.
    entries: [Entry; ONCE_WINDOW as usize],
}

#[derive(Clone, Copy, Debug)]
enum Entry {
    Free,
    /// The worker that executes it.
    InProgress(WorkerId),
    Done(Outcome),
}

/// The state of a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Seen {
    /// It was new, and is in progress from now on.
    Fresh,
    /// This worker executes it.
    InProgress(WorkerId),
    Done(Outcome),
    /// It is behind the window.
    TooOld,
}

impl Default for OnceWindow {
    fn default() -> Self {
        Self { next: 0, entries: [Entry::Free; ONCE_WINDOW as usize] }
    }
}

impl OnceWindow {
    /// Begins a number, which is in progress at `worker` from now on if it was new. A number above the window
    /// moves the window; numbers that fall out of it, even in progress, are too old from then on.
    pub(super) fn begin(&mut self, once: u32, worker: WorkerId) -> Seen {
        let number = u64::from(once);
        if number >= self.next {
            self.move_to(number);
        }
        let Some(entry) = self.entry(once) else { return Seen::TooOld };
        match *entry {
            Entry::Free => {
                *entry = Entry::InProgress(worker);
                Seen::Fresh
            }
            Entry::InProgress(worker) => Seen::InProgress(worker),
            Entry::Done(outcome) => Seen::Done(outcome),
        }
    }

    /// Records an outcome, or that nothing was executed, unless the number has fallen out of the window.
    pub(super) fn end(&mut self, once: u32, outcome: Option<Outcome>) {
        if let Some(entry) = self.entry(once) {
            *entry = outcome.map_or(Entry::Free, Entry::Done);
        }
    }

    fn entry(&mut self, once: u32) -> Option<&mut Entry> {
        let is_inside = u64::from(once) + u64::from(ONCE_WINDOW) >= self.next;
        is_inside.then(|| &mut self.entries[(once % ONCE_WINDOW) as usize])
    }

    /// Makes `number` the newest one; the numbers between are new.
    fn move_to(&mut self, number: u64) {
        let oldest_new = self.next.max((number + 1).saturating_sub(u64::from(ONCE_WINDOW)));
        for new in oldest_new..=number {
            self.entries[(new % u64::from(ONCE_WINDOW)) as usize] = Entry::Free;
        }
        self.next = number + 1;
    }
}
