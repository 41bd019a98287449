//! A native worker outside a server: for tests, fuzzing and the simulation.

use std::fmt::Display;

use minos_base::{Seconds, SizeClass, StatsGroup};
use minos_sched::WorkerId;

use crate::ops::{Admin, Placement, Prefixes, counters::Totals, receiving::ReceivePermit};

/// The administration of a worker without a server.
pub(super) struct Nobody;

impl Admin for Nobody {
    fn totals(&self) -> Totals {
        Totals::default()
    }

    fn prefixes(&self) -> Option<&Prefixes> {
        None
    }

    fn reset(&self) {}

    fn stats(&self, _group: StatsGroup, _emit: &mut dyn FnMut(&str, &dyn Display)) {}

    fn set_verbosity(&self, _level: u32) {}

    fn flush_at(&self, _due: Seconds) {}

    fn allows_shutdown(&self) -> bool {
        false
    }

    fn shut_down(&self, _graceful: bool) {}

    fn list_connections(&self, _from: u64, _tx: &mut Vec<u8>, _bytes_max: usize) -> Option<u64> {
        None
    }

    fn admit(&self, _bytes: u64) -> Option<ReceivePermit> {
        None
    }
}

/// A fixed plan: values above a class belong to one worker.
#[derive(Clone, Copy, Debug)]
pub struct SizeLimit {
    /// The largest class that every worker serves itself.
    pub class_max: SizeClass,
    /// The worker for larger values; with `None` everything is served where it arrives.
    pub large_worker: Option<WorkerId>,
}

impl Placement for SizeLimit {
    fn is_here(&mut self, class: SizeClass) -> bool {
        self.serves(class)
    }

    fn serves(&self, class: SizeClass) -> bool {
        class <= self.class_max
    }

    fn home(&self, class: SizeClass) -> Option<WorkerId> {
        self.large_worker.filter(|_| !self.serves(class))
    }
}
