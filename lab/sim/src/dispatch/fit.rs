//! Costs that were not measured, fitted to a paper's results.

use super::{Costs, Design, Mix, Spec, SpecError, run, throughput_under};

/// Minos' throughput within [`LIMIT_US`] at p_L = 0.0625 (Minos §6.3), where the processor is the limit.
const THROUGHPUT_MOPS: f64 = 6.9;
const LIMIT_US: f64 = 100.0;
const LARGE_PERCENT: f64 = 0.0625;
/// The mean response to a lone GET of the default workload (Minos §5.4).
const MEAN_US: f64 = 5.0;
/// Bounds and relative precision of the search.
const REQUEST_NS: std::ops::Range<f64> = 10.0..5_000.0;
const PRECISION: f64 = 0.003;
/// More than any server answers.
const OVERLOAD: f64 = 2e7;

/// A fitted cost and what it was fitted to.
#[derive(Clone, Debug, PartialEq)]
pub struct Fitted {
    /// Its name in a file of costs.
    pub cost: &'static str,
    /// The value of the cost.
    pub value: f64,
    /// The quantity it was fitted to.
    pub target: &'static str,
    /// The paper's number.
    pub paper: f64,
    /// The simulator's number.
    pub here: f64,
}

impl Fitted {
    /// How far the simulator is off, as a share of the paper's number.
    pub fn residual(&self) -> f64 {
        self.here / self.paper - 1.0
    }
}

/// How far `costs` are off their targets, whether they were fitted or not.
pub fn residuals(costs: &Costs, requests: u64, seed: u64) -> Result<Vec<Fitted>, SpecError> {
    let spec = busy(costs, OVERLOAD, requests, seed);
    let throughput = throughput_under(&spec, LIMIT_US)?.map_or(0.0, |best| best.achieved_rps / 1e6);
    Ok(vec![
        Fitted {
            cost: "per_request_ns",
            value: costs.per_request_ns,
            target: "Mops of Minos within 100 us at p_L 0.0625 %",
            paper: THROUGHPUT_MOPS,
            here: throughput,
        },
        Fitted {
            cost: "network_ns",
            value: costs.network_ns,
            target: "us of a lone GET on average",
            paper: MEAN_US,
            here: mean_us(costs, requests, seed)?,
        },
    ])
}

/// `costs` with `per_request_ns` and `network_ns` fitted to the targets.
pub fn fit(costs: &Costs, requests: u64, seed: u64) -> Result<Costs, SpecError> {
    let mut fitted = costs.clone();
    // The two fits hardly depend on each other: two rounds are enough.
    for _ in 0..2 {
        fitted.per_request_ns = request_ns(&fitted, requests, seed)?;
        fitted.network_ns += 1e3 * (MEAN_US - mean_us(&fitted, requests, seed)?);
    }
    Ok(fitted)
}

/// The highest cost of a request at which the percentile stays within the limit at the paper's rate.
fn request_ns(costs: &Costs, requests: u64, seed: u64) -> Result<f64, SpecError> {
    let (mut low, mut high) = (REQUEST_NS.start, REQUEST_NS.end);
    while high / low > 1.0 + PRECISION {
        let per_request_ns = libm::sqrt(low * high);
        let costs = Costs { per_request_ns, ..costs.clone() };
        let outcome = run(&busy(&costs, 1e6 * THROUGHPUT_MOPS, requests, seed))?;
        let holds = outcome.latency_us.all.percentile.value <= LIMIT_US;
        *(if holds { &mut low } else { &mut high }) = per_request_ns;
    }
    Ok(low)
}

fn busy(costs: &Costs, rate: f64, requests: u64, seed: u64) -> Spec {
    let mix = Mix { large_percent: LARGE_PERCENT, ..Mix::PAPER };
    let costs = costs.clone();
    let epoch_requests = (requests / super::EPOCHS_DEFAULT).max(100);
    Spec { mix, costs, requests, epoch_requests, seed, ..Spec::new(Design::SizeAware, rate) }
}

fn mean_us(costs: &Costs, requests: u64, seed: u64) -> Result<f64, SpecError> {
    let mix = Mix { get_ratio: 1.0, ..Mix::PAPER };
    let spec = Spec { mix, costs: costs.clone(), requests, seed, ..Spec::new(Design::KeyHash, 1000.0) };
    Ok(run(&spec)?.latency_us.all.mean.value)
}
