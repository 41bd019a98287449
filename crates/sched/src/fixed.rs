//! What the disciplines share whose plan no epoch changes.

use crate::{ConfigError, ControlConfig, Cost, Decision, Plan, SizeHistogram};

/// A plan that stays as it was made, and what is said of it.
#[derive(Debug)]
pub(crate) struct FixedPlan {
    plan: Plan,
    decision: Decision,
}

impl FixedPlan {
    /// `plan` for the discipline of this name.
    pub(crate) fn new(name: &'static str, plan: Plan) -> Self {
        let decision = Decision::new(name, &plan, 0, (1.0, 1.0), Cost::Packets, &[]);
        Self { plan, decision }
    }

    /// `workers` workers, 1 to `WORKERS_MAX`, all small.
    pub(crate) fn all_small(name: &'static str, workers: usize) -> Result<Self, ConfigError> {
        ControlConfig::new(workers).check()?;
        Ok(Self::new(name, Plan::all_small(workers)))
    }

    pub(crate) fn plan(&self) -> &Plan {
        &self.plan
    }

    pub(crate) fn decision(&self) -> &Decision {
        &self.decision
    }

    /// Ends an epoch, of which only the number of requests is kept.
    pub(crate) fn epoch(&mut self, requests: &SizeHistogram) -> &Plan {
        self.decision.requests = requests.total();
        &self.plan
    }
}

/// Makes `$discipline`, which holds nothing but a [`FixedPlan`], a [`Discipline`](crate::Discipline) that
/// serves a request to its end and counts no sizes.
macro_rules! fixed_plan {
    ($discipline:ty, $name:literal) => {
        impl $crate::Discipline for $discipline {
            const NAME: &'static str = $name;
            const RUNS_TO_COMPLETION: bool = true;
            const PROFILES_SIZES: bool = false;

            fn plan(&self) -> &$crate::Plan {
                self.0.plan()
            }

            fn decision(&self) -> &$crate::Decision {
                self.0.decision()
            }

            fn epoch(&mut self, requests: &$crate::SizeHistogram) -> &$crate::Plan {
                self.0.epoch(requests)
            }
        }
    };
}
pub(crate) use fixed_plan;
