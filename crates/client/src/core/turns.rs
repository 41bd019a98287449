//! Who may transfer a large value, and who must wait.

use std::collections::VecDeque;

use super::OpId;

/// A bound on transfers, and those who wait, first come first served.
#[derive(Debug)]
pub(super) struct Turns {
    active: usize,
    active_max: usize,
    waiting: VecDeque<OpId>,
}

impl Turns {
    pub(super) fn new(active_max: usize) -> Self {
        Self { active: 0, active_max, waiting: VecDeque::new() }
    }

    /// Changes the bound.
    pub(super) fn set_max(&mut self, active_max: usize) {
        self.active_max = active_max.max(1);
    }

    /// Takes a turn, if there is one.
    pub(super) fn take(&mut self) -> bool {
        let is_free = self.active < self.active_max;
        self.active += usize::from(is_free);
        is_free
    }

    /// Waits for a turn.
    pub(super) fn wait(&mut self, id: OpId) {
        self.waiting.push_back(id);
    }

    /// Gives a turn back.
    pub(super) fn give_back(&mut self) {
        self.active = self.active.saturating_sub(1);
    }

    /// Who waits longest, if there is a turn.
    pub(super) fn next(&mut self) -> Option<OpId> {
        if self.active < self.active_max { self.waiting.pop_front() } else { None }
    }

    /// Nobody waits any more.
    pub(super) fn clear_waiting(&mut self) {
        self.waiting.clear();
    }
}
