//! Where a request is served: the plan in force as one worker sees it.

use std::sync::Arc;

use minos_base::SizeClass;
use minos_sched::{Assignment, Design, Duty, Place, Placing, Plan, Role, SharedHistogram, WorkerId};

use crate::{
    ops::Placement,
    server::{
        settings::Tuning,
        shared::{InForce, PlanCell},
    },
};

/// The plan in force and the histogram that the next one is made from.
pub(crate) struct WorkerPlacement {
    in_force: Arc<InForce>,
    /// This worker's part of the assignment, kept near.
    duty: Duty,
    version: u64,
    /// The role and the design under the plan before this one.
    role_before: Role,
    design_before: Design,
    /// True if the design depends on sizes.
    counts_sizes: bool,
    histogram: Arc<SharedHistogram>,
    /// The largest class whose values are copied into replies instead of being sent from the item.
    copied_max: SizeClass,
    /// The largest class that every worker serves at once: small, and cheap to copy.
    here_max: SizeClass,
    /// The version of the settings, kept near.
    settings: u32,
}

/// Values up to this size are cheaper to copy into the reply than to pin.
pub(super) const COPIED_BYTES_MAX: u64 = 16 << 10;

impl WorkerPlacement {
    pub(crate) fn new(cell: &PlanCell, worker: WorkerId, histogram: Arc<SharedHistogram>) -> Self {
        let version = cell.version();
        let in_force = cell.in_force();
        let copied_max = SizeClass::of(COPIED_BYTES_MAX);
        let mut placement = Self {
            duty: in_force.assignment.duty(worker).clone(),
            role_before: in_force.plan.role(worker),
            design_before: in_force.choice.dispatch,
            in_force,
            version,
            counts_sizes: false,
            histogram,
            copied_max,
            here_max: copied_max,
            settings: 0,
        };
        placement.keep_near();
        placement
    }

    /// Takes over a new plan, if there is one; true if there was.
    #[inline]
    pub(crate) fn refresh(&mut self, cell: &PlanCell) -> bool {
        let version = cell.version();
        if version == self.version {
            return false;
        }
        self.version = version;
        (self.role_before, self.design_before) = (self.role(), self.design());
        self.in_force = cell.in_force();
        self.keep_near();
        true
    }

    /// Caches the parts of the plan that the path of a request needs.
    fn keep_near(&mut self) {
        self.duty.clone_from(self.in_force.assignment.duty(self.duty.worker));
        self.counts_sizes = self.design().counts_sizes();
        self.settings = self.in_force.tuning.version;
        self.here_max = self.copied_max.min(self.plan().threshold);
    }

    /// The version of the settings in force.
    #[inline]
    pub(crate) fn settings(&self) -> u32 {
        self.settings
    }

    /// Number of the plan in force for this worker.
    pub(crate) fn version(&self) -> u64 {
        self.version
    }

    pub(crate) fn design(&self) -> Design {
        self.in_force.choice.dispatch
    }

    #[inline]
    pub(crate) fn plan(&self) -> &Plan {
        &self.in_force.plan
    }

    /// The duties of all workers under the plan.
    #[inline]
    pub(crate) fn assignment(&self) -> &Assignment {
        &self.in_force.assignment
    }

    /// The settings in force.
    #[inline]
    pub(crate) fn tuning(&self) -> &Tuning {
        &self.in_force.tuning
    }

    /// The duty of this worker under the plan.
    #[inline]
    pub(crate) fn duty(&self) -> &Duty {
        &self.duty
    }

    /// The largest class that counts as small: the threshold, or what is cheap to copy where there is none.
    pub(crate) fn small_max(&self) -> SizeClass {
        if self.counts_sizes { self.plan().threshold } else { self.copied_max }
    }

    /// True if requests go from the RX queues to rings.
    #[inline]
    pub(crate) fn enqueues(&self) -> bool {
        self.duty.placing == Placing::OwnRing
    }

    /// This worker's role.
    pub(crate) fn role(&self) -> Role {
        self.plan().role(self.duty.worker)
    }

    /// True if the plan gave this worker another role than the one before.
    pub(crate) fn has_changed_role(&self) -> bool {
        self.role() != self.role_before
    }

    /// True if the plan is of another design than the one before.
    pub(crate) fn has_changed_design(&self) -> bool {
        self.design() != self.design_before
    }

    /// The worker that fetches an item of about `class` from flash, most dealt by `number`; `None` is this one.
    pub(crate) fn fetcher(&self, class: SizeClass, number: u64) -> Option<WorkerId> {
        self.worker_at(self.duty.place_fetch(self.plan(), class, number))
    }

    #[inline]
    fn worker_at(&self, place: Place) -> Option<WorkerId> {
        match place {
            // A request out of a ring that workers share has come where it is served.
            Place::Ring(worker) if !self.enqueues() => Some(worker),
            Place::Ring(_) | Place::Here => None,
        }
    }

    /// Off the small path: one of this worker's own large values that is small enough to copy gains nothing
    /// from the large set. Serving it takes less than a slice.
    fn serves_large(&self, class: SizeClass) -> bool {
        class <= self.copied_max && self.home(class) == Some(self.duty.worker)
    }
}

impl Placement for WorkerPlacement {
    #[inline]
    fn is_here(&mut self, class: SizeClass) -> bool {
        if self.counts_sizes {
            self.histogram.record(class);
        }
        self.serves(class)
    }

    #[inline]
    fn serves(&self, class: SizeClass) -> bool {
        class <= self.here_max || self.serves_large(class)
    }

    #[inline]
    fn home(&self, class: SizeClass) -> Option<WorkerId> {
        self.worker_at(self.duty.place(self.plan(), class))
    }

    #[inline]
    fn worker(&self) -> WorkerId {
        self.duty.worker
    }
}
