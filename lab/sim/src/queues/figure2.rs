//! Figure 2 of Minos: what a few large requests do to designs that are blind to size.

use serde::Serialize;

use super::{Binding, Spec, SpecError, run_all};
use crate::Distribution;

/// The parameters of figure 2.
#[derive(Clone, Debug, PartialEq)]
pub struct Figure2 {
    /// The curves.
    pub bindings: Vec<Binding>,
    /// Service times of the large requests.
    pub ks: Vec<f64>,
    /// The loads.
    pub loads: Vec<f64>,
    /// Everything else.
    pub base: Spec,
}

impl Figure2 {
    /// As in the paper: K = 1, 10, 100, 1000, eight workers, 0.125 % large requests, 99th percentile.
    pub fn paper() -> Self {
        Self {
            bindings: vec![Binding::Early, Binding::Late, Binding::Stealing],
            ks: vec![1.0, 10.0, 100.0, 1000.0],
            loads: (1..=9).map(|tenth| f64::from(tenth) / 10.0).collect(),
            base: Spec::new(Binding::Early, 0.5),
        }
    }
}

/// One point.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Figure2Row {
    /// The curve.
    pub model: Binding,
    /// Service time of the large requests.
    pub k: f64,
    /// Share of the workers' time.
    pub load: f64,
    /// Requests a unit of time; a small request takes a unit.
    pub throughput: f64,
    /// The percentile of the response times.
    pub percentile: f64,
    /// Half the width of its confidence interval.
    pub plus_minus: Option<f64>,
}

/// Simulates the points of `figure`, by curve, K and load. Calls `done` after each.
pub fn figure2(figure: &Figure2, done: impl Fn() + Sync) -> Result<Vec<Figure2Row>, SpecError> {
    let Distribution::Bimodal { large_percent, .. } = figure.base.distribution else {
        return Ok(Vec::new());
    };
    let mut points = Vec::new();
    for &binding in &figure.bindings {
        for &k in &figure.ks {
            points.extend(figure.loads.iter().map(|&load| (binding, k, load)));
        }
    }
    let spec = |&(binding, k, load): &(Binding, f64, f64)| Spec {
        binding,
        load,
        distribution: Distribution::Bimodal { k, large_percent },
        ..figure.base.clone()
    };
    let specs: Vec<_> = points.iter().map(spec).collect();
    let outcomes = run_all(&specs, done)?;
    let row = |(&(model, k, load), outcome): (&(Binding, f64, f64), &super::Outcome)| Figure2Row {
        model,
        k,
        load,
        throughput: outcome.rate,
        percentile: outcome.response.all.percentile.value,
        plus_minus: outcome.response.all.percentile.plus_minus,
    };
    Ok(points.iter().zip(&outcomes).map(row).collect())
}
