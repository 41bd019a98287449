//! Designs that Minos is measured against.

use minos_base::{SizeClass, limits::BURST_MAX};

use crate::{
    ConfigError, ControlConfig, Decision, Discipline, Dispatch, HANDOFF_WORKERS_MAX, Help, Intake, Place,
    Plan, Pulls, Role, SizeAware, SizeHistogram, WorkerId, WorkerSet,
    dispatch::{own_queue, own_ring},
    fixed::{FixedPlan, fixed_plan},
};

/// SHO: some workers do nothing but take requests from the RX queues and put them in their rings; the
/// others pull one request at a time from those, in turn (Minos §5.2; RAMCloud).
///
/// In its plan those who drain the RX queues are small, those who serve large, whatever the sizes.
#[derive(Debug)]
pub struct HandOff(FixedPlan);

impl HandOff {
    /// `handoff_workers` of `workers` hand off: 1 to [`HANDOFF_WORKERS_MAX`], and fewer than there are.
    pub fn new(workers: usize, handoff_workers: usize) -> Result<Self, ConfigError> {
        ControlConfig::new(workers).check()?;
        if !(1..=HANDOFF_WORKERS_MAX).contains(&handoff_workers) || handoff_workers >= workers {
            return Err(ConfigError::HandOff { handoff: handoff_workers, workers });
        }
        let mut plan = Plan::all_small(workers);
        plan.roles[handoff_workers..].fill(Role::Large);
        Ok(Self(FixedPlan::new(Self::NAME, plan)))
    }
}

fixed_plan!(HandOff, "handoff");

impl Dispatch for HandOff {
    const INTAKE: Intake = Intake::Always;
    const SHARES_RINGS: bool = true;

    fn share(plan: &Plan, worker: WorkerId, queue: WorkerId) -> usize {
        let handoff = plan.small_workers().max(1);
        if queue.index() % handoff == worker.index() { BURST_MAX } else { 0 }
    }

    fn place(_: &Plan, worker: WorkerId, _: SizeClass) -> Place {
        Place::Ring(worker)
    }

    fn pulls(plan: &Plan, worker: WorkerId) -> Pulls {
        match plan.role(worker) {
            Role::Large => Pulls { first: plan.workers_in(Role::Small), then: WorkerSet::EMPTY },
            _ => Pulls::default(),
        }
    }

    fn help(_: &Plan, _: WorkerId) -> Help {
        Help::No
    }
}

/// HKH+WS: a worker moves bursts from its RX queue to its ring and serves from there one at a time; one
/// with nothing to do takes a request from the ring of another, and if all rings are empty, a burst from
/// the RX queue of another into its own ring, where it can be stolen again (Minos §5.2; ZygOS).
#[derive(Debug)]
pub struct Stealing(FixedPlan);

impl Stealing {
    /// `workers` workers, 1 to `WORKERS_MAX`, all alike.
    pub fn new(workers: usize) -> Result<Self, ConfigError> {
        FixedPlan::all_small(Self::NAME, workers).map(Self)
    }
}

fixed_plan!(Stealing, "stealing");

impl Dispatch for Stealing {
    const INTAKE: Intake = Intake::WhenEmpty;
    const SHARES_RINGS: bool = true;

    fn share(_: &Plan, worker: WorkerId, queue: WorkerId) -> usize {
        own_queue(worker, queue)
    }

    fn place(_: &Plan, worker: WorkerId, _: SizeClass) -> Place {
        Place::Ring(worker)
    }

    fn pulls(plan: &Plan, worker: WorkerId) -> Pulls {
        Pulls { then: WorkerSet::first(plan.workers()).without(worker), ..own_ring(worker) }
    }

    fn help(_: &Plan, _: WorkerId) -> Help {
        Help::Burst
    }
}

/// After Perséphone's DARC (SOSP'21): a dispatcher sorts requests by size into two rings; some workers are
/// reserved for small requests, as many as their share of the cost asks for; the others take small
/// requests first and large ones if there are none. Nothing is interrupted.
///
/// The ring for small requests is the dispatcher's, that for large ones the last worker's. As in
/// [`HandOff`], the dispatcher is small in the plan, and those who serve are large.
#[derive(Debug)]
pub struct Reserved(SizeAware, Plan);

impl Reserved {
    /// A policy that has seen nothing yet. Needs three workers: one that dispatches and two that serve.
    pub fn new(config: ControlConfig) -> Result<Self, ConfigError> {
        if config.workers < 3 {
            return Err(ConfigError::Reserved(config.workers));
        }
        let sizes = SizeAware::with_split(config, Self::NAME, crate::control::Split::Up)?;
        let mut reserved = Self(sizes, Plan::all_small(config.workers));
        reserved.decide();
        Ok(reserved)
    }

    /// Reserves workers by the threshold and the shares that Minos' control loop has found.
    fn decide(&mut self) {
        let workers = self.0.plan().workers();
        let serving = workers - 1;
        let small = self.0.decision().small_cost_share * serving as f64;
        let small = ((small + 0.5) as usize).clamp(1, serving - 1);
        let plan = &mut self.1;
        plan.epoch = self.0.plan().epoch;
        plan.threshold = self.0.plan().threshold;
        plan.roles[1..].fill(Role::Large);
        plan.reserved = (1..=small).map(|index| WorkerId(index as u16)).collect();
    }
}

impl Discipline for Reserved {
    const NAME: &'static str = "reserved";
    const RUNS_TO_COMPLETION: bool = true;
    const PROFILES_SIZES: bool = true;

    fn plan(&self) -> &Plan {
        &self.1
    }

    fn decision(&self) -> &Decision {
        self.0.decision()
    }

    fn epoch(&mut self, requests: &SizeHistogram) -> &Plan {
        self.0.epoch(requests);
        self.decide();
        &self.1
    }
}

impl Dispatch for Reserved {
    const INTAKE: Intake = Intake::Always;
    const SHARES_RINGS: bool = true;
    // Workers that are not reserved serve both kinds.
    const SEPARATES_REPLIES: bool = true;

    fn share(_: &Plan, worker: WorkerId, _: WorkerId) -> usize {
        if worker.index() == 0 { BURST_MAX } else { 0 }
    }

    fn place(plan: &Plan, _: WorkerId, class: SizeClass) -> Place {
        let last = WorkerId((plan.workers() - 1) as u16);
        Place::Ring(if class <= plan.threshold { WorkerId(0) } else { last })
    }

    fn pulls(plan: &Plan, worker: WorkerId) -> Pulls {
        let (small, last) = (WorkerId(0), WorkerId((plan.workers() - 1) as u16));
        if worker == small {
            return Pulls::default();
        }
        let then = if plan.reserved.contains(worker) { WorkerSet::EMPTY } else { WorkerSet::one(last) };
        Pulls { first: WorkerSet::one(small), then }
    }

    fn help(_: &Plan, _: WorkerId) -> Help {
        Help::No
    }
}
