//! The plan of a simulated worker.

use minos_base::SizeClass;
use minos_node::native::Placement;
use minos_sched::WorkerId;

/// Values above this, in bytes, are huge and go to another worker than other large ones.
const HUGE_BYTES: u64 = 50_000;

/// Small values are served here, large ones at the worker of their range.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FixedPlan {
    pub(crate) worker: WorkerId,
    /// The largest class that is small.
    pub(crate) threshold: SizeClass,
    /// The worker of large values; the one before it has the huge ones.
    pub(crate) large_worker: WorkerId,
    pub(crate) workers: u16,
}

impl Placement for FixedPlan {
    fn is_here(&mut self, class: SizeClass) -> bool {
        self.serves(class)
    }

    fn serves(&self, class: SizeClass) -> bool {
        class <= self.threshold || self.home(class) == Some(self.worker)
    }

    fn home(&self, class: SizeClass) -> Option<WorkerId> {
        let steps_back = u16::from(class > SizeClass::of(HUGE_BYTES));
        let worker = (self.large_worker.0 + self.workers - steps_back) % self.workers;
        (class > self.threshold).then_some(WorkerId(worker))
    }

    fn worker(&self) -> WorkerId {
        self.worker
    }
}
