//! Where a request is served: the plan in force as one worker sees it.

use std::{marker::PhantomData, sync::Arc};

use minos_base::SizeClass;
use minos_sched::{Help, Plan, Profiler, Pulls, Role, SharedHistogram, WorkerId, WorkerSet};

use crate::{
    config::Dispatch,
    ops::Placement,
    plan_cell::{InForce, PlanCell},
};

/// What disciplines do about sizes, as a type, so that the path of a request holds no branch on it.
pub(crate) trait Sizing: Send + 'static {
    /// Sizes are counted.
    const PROFILES: bool;
    /// A request is served to its end by the worker that has it.
    const RUNS_TO_COMPLETION: bool;
}

/// A large request goes to the worker that has its size.
pub(crate) struct BySize;
/// A request is served where it comes, whatever its size.
pub(crate) struct AsItComes;
/// The same, but sizes are counted, because who takes a request from a ring goes by them.
pub(crate) struct Counted;

impl Sizing for BySize {
    const PROFILES: bool = true;
    const RUNS_TO_COMPLETION: bool = false;
}

impl Sizing for AsItComes {
    const PROFILES: bool = false;
    const RUNS_TO_COMPLETION: bool = true;
}

impl Sizing for Counted {
    const PROFILES: bool = true;
    const RUNS_TO_COMPLETION: bool = true;
}

/// The plan in force and the histogram that the next one is made from.
pub(crate) struct WorkerPlacement<S> {
    pub(crate) in_force: Arc<InForce>,
    version: u64,
    worker: WorkerId,
    /// The role under the plan before this one.
    role_before: Role,
    /// The RX queues that are this worker's to poll, and how many requests it takes at most.
    shares: Vec<(WorkerId, usize)>,
    profiler: Profiler<Arc<SharedHistogram>>,
    /// The largest class whose values are copied into replies instead of being sent from the item.
    copied_max: SizeClass,
    sizing: PhantomData<S>,
}

/// Values up to this size are cheaper to copy into the reply than to pin.
const COPIED_BYTES_MAX: u64 = 16 << 10;

impl<S> WorkerPlacement<S> {
    pub(crate) fn new(
        cell: &PlanCell,
        worker: WorkerId,
        histogram: Arc<SharedHistogram>,
        sample_one_in: u32,
    ) -> Self {
        let version = cell.version();
        let in_force = cell.in_force();
        Self {
            shares: in_force.answers.shares[worker.index()].clone(),
            role_before: in_force.plan.role(worker),
            in_force,
            version,
            worker,
            profiler: Profiler::new(histogram, sample_one_in),
            copied_max: SizeClass::of(COPIED_BYTES_MAX),
            sizing: PhantomData,
        }
    }

    /// The same for disciplines that do something else about sizes.
    pub(crate) fn with_sizing<T>(self) -> WorkerPlacement<T> {
        WorkerPlacement {
            in_force: self.in_force,
            version: self.version,
            worker: self.worker,
            role_before: self.role_before,
            shares: self.shares,
            profiler: self.profiler,
            copied_max: self.copied_max,
            sizing: PhantomData,
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
        self.role_before = self.role();
        self.in_force = cell.in_force();
        self.shares.clone_from(&self.in_force.answers.shares[self.worker.index()]);
        true
    }

    /// Number of the plan this worker goes by.
    pub(crate) fn version(&self) -> u64 {
        self.version
    }

    /// The discipline that the plan is of.
    pub(crate) fn dispatch(&self) -> Dispatch {
        self.in_force.choice.dispatch
    }

    /// The plan.
    #[inline]
    pub(crate) fn plan(&self) -> &Plan {
        &self.in_force.plan
    }

    /// This worker's role.
    pub(crate) fn role(&self) -> Role {
        self.plan().role(self.worker)
    }

    /// Whether the plan gave this worker another role than the one before.
    pub(crate) fn has_changed_role(&self) -> bool {
        self.role() != self.role_before
    }

    /// The RX queues that are this worker's to poll, and how many requests it takes at most.
    #[inline]
    pub(crate) fn shares(&self) -> &[(WorkerId, usize)] {
        &self.shares
    }

    /// The shared rings from which this worker serves. A ring from which nobody does may hold what an earlier
    /// discipline has left there: that is its owner's.
    #[inline]
    pub(crate) fn pulls(&self) -> Pulls {
        let answers = &self.in_force.answers;
        let mut pulls = answers.pulls[self.worker.index()];
        if answers.pullers[self.worker.index()].is_empty() {
            pulls.then = pulls.then.with(self.worker);
        }
        pulls
    }

    /// Whether others take from this worker's ring too.
    #[inline]
    pub(crate) fn shares_ring(&self) -> bool {
        !self.in_force.answers.pullers[self.worker.index()].without(self.worker).is_empty()
    }

    /// The shared rings whose large requests this worker serves when it has nothing else to do.
    #[inline]
    pub(crate) fn relieves(&self) -> WorkerSet {
        self.in_force.answers.relieves[self.worker.index()]
    }

    /// Those of whom this worker takes, with nothing else to do, what they have taken from RX queues and not come to.
    #[inline]
    pub(crate) fn lenders(&self) -> WorkerSet {
        self.in_force.answers.lenders[self.worker.index()]
    }

    /// What this worker does when it has nothing to do.
    #[inline]
    pub(crate) fn help(&self) -> Help {
        self.in_force.answers.helps[self.worker.index()]
    }
}

impl<S: Sizing> Placement for WorkerPlacement<S> {
    #[inline]
    fn is_here(&mut self, class: SizeClass) -> bool {
        if S::PROFILES {
            self.profiler.record(class);
        }
        self.serves(class)
    }

    #[inline]
    fn serves(&self, class: SizeClass) -> bool {
        // What is large by the plan but this worker's own, and small enough to be copied, would gain nothing
        // by being set aside: serving it takes less than a slice.
        class <= self.copied_max
            && (S::RUNS_TO_COMPLETION
                || class <= self.plan().threshold
                || self.plan().worker_for(class) == Some(self.worker))
    }

    #[inline]
    fn home(&self, class: SizeClass) -> Option<WorkerId> {
        if S::RUNS_TO_COMPLETION { None } else { self.plan().worker_for(class) }
    }
}
