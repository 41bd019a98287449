//! Who executes a request: the policy as a trait, with the two that exist.

use crate::{
    ConfigError, ControlConfig, Cost, Decision, Plan, SizeHistogram, Threshold, control, smoothed::Smoothed,
};

/// A way to share requests among workers.
///
/// The constants are known when the worker loop is compiled, so that a discipline pays only for
/// what it uses. One that hands off or steals will add its own constants, false for these two.
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
    smoothed: Smoothed,
    plan: Plan,
    decision: Decision,
}

impl SizeAware {
    /// A policy that has seen nothing yet: all workers small, the last one on standby.
    pub fn new(config: ControlConfig) -> Result<Self, ConfigError> {
        config.check()?;
        let smoothed = Smoothed::new();
        let mut plan = Plan::all_small(config.workers);
        plan.threshold = control::initial_threshold(config.threshold);
        let decision = decide(&config, &smoothed, &mut plan, 0);
        Ok(Self { config, smoothed, plan, decision })
    }

    /// What it was made with.
    pub fn config(&self) -> &ControlConfig {
        &self.config
    }
}

/// Fills in roles and ranges for the threshold that stands in `plan`.
fn decide(config: &ControlConfig, smoothed: &Smoothed, plan: &mut Plan, requests: u64) -> Decision {
    let costs = smoothed.costs(config.cost);
    let cost_share = control::small_cost_share(&costs, plan.threshold);
    plan.roles = control::roles(config.workers, cost_share);
    plan.ranges = control::ranges(&costs, plan.threshold, &plan.roles);
    let shares = (smoothed.share_up_to(plan.threshold), cost_share);
    Decision::new(SizeAware::NAME, plan, requests, shares, config.cost, &costs)
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
        self.decision = decide(&self.config, &self.smoothed, &mut self.plan, total);
        &self.plan
    }
}

/// The rival: a request belongs to the queue it arrived in, whatever its size, first come first
/// served (Minos §5.2, HKH). Over TCP the queue is that of the connection.
#[derive(Debug)]
pub struct KeySharded {
    plan: Plan,
    decision: Decision,
}

impl KeySharded {
    /// `workers` workers, 1 to `WORKERS_MAX`, all alike.
    pub fn new(workers: usize) -> Result<Self, ConfigError> {
        ControlConfig::new(workers).check()?;
        let plan = Plan::all_small(workers);
        let decision = Decision::new(Self::NAME, &plan, 0, (1.0, 1.0), Cost::Packets, &[]);
        Ok(Self { plan, decision })
    }
}

impl Discipline for KeySharded {
    const NAME: &'static str = "keyhash";
    const RUNS_TO_COMPLETION: bool = true;
    const PROFILES_SIZES: bool = false;

    fn plan(&self) -> &Plan {
        &self.plan
    }

    fn decision(&self) -> &Decision {
        &self.decision
    }

    fn epoch(&mut self, requests: &SizeHistogram) -> &Plan {
        self.decision.requests = requests.total();
        &self.plan
    }
}
