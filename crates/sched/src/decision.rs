//! An epoch's decision and the numbers behind it, for `stats minos` and the log.

use std::fmt;

use crate::{Cost, Plan, Role, SizeRange};

/// A large worker's range with the share of the large cost that fell into it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RangeDecision {
    /// The range and its home.
    pub range: SizeRange,
    /// Cost of its requests, in units of the cost function an epoch.
    pub cost: f64,
}

/// One epoch's numbers and the decision made from them.
#[derive(Clone, Debug, PartialEq)]
pub struct Decision {
    /// Name of the design that decided.
    pub design: &'static str,
    /// Epochs with requests so far.
    pub epoch: u64,
    /// Requests counted in the latest epoch.
    pub requests: u64,
    /// Largest small size, in bytes.
    pub threshold_bytes: u64,
    /// Share of the requests that are small, by the moving average.
    pub small_request_share: f64,
    /// Share of the cost that small requests cause, by the moving average.
    pub small_cost_share: f64,
    /// The unit of the costs.
    pub cost: Cost,
    /// Workers that drain RX queues, the standby included.
    pub small_workers: usize,
    /// Workers that serve large requests alone.
    pub large_workers: usize,
    /// Workers among which fetches from flash are dealt, those of each domain.
    pub fetchers: usize,
    /// True if a small worker is on standby for large requests.
    pub has_standby: bool,
    /// The ranges, domain by domain, smallest class first.
    pub ranges: Vec<RangeDecision>,
}

impl Decision {
    /// The decision in `plan`, made from `requests` requests with these shares and `costs` by class.
    pub(crate) fn new(
        design: &'static str,
        plan: &Plan,
        requests: u64,
        shares: (f64, f64),
        cost: Cost,
        costs: &[f64],
    ) -> Self {
        // Each domain has the share of the requests that it has of the workers.
        let part = |range: &SizeRange| plan.domain_of(range.worker).len() as f64 / plan.workers() as f64;
        let all = |range: &SizeRange| costs[range.first.index()..=range.last.index()].iter().sum::<f64>();
        let cost_of = |range: &SizeRange| all(range) * part(range);
        let ranges = plan.ranges.iter().map(|range| RangeDecision { range: *range, cost: cost_of(range) });
        Self {
            design,
            epoch: plan.epoch,
            requests,
            threshold_bytes: plan.threshold_bytes(),
            small_request_share: shares.0,
            small_cost_share: shares.1,
            cost,
            small_workers: 0,
            large_workers: 0,
            fetchers: plan.fetchers.iter().map(|&fetchers| usize::from(fetchers)).sum(),
            has_standby: false,
            ranges: ranges.collect(),
        }
        .with_roles(plan)
    }

    pub(crate) fn with_roles(self, plan: &Plan) -> Self {
        Self {
            small_workers: plan.small_workers(),
            large_workers: plan.large_workers(),
            has_standby: plan.roles.contains(&Role::Standby),
            ..self
        }
    }

    /// Gives every number under its name, in a fixed order.
    pub fn emit(&self, emit: &mut dyn FnMut(&str, &dyn fmt::Display)) {
        emit("dispatch", &self.design);
        emit("epoch", &self.epoch);
        emit("epoch_requests", &self.requests);
        emit("threshold_bytes", &self.threshold_bytes);
        emit("small_request_share", &format_args!("{:.6}", self.small_request_share));
        emit("small_cost_share", &format_args!("{:.6}", self.small_cost_share));
        emit("cost", &self.cost);
        emit("small_workers", &self.small_workers);
        emit("large_workers", &self.large_workers);
        emit("standby", &u8::from(self.has_standby));
        emit("fetchers", &self.fetchers);
        for RangeDecision { range, cost } in &self.ranges {
            let name = |what: &str| format!("range:{}:{what}", range.worker.0);
            emit(&name("bytes_min"), &range.first.bytes_min());
            emit(&name("bytes_max"), &range.last.bytes_max());
            emit(&name("cost"), &format_args!("{cost:.0}"));
        }
    }
}

impl fmt::Display for Decision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { design, epoch, requests, threshold_bytes, .. } = self;
        write!(f, "{design} epoch {epoch}: {requests} requests, threshold {threshold_bytes} B")?;
        let (requests, cost) = (100.0 * self.small_request_share, 100.0 * self.small_cost_share);
        write!(f, ", small {requests:.3} % of requests and {cost:.1} % of {}", self.cost)?;
        write!(f, ", {} small and {} large workers", self.small_workers, self.large_workers)?;
        if self.has_standby {
            f.write_str(", one on standby")?;
        }
        for RangeDecision { range, cost } in &self.ranges {
            let (min, max) = (range.first.bytes_min(), range.last.bytes_max());
            write!(f, "; worker {} has {min}-{max} B, cost {cost:.0}", range.worker.0)?;
        }
        Ok(())
    }
}
