//! The penalty of large requests where copying is the bottleneck, and the designs that remove it (Minos
//! §6.1).

use anyhow::Result;
use minos_sim::dispatch::{Costs, Design, Mix, Outcome};

use super::{
    super::{
        plots::{Paper, Plot, Scale},
        table::{Cell, Table},
    },
    Contestant, MINOS, STEALING, STEALING_APART, Study, keeps_up, rates,
};

pub(super) const PLOTS: [Plot; 2] = [plot("4b", &["large p99 us"]), plot("4c", &["small p99 us"])];

const fn plot(number: &'static str, y: &'static [&'static str]) -> Plot {
    Plot::new(Paper::Minos, number, ("Mops", Scale::Linear), y).lines("design").log_y()
}

/// Cost of copying a byte: with it, Minos' large requests take up to twice as long, as in the paper.
const PER_BYTE_NS: f64 = 0.2;
/// A link that is not the bottleneck.
const LINK_GBPS: f64 = 100.0;

const DESIGNS: [Contestant; 5] = [
    STEALING,
    STEALING_APART,
    MINOS,
    Contestant::new("Minos helping", Design::Helping),
    Contestant::new("Minos work-conserving", Design::WorkConserving),
];

/// The 99th percentiles of large and of small requests by throughput.
pub(super) fn figure_4b(study: &Study<'_>) -> Result<Table> {
    let costs = Costs { per_byte_ns: PER_BYTE_NS, link_gbps: LINK_GBPS, ..study.costs.clone() };
    let study = Study { costs, ..study.clone() };
    let mut rows = Vec::new();
    for rate in rates(study.most(Mix::PAPER)?) {
        let specs: Vec<_> = DESIGNS.iter().flat_map(|design| study.specs(design, rate, Mix::PAPER)).collect();
        let outcomes = study.run_all(&specs)?;
        let stealing_us = outcomes[0].latency_us.large.percentile.value;
        let named = DESIGNS.iter().zip(&outcomes).filter(|(_, outcome)| keeps_up(outcome));
        rows.extend(named.map(|(design, outcome)| row(design.name, outcome, stealing_us)));
    }
    let title = study.title("default workload, but 0.2 ns a byte and 100 Gbit/s");
    Ok(Table { title, columns: vec!["design", "Mops", "large p99 us", "small p99 us", "penalty"], rows })
}

fn row(name: &'static str, outcome: &Outcome, stealing_us: f64) -> Vec<Cell> {
    let latency = &outcome.latency_us;
    let large_us = latency.large.percentile.value;
    let numbers =
        [outcome.achieved_rps / 1e6, large_us, latency.small.percentile.value, large_us / stealing_us];
    [Cell::Name(name)].into_iter().chain(numbers.map(Cell::Number)).collect()
}
