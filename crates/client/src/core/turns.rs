//! Turns to transfer large values.

use std::collections::VecDeque;

use super::OpId;

/// A bound on transfers, and the operations that wait for a turn, first come first served.
#[derive(Debug)]
pub(super) struct Turns {
    active: usize,
    pub(super) active_max: usize,
    pub(super) waiting: VecDeque<OpId>,
}

impl Turns {
    pub(super) fn new(active_max: usize) -> Self {
        Self { active: 0, active_max, waiting: VecDeque::new() }
    }

    /// Takes a turn; returns false if none is free.
    pub(super) fn take(&mut self) -> bool {
        let is_free = self.active < self.active_max;
        self.active += usize::from(is_free);
        is_free
    }

    pub(super) fn give_back(&mut self) {
        self.active = self.active.saturating_sub(1);
    }

    /// Takes the operation that has waited longest, if a turn is free.
    pub(super) fn next(&mut self) -> Option<OpId> {
        if self.active < self.active_max { self.waiting.pop_front() } else { None }
    }
}
