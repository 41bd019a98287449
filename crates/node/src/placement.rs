//! Where a request is served: the plan in force as one worker sees it.

use std::sync::Arc;

use minos_base::SizeClass;
use minos_sched::{Discipline, Plan, Profiler, SharedHistogram, WorkerId};

use crate::{execute::Placement, plan_cell::PlanCell};

/// The plan in force and the histogram that the next one is made from.
pub(crate) struct WorkerPlacement<D> {
    pub(crate) plan: Arc<Plan>,
    version: u64,
    worker: WorkerId,
    profiler: Profiler<Arc<SharedHistogram>>,
    /// The largest class whose values are copied into replies instead of being sent from the item.
    copied_max: SizeClass,
    discipline: std::marker::PhantomData<D>,
}

/// Values up to this size are cheaper to copy into the reply than to pin.
const COPIED_BYTES_MAX: u64 = 16 << 10;

impl<D: Discipline> WorkerPlacement<D> {
    pub(crate) fn new(
        cell: &PlanCell,
        worker: WorkerId,
        histogram: Arc<SharedHistogram>,
        sample_one_in: u32,
    ) -> Self {
        Self {
            plan: cell.plan(),
            version: cell.version(),
            worker,
            profiler: Profiler::new(histogram, sample_one_in),
            copied_max: SizeClass::of(COPIED_BYTES_MAX),
            discipline: std::marker::PhantomData,
        }
    }

    /// Takes over a new plan, if there is one; says whether there was.
    #[inline]
    pub(crate) fn refresh(&mut self, cell: &PlanCell) -> bool {
        let version = cell.version();
        if version == self.version {
            return false;
        }
        self.version = version;
        self.plan = cell.plan();
        true
    }

    /// Number of the plan this worker goes by.
    pub(crate) fn version(&self) -> u64 {
        self.version
    }
}

impl<D: Discipline> Placement for WorkerPlacement<D> {
    #[inline]
    fn is_here(&mut self, class: SizeClass) -> bool {
        if D::PROFILES_SIZES {
            self.profiler.record(class);
        }
        self.serves(class)
    }

    #[inline]
    fn serves(&self, class: SizeClass) -> bool {
        // What is large by the plan but this worker's own, and small enough to be copied, would gain nothing
        // by being set aside: serving it takes less than a slice.
        class <= self.copied_max
            && (D::RUNS_TO_COMPLETION
                || class <= self.plan.threshold
                || self.plan.worker_for(class) == Some(self.worker))
    }

    #[inline]
    fn home(&self, class: SizeClass) -> Option<WorkerId> {
        if D::RUNS_TO_COMPLETION { None } else { self.plan.worker_for(class) }
    }
}
