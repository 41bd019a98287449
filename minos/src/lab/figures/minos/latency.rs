//! Figures 3 to 5: the 99th percentile by throughput (Minos §6.1, §6.2).

use anyhow::Result;
use minos_sim::dispatch::{Design, Mix, Outcome};

use super::{
    super::{
        plots::{Paper, Plot, Scale},
        table::{Cell, Table},
    },
    Contestant, DESIGNS, MINOS, STEALING, STEALING_APART, Study, keeps_up, rates,
};

pub(super) const PLOT_3: Plot = plot("3", &["p99 us"]);
pub(super) const PLOT_4: Plot = plot("4", &["large p99 us"]);
pub(super) const PLOT_5: Plot = plot("5", &["p99 us"]);

const fn plot(number: &'static str, y: &'static [&'static str]) -> Plot {
    Plot::new(Paper::Minos, number, ("Mops", Scale::Linear), y).lines("design").log_y()
}

/// The default workload.
pub(super) fn figure_3(study: &Study<'_>) -> Result<Table> {
    by_throughput(study, "default workload", Mix::PAPER, &DESIGNS, &ALL)
}

/// Large requests are so few that their 99th percentile needs this many times as many requests.
const REQUESTS_FOR_LARGE: u64 = 5;

/// Latencies of large requests; the paper's two designs, and the variant that it plans.
pub(super) fn figure_4(study: &Study<'_>) -> Result<Table> {
    let helping = Contestant::new("Minos helping", Design::Helping);
    let designs = [STEALING, STEALING_APART, MINOS, helping];
    let study = Study { requests: REQUESTS_FOR_LARGE.saturating_mul(study.requests), ..study.clone() };
    by_throughput(&study, "default workload, latencies of large requests", Mix::PAPER, &designs, &LARGE)
}

/// As many PUTs as GETs.
pub(super) fn figure_5(study: &Study<'_>) -> Result<Table> {
    by_throughput(study, "50:50 GET:PUT", Mix { get_ratio: 0.5, ..Mix::PAPER }, &DESIGNS, &ALL)
}

/// The percentile to compare, and the design to compare with.
struct Compared {
    base: &'static str,
    column: &'static str,
    us: fn(&Outcome) -> f64,
}

const ALL: Compared = Compared {
    base: MINOS.name,
    column: "over Minos",
    us: |outcome| outcome.latency_us.all.percentile.value,
};
const LARGE: Compared = Compared {
    base: STEALING.name,
    column: "over HKH+WS",
    us: |outcome| outcome.latency_us.large.percentile.value,
};

/// Latencies of each design at the loads that it keeps up with; the last row of each is its peak.
fn by_throughput(
    study: &Study<'_>,
    workload: &str,
    mix: Mix,
    designs: &[Contestant],
    compared: &Compared,
) -> Result<Table> {
    let peaks = study.highest(designs, mix, f64::MAX)?;
    let most = peaks.iter().flatten().map(|peak| peak.offered_rps).fold(0.0, f64::max);
    let rates = rates(most);
    let mut runs: Vec<(&Contestant, f64, Outcome)> = Vec::new();
    for (design, peak) in designs.iter().zip(peaks) {
        let Some(peak) = peak else { continue };
        for &rate in rates.iter().take_while(|rate| **rate < peak.offered_rps) {
            let outcomes = study.run_all(&study.specs(design, rate, mix))?;
            runs.extend(best(outcomes).map(|outcome| (design, rate, outcome)));
        }
        runs.push((design, peak.offered_rps, peak));
    }
    let base_us = |rate: f64| {
        let base = runs.iter().find(|(design, at, _)| design.name == compared.base && *at == rate);
        base.map_or(f64::NAN, |(_, _, outcome)| (compared.us)(outcome))
    };
    let row = |(design, rate, outcome): &(&Contestant, f64, Outcome)| {
        row(design.name, outcome, (compared.us)(outcome) / base_us(*rate))
    };
    let rows = runs.iter().map(row).collect();
    let mut columns =
        vec!["design", "dispatch", "Mops", "p99 us", "small p99 us", "large p99 us", "p50 us", "NIC %"];
    columns.extend(["busiest worker %", compared.column]);
    Ok(Table { title: study.title(workload), columns, rows })
}

/// Of the outcomes that keep up, the one with the lowest percentile.
fn best(outcomes: Vec<Outcome>) -> Option<Outcome> {
    let percentile = |outcome: &Outcome| outcome.latency_us.all.percentile.value;
    outcomes.into_iter().filter(keeps_up).min_by(|a, b| percentile(a).total_cmp(&percentile(b)))
}

fn row(name: &'static str, outcome: &Outcome, over: f64) -> Vec<Cell> {
    let latency = &outcome.latency_us;
    let numbers = [
        outcome.achieved_rps / 1e6,
        latency.all.percentile.value,
        latency.small.percentile.value,
        latency.large.percentile.value,
        latency.all.p50,
        100.0 * outcome.link_busy,
        100.0 * outcome.busiest(),
        over,
    ];
    let names = [name, outcome.design].map(Cell::Name);
    names.into_iter().chain(numbers.map(Cell::Number)).collect()
}
