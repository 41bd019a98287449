//! Who executes a request: the policy as a trait, Minos' own and the simplest rival.

use minos_base::SizeClass;

use crate::{
    ConfigError, ControlConfig, Decision, Dispatch, Help, Intake, Place, Plan, Pulls, SizeHistogram,
    Threshold, WorkerId,
    control::{self, Split},
    dispatch,
    fixed::{FixedPlan, fixed_plan},
    smoothed::Smoothed,
};

/// A way to share requests among workers.
///
/// The constants are known when the worker loop is compiled, so that a discipline pays only for
/// what it uses. What a worker asks in each turn of its loop, [`Dispatch`] answers.
pub trait Discipline: Send + 'static {
    /// As in `--dispatch`.
    const NAME: &'static str;

    /// Every request is served to its end by the worker it arrived at, in order of arrival. The
    /// loop then neither looks at the plan nor slices a large transfer.
    const RUNS_TO_COMPLETION: bool;

    /// Workers must count sizes, because [`Discipline::epoch`] decides by them.
    const PROFILES_SIZES: bool;

    /// The plan in force.
    fn plan(&self) -> &Plan;

    /// The numbers behind the plan in force.
    fn decision(&self) -> &Decision;

    /// Ends an epoch in which `requests` were seen; the plan for the next. An epoch without
    /// requests changes nothing.
    fn epoch(&mut self, requests: &SizeHistogram) -> &Plan;
}

/// Minos: small requests where they arrive, large ones at the large worker that owns their size
/// (Minos §3.1).
#[derive(Debug)]
pub struct SizeAware {
    config: ControlConfig,
    name: &'static str,
    split: Split,
    smoothed: Smoothed,
    plan: Plan,
    decision: Decision,
}

impl SizeAware {
    /// A policy that has seen nothing yet: all workers small, the last one on standby.
    pub fn new(config: ControlConfig) -> Result<Self, ConfigError> {
        Self::with_split(config, Self::NAME, Split::Up)
    }

    /// The same under another name, with another way to split the workers.
    pub(crate) fn with_split(
        config: ControlConfig,
        name: &'static str,
        split: Split,
    ) -> Result<Self, ConfigError> {
        config.check()?;
        let smoothed = Smoothed::new();
        let mut plan = Plan::all_small(config.workers);
        plan.threshold = control::initial_threshold(config.threshold);
        let decision = Decision::new(name, &plan, 0, (1.0, 1.0), config.cost, &smoothed.costs(config.cost));
        let mut policy = Self { config, name, split, smoothed, plan, decision };
        policy.decide(0);
        Ok(policy)
    }

    /// What it was made with.
    pub fn config(&self) -> &ControlConfig {
        &self.config
    }

    /// Fills in roles and ranges for the threshold that stands in the plan.
    fn decide(&mut self, requests: u64) {
        let (plan, config) = (&mut self.plan, &self.config);
        let costs = self.smoothed.costs(config.cost);
        let cost_share = control::small_cost_share(&costs, plan.threshold);
        (plan.roles, plan.shared) = control::split_roles(self.split, config.workers, cost_share);
        plan.ranges = control::ranges(&costs, plan.threshold, &plan.roles, plan.shared);
        let shares = (self.smoothed.share_up_to(plan.threshold), cost_share);
        self.decision = Decision::new(self.name, plan, requests, shares, config.cost, &costs);
    }
}

impl Dispatch for SizeAware {
    const INTAKE: Intake = Intake::Always;

    fn share(plan: &Plan, worker: WorkerId, queue: WorkerId) -> usize {
        dispatch::small_workers_share(plan, worker, queue)
    }

    fn place(plan: &Plan, _: WorkerId, class: SizeClass) -> Place {
        dispatch::by_size(plan, class)
    }

    fn pulls(_: &Plan, worker: WorkerId) -> Pulls {
        dispatch::own_ring(worker)
    }

    fn help(_: &Plan, _: WorkerId) -> Help {
        Help::No
    }
}

impl Discipline for SizeAware {
    const NAME: &'static str = "size-aware";
    const RUNS_TO_COMPLETION: bool = false;
    const PROFILES_SIZES: bool = true;

    fn plan(&self) -> &Plan {
        &self.plan
    }

    fn decision(&self) -> &Decision {
        &self.decision
    }

    fn epoch(&mut self, requests: &SizeHistogram) -> &Plan {
        let total = requests.total();
        if total == 0 {
            self.decision.requests = 0;
            return &self.plan;
        }
        self.smoothed.update(self.config.alpha, requests);
        self.plan.epoch += 1;
        if self.config.threshold == Threshold::Auto {
            let previous = (self.plan.epoch > 1).then_some(self.plan.threshold);
            self.plan.threshold = self.smoothed.percentile(self.config.percentile, previous);
        }
        self.decide(total);
        &self.plan
    }
}

/// The rival: a request belongs to the queue it arrived in, whatever its size, first come first
/// served (Minos §5.2, HKH). Over TCP the queue is that of the connection.
#[derive(Debug)]
pub struct KeySharded(FixedPlan);

impl KeySharded {
    /// `workers` workers, 1 to `WORKERS_MAX`, all alike.
    pub fn new(workers: usize) -> Result<Self, ConfigError> {
        FixedPlan::all_small(Self::NAME, workers).map(Self)
    }
}

fixed_plan!(KeySharded, "keyhash");

impl Dispatch for KeySharded {
    const INTAKE: Intake = Intake::Always;

    fn share(_: &Plan, worker: WorkerId, queue: WorkerId) -> usize {
        dispatch::own_queue(worker, queue)
    }

    fn place(_: &Plan, _: WorkerId, _: SizeClass) -> Place {
        Place::Here
    }

    fn pulls(_: &Plan, _: WorkerId) -> Pulls {
        Pulls::default()
    }

    fn help(_: &Plan, _: WorkerId) -> Help {
        Help::No
    }
}
