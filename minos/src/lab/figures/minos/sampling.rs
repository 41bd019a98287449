//! Figure 8: a link with spare capacity, as some replies are not sent (Minos §6.4).

use anyhow::{Context, Result};
use minos_sim::dispatch::{Design, Mix, Outcome, Spec, throughput_under};

use super::{
    super::{
        plots::{Paper, Plot, Scale},
        table::{Cell, Table},
    },
    OVERLOAD, Study, keeps_up,
};

pub(super) const PLOTS: [Plot; 2] =
    [plot("8a", &["p99 us"]).log_y(), plot("8b", &["NIC %"]).y_called("link, % busy")];

const fn plot(number: &'static str, y: &'static [&'static str]) -> Plot {
    Plot::new(Paper::Minos, number, ("Mops", Scale::Linear), y).lines("S %")
}

/// S: percentages of replies that are sent.
const REPLY_PERCENTS: [f64; 4] = [100.0, 75.0, 50.0, 25.0];
/// p_L; it fills the link soon.
const MIX: Mix = Mix { large_percent: 0.75, ..Mix::PAPER };
/// A busier link cannot carry the large replies, whose queue then grows without bound.
const LINK_BUSY_MAX: f64 = 0.99;
/// Loads, up to the highest.
const LOADS: u32 = 16;

/// Minos' latencies and the link's load by throughput, for each S.
pub(super) fn figure_8(study: &Study<'_>) -> Result<Table> {
    let mut rows = Vec::new();
    for reply_percent in REPLY_PERCENTS {
        let spec = |rate| Spec { reply_percent, ..study.spec(Design::SizeAware, rate, MIX) };
        let most = throughput_under(&spec(OVERLOAD), f64::MAX)?;
        study.bar.tick();
        let most = most.context("costs: they allow no load that is worth a figure")?.offered_rps;
        let rates = (1..=LOADS).map(|load| most * f64::from(load) / f64::from(LOADS));
        let outcomes = study.run_all(&rates.map(spec).collect::<Vec<_>>())?;
        let has_room = |outcome: &&Outcome| keeps_up(outcome) && outcome.link_busy < LINK_BUSY_MAX;
        rows.extend(outcomes.iter().filter(has_room).map(|outcome| row(reply_percent, outcome)));
    }
    let title = study.title("Minos with S % of the replies sent, p_L 0.75 %");
    Ok(Table { title, columns: vec!["S %", "Mops", "p99 us", "NIC %", "busiest worker %"], rows })
}

fn row(reply_percent: f64, outcome: &Outcome) -> Vec<Cell> {
    let numbers = [
        reply_percent,
        outcome.achieved_rps / 1e6,
        outcome.latency_us.all.percentile.value,
        100.0 * outcome.link_busy,
        100.0 * outcome.busiest(),
    ];
    numbers.map(Cell::Number).to_vec()
}
