//! Figures 3 to 5: the 99th percentile by throughput (Minos §6.1, §6.2).

use anyhow::Result;
use minos_sim::dispatch::{Design, Mix, Outcome};

use super::{
    super::{
        plots::{Paper, Plot, Scale},
        table::{Cell, Table},
    },
    DESIGNS, Study, keeps_up,
};

pub(super) const PLOT_3: Plot = plot("3", &["p99 us"]);
pub(super) const PLOT_4: Plot = plot("4", &["large p99 us"]);
pub(super) const PLOT_5: Plot = plot("5", &["p99 us"]);

const fn plot(number: &'static str, y: &'static [&'static str]) -> Plot {
    Plot::new(Paper::Minos, number, ("Mops", Scale::Linear), y).lines("design").log_y()
}

/// The default workload.
pub(super) fn figure_3(study: &Study<'_>) -> Result<Table> {
    by_throughput(study, "default workload", Mix::PAPER, &DESIGNS)
}

/// Large requests are so few that their 99th percentile needs so many times as many requests.
const REQUESTS_FOR_LARGE: u64 = 5;

/// What large requests pay; beside the paper's two designs the one that it has planned.
pub(super) fn figure_4(study: &Study<'_>) -> Result<Table> {
    let helping: (&str, &[Design]) = ("Minos helping", &[Design::Helping]);
    let designs = [DESIGNS[2], DESIGNS[3], helping];
    let study = Study { requests: REQUESTS_FOR_LARGE.saturating_mul(study.requests), ..study.clone() };
    by_throughput(&study, "default workload, latencies of large requests", Mix::PAPER, &designs)
}

/// As many PUTs as GETs.
pub(super) fn figure_5(study: &Study<'_>) -> Result<Table> {
    by_throughput(study, "50:50 GET:PUT", Mix { get_ratio: 0.5, ..Mix::PAPER }, &DESIGNS)
}

/// Latencies of each design at the loads that it keeps up with.
fn by_throughput(
    study: &Study<'_>,
    workload: &str,
    mix: Mix,
    designs: &[(&'static str, &[Design])],
) -> Result<Table> {
    let rates = study.rates(mix)?;
    let mut rows = Vec::new();
    for (name, variants) in designs {
        for &rate in &rates {
            let specs: Vec<_> = variants.iter().map(|&design| study.spec(design, rate, mix)).collect();
            let outcomes = study.run_all(&specs)?;
            rows.extend(best(&outcomes).map(|outcome| row(name, outcome)));
        }
    }
    let columns =
        vec!["design", "dispatch", "Mops", "p99 us", "small p99 us", "large p99 us", "p50 us", "NIC %"];
    Ok(Table { title: study.title(workload), columns, rows })
}

/// Of those that keep up, the one with the lowest percentile.
fn best(outcomes: &[Outcome]) -> Option<&Outcome> {
    let percentile = |outcome: &&Outcome| outcome.latency_us.all.percentile.value;
    let in_time = outcomes.iter().filter(|outcome| keeps_up(outcome));
    in_time.min_by(|a, b| percentile(a).total_cmp(&percentile(b)))
}

fn row(name: &'static str, outcome: &Outcome) -> Vec<Cell> {
    let latency = &outcome.latency_us;
    let numbers = [
        outcome.achieved_rps / 1e6,
        latency.all.percentile.value,
        latency.small.percentile.value,
        latency.large.percentile.value,
        latency.all.p50,
        100.0 * outcome.link_busy,
    ];
    let names = [name, outcome.design].map(Cell::Name);
    names.into_iter().chain(numbers.map(Cell::Number)).collect()
}
