//! The throughput that a service-level objective allows, by search.

use minos_rack::BadParameter;

use crate::{Load, Model, simulate};

/// A service-level objective.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Slo {
    /// Which percentile of the latencies.
    pub percentile: f64,
    /// Its upper bound, in microseconds.
    pub latency_us: f64,
}

/// The highest load that meets the objective.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Throughput {
    /// Requests per microsecond; zero if no load meets the objective.
    pub rate: f64,
    /// The same, as a share of the servers' best possible throughput.
    pub utilization: f64,
    /// The percentile at that rate, in microseconds.
    pub latency_us: f64,
    /// The rate as a share of that at which the first server saturates.
    pub of_saturation: f64,
}

/// Halvings: the rate is known to a thousandth of the saturation.
const STEPS: u32 = 10;

/// Searches below saturation for the highest rate that meets the objective, with the same randomness at each.
///
/// # Errors
/// A parameter is out of bounds.
pub fn search(model: &Model, slo: &Slo, arrivals: u64, seed: u64) -> Result<Throughput, BadParameter> {
    BadParameter::unless_positive("slo-us", slo.latency_us)?;
    if !(slo.percentile > 0.0 && slo.percentile < 100.0) {
        return Err(BadParameter::new("percentile", slo.percentile, "above 0, below 100"));
    }
    let saturation = model.saturation();
    let mut found = Throughput { rate: 0.0, utilization: 0.0, latency_us: 0.0, of_saturation: 0.0 };
    let (mut low, mut high) = (0u32, 1 << STEPS);
    while high - low > 1 {
        let middle = low + (high - low) / 2;
        let of_saturation = f64::from(middle) / f64::from(1 << STEPS);
        let rate = saturation * of_saturation;
        let latency_us = simulate(model, &Load { rate, arrivals, seed })?.percentile(slo.percentile);
        if latency_us <= slo.latency_us {
            found = Throughput { rate, utilization: model.utilization(rate), latency_us, of_saturation };
            low = middle;
        } else {
            high = middle;
        }
    }
    Ok(found)
}
