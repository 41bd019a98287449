//! CLIENT PAUSE: Redis' clients wait until it ends.
//!
//! A pause comes to the workers with the plan, so that a request pays nothing for it. A client that waits lies in its RX
//! queue as one without input; at the end every queue visits those that it has.

use std::{sync::atomic::Ordering, time::Instant};

use minos_engine::Mode;
use minos_net::Io;

use super::{settings::Tuning, shared::Shared};

/// The commands that wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Paused {
    /// Those that may change items.
    Writes,
    /// All.
    All,
}

/// A pause of Redis' clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Pause {
    pub(crate) paused: Paused,
    pub(crate) until: Instant,
}

impl Pause {
    /// The stricter and longer of each.
    fn and(self, other: Self) -> Self {
        Self { paused: self.paused.max(other.paused), until: self.until.max(other.until) }
    }
}

impl<M: Mode, I: Io> Shared<M, I> {
    /// Begins a pause, or adds it to the one under way. Returns the version of the plan that has it.
    pub(crate) fn pause(&self, pause: Pause) -> u64 {
        tracing::info!(paused = ?pause.paused, "Redis' clients wait");
        self.change_pause(|old| Some(old.map_or(pause, |old| old.and(pause))))
    }

    /// True if every worker has taken up plan `version` or a later one.
    pub(crate) fn is_taken_up(&self, version: u64) -> bool {
        // Acquire: the caller sees all work done under the earlier plan.
        self.workers.iter().all(|worker| worker.plan_version.load(Ordering::Acquire) >= version)
    }

    /// Ends the pause under way if there is one.
    pub(crate) fn resume(&self) {
        self.end_pause(|_| true);
    }

    /// Ends the pause under way if its time is over.
    pub(crate) fn resume_in_time(&self, now: Instant) {
        self.end_pause(|pause| now >= pause.until);
    }

    fn end_pause(&self, ends: impl Fn(&Pause) -> bool) {
        if !self.plan.in_force().tuning.pause.as_ref().is_some_and(&ends) {
            return;
        }
        tracing::info!("Redis' clients go on");
        // A client may have begun a new one meanwhile.
        self.change_pause(|pause| pause.filter(|pause| !ends(pause)));
        // Behind the new plan: who goes to wait under the old one sees that, or is found.
        for queue in 0..self.queues.len() {
            self.queues[queue].calls.put_paused();
            self.wake_server(&self.plan.in_force().assignment, queue);
        }
    }

    fn change_pause(&self, change: impl FnOnce(Option<Pause>) -> Option<Pause>) -> u64 {
        let _one_at_a_time = self.settings_changes.lock();
        let old = self.plan.in_force().tuning;
        let pause = change(old.pause);
        let version = self.plan.tune(Tuning { pause, version: old.version.wrapping_add(1), ..old });
        self.mailbox.wake();
        self.wake_all();
        version
    }
}
