//! The parts of Minos' advantage: the cores, the TX queues and the link, which the paper does not separate.

use anyhow::{Context, Result};
use minos_sim::dispatch::{Costs, Mix, Outcome};

use super::{
    super::{
        plots::{Paper, Plot, Scale},
        table::{Cell, Table},
    },
    Contestant, MINOS, STEALING, STEALING_APART, Study,
};

pub(super) const PLOT: Plot = plot("parts");
pub(super) const PLOT_MORE: Plot = plot("parts-more");

const fn plot(number: &'static str) -> Plot {
    Plot::new(
        Paper::Minos,
        number,
        ("link Gbit/s", Scale::Log10),
        &[STEALING.name, STEALING_APART.name, MINOS.name],
    )
    .panels("costs")
    .y_called("Mops within ten mean response times")
    .log_y()
}

const DESIGNS: [Contestant; 3] = [STEALING, STEALING_APART, MINOS];
/// The last link is never the bottleneck.
const LINKS_GBPS: [f64; 4] = [10.0, 40.0, 100.0, 1000.0];
/// p_L of [`figure_parts_more`].
const LARGE_PERCENT: f64 = 0.75;

const MEASURED: &str = include_str!("../../../../../docs/results/costs-kernel-bypass.toml");
const UDP: &str = include_str!("../../../../../docs/results/costs-sockets.toml");
const TCP: &str = include_str!("../../../../../docs/results/dispatch-costs.toml");

/// The costs to compare: the paper's platform in two versions, and measured ones.
pub(super) fn costs() -> Result<[(&'static str, Costs); 5]> {
    let read = |text| -> Result<Costs> {
        let measured: Costs = toml::from_str(text).context("docs/results")?;
        // Only the design matters here, not other load on the measured machine.
        Ok(Costs { pauses: Vec::new(), speed: Default::default(), client: Default::default(), ..measured })
    };
    Ok([
        ("paper fitted", Costs::kernel_bypass()),
        ("paper figure 1", Costs::figure_1()),
        ("no kernel", read(MEASURED)?),
        ("kernel UDP", read(UDP)?),
        ("kernel TCP", read(TCP)?),
    ])
}

/// The default workload.
pub(super) fn figure_parts(study: &Study<'_>) -> Result<Table> {
    parts(study, Mix::PAPER)
}

/// More large requests.
pub(super) fn figure_parts_more(study: &Study<'_>) -> Result<Table> {
    parts(study, Mix { large_percent: LARGE_PERCENT, ..Mix::PAPER })
}

/// Throughput within the strict limit by costs and link: the gain of HKH+WS from a TX queue for large
/// replies, and the further gain from cores that only serve large requests.
fn parts(study: &Study<'_>, mix: Mix) -> Result<Table> {
    let mut rows = Vec::new();
    for (name, costs) in costs()? {
        for link_gbps in LINKS_GBPS {
            let study = Study { costs: Costs { link_gbps, ..costs.clone() }, ..study.clone() };
            let [limit_us, _] = Study { costs: costs.clone(), ..study.clone() }.limits_us()?;
            let found = study.highest(&DESIGNS, mix, limit_us)?;
            rows.push(row(name, [link_gbps, limit_us], &found));
        }
    }
    let title = format!(
        "throughput within a 99th percentile of ten mean response times by the link; p_L {} %, 8 workers",
        mix.large_percent
    );
    let mut columns =
        vec!["costs", "link Gbit/s", "limit us", STEALING.name, STEALING_APART.name, MINOS.name];
    columns.extend(["TX queue", "cores", "both"]);
    Ok(Table { title, columns, rows })
}

fn row(name: &'static str, at: [f64; 2], found: &[Option<Outcome>]) -> Vec<Cell> {
    let mops = |place: usize| found[place].as_ref().map_or(f64::NAN, |outcome| outcome.achieved_rps / 1e6);
    let [stealing, apart, minos] = [0, 1, 2].map(mops);
    let numbers = [stealing, apart, minos, apart / stealing, minos / apart, minos / stealing];
    [Cell::Name(name)].into_iter().chain(at.into_iter().chain(numbers).map(Cell::Number)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_measured_costs_are_read_without_what_else_the_machine_did() {
        for (name, costs) in costs().unwrap() {
            assert_eq!(costs.check(), Ok(()), "{name}");
            assert!(costs.pauses.is_empty() && costs.speed.worker.is_empty(), "{name}");
        }
    }
}
