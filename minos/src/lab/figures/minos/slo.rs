//! Figures 6 and 7: throughput within a limit on the 99th percentile (Minos §6.3).

use anyhow::Result;
use minos_sim::dispatch::{Mix, Outcome};

use super::{
    super::{
        plots::{Paper, Plot, Scale},
        table::{Cell, Table},
    },
    DESIGNS, Study,
};

pub(super) const PLOT_6: Plot = plot("6", ("p_L %", Scale::Log2));
pub(super) const PLOT_7: Plot = plot("7", ("s_L KB", Scale::Linear));

const fn plot(number: &'static str, x: (&'static str, Scale)) -> Plot {
    Plot::new(Paper::Minos, number, x, &["speed-up"]).panels("limit us").lines("over").log_y()
}

/// p_L of table 1, in percent.
const LARGE_PERCENTS: [f64; 5] = [0.0625, 0.125, 0.25, 0.5, 0.75];
/// s_L of table 1, in bytes.
const LARGE_MAXES: [u64; 3] = [250_000, 500_000, 1_000_000];

/// A growing share of large requests.
pub(super) fn figure_6(study: &Study<'_>) -> Result<Table> {
    let mixes = LARGE_PERCENTS.map(|large_percent| (large_percent, Mix { large_percent, ..Mix::PAPER }));
    let rows = speed_ups(study, &mixes)?;
    let title = study.title("Minos' throughput within a 99th percentile over that of the others, s_L 500 KB");
    Ok(Table { title, columns: columns("p_L %"), rows })
}

/// Large requests of growing size.
pub(super) fn figure_7(study: &Study<'_>) -> Result<Table> {
    let mixes = LARGE_MAXES.map(|large_max| (large_max as f64 / 1e3, Mix { large_max, ..Mix::PAPER }));
    let rows = speed_ups(study, &mixes)?;
    let title =
        study.title("Minos' throughput within a 99th percentile over that of the others, p_L 0.125 %");
    Ok(Table { title, columns: columns("s_L KB"), rows })
}

fn columns(x: &'static str) -> Vec<&'static str> {
    vec!["limit us", "over", x, "speed-up", "Mops", "Minos Mops"]
}

/// A row for each limit, mix and design except Minos.
fn speed_ups(study: &Study<'_>, mixes: &[(f64, Mix)]) -> Result<Vec<Vec<Cell>>> {
    let mut rows = Vec::new();
    for &(x, mix) in mixes {
        for limit_us in study.limits_us()? {
            let found = study.highest(&DESIGNS, mix, limit_us)?;
            // Zero where even a request without competition takes longer.
            let mops = |found: &Option<Outcome>| found.as_ref().map_or(0.0, |found| found.achieved_rps / 1e6);
            let minos = found.last().map_or(0.0, mops);
            let others = DESIGNS.iter().zip(&found).take(DESIGNS.len() - 1);
            rows.extend(others.map(|(design, found)| {
                let speed_up = if found.is_some() { minos / mops(found) } else { f64::NAN };
                let numbers = [x, speed_up, mops(found), minos].map(Cell::Number);
                [limit_us.into(), design.name.into()].into_iter().chain(numbers).collect()
            }));
        }
    }
    Ok(rows)
}
