//! A native worker outside a server: for tests, fuzzing and the simulation.

use minos_base::SizeClass;
use minos_sched::WorkerId;

use crate::ops::{Admin, Placement};

/// The administration of a worker without a server.
pub(super) struct Nobody;

impl Admin for Nobody {}

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
