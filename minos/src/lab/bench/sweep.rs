//! Latency against throughput.

use anyhow::Result;
use comfy_table::Cell;
use minos_workload::{Arrivals, Report, RunConfig, Workload};
use serde_json::json;

use crate::lab::sim::Range;

use super::{
    BenchArgs, bar, emit_either, log_share, measure,
    table::{micros, number, numbers_table},
};

/// The share of the offered rate below which a server is overloaded: its queue grows without bound.
const KEPT_UP: f64 = 0.95;

/// Measures at each rate and prints the curve.
pub(super) fn run(args: &BenchArgs, config: &RunConfig, range: Range, workload: &Workload) -> Result<()> {
    let mut reports = Vec::new();
    for rate in rates(range, args.sweep_steps) {
        let config = RunConfig { arrivals: Arrivals::Open { rate }, ..config.clone() };
        let report = measure(&config, workload, args.is_quiet())?;
        let kept_up = report.achieved_rps >= KEPT_UP * report.offered_rps;
        reports.push(report);
        // Under overload the latency only reflects the length of the run.
        if !kept_up {
            break;
        }
    }
    Ok(emit_either(args.json, &json!({ "sweep": reports }), &curve(&reports))?)
}

/// `steps` rates from end to end, each the same multiple of the one before.
fn rates(range: Range, steps: u32) -> impl Iterator<Item = f64> {
    let ratio = (range.to / range.from).powf(1.0 / f64::from(steps - 1));
    (0..steps).map(move |step| range.from * ratio.powi(step as i32))
}

/// The curve as a table with a bar for each rate.
fn curve(reports: &[Report]) -> String {
    let Some((first, last)) = reports.first().zip(reports.last()) else { return String::new() };
    let p99s = || reports.iter().map(|report| report.latency_us.small.p99);
    let (least, most) = (p99s().fold(f64::MAX, f64::min), p99s().fold(0.0, f64::max));
    let mut table =
        numbers_table(&["offered/s", "achieved/s", "p50", "p99", "p99.9", "CPU us/op", "lost", "p99"]);
    for report in reports {
        // The scale begins at half of the least value, so that its bar is visible too.
        table.add_row(row(report, log_share(report.latency_us.small.p99, least / 2.0, most)));
    }
    let mut text =
        format!("{} on {}, latency of small requests in us\n{table}", first.workload, first.target);
    if last.achieved_rps < KEPT_UP * last.offered_rps {
        text.push_str(&format!("\nthe server did not keep up with {:.0}/s", last.offered_rps));
    }
    text
}

fn row(report: &Report, share: f64) -> Vec<Cell> {
    const BAR_WIDTH: usize = 32;
    let small = &report.latency_us.small;
    let mut cells = vec![number(format!("{:.0}", report.offered_rps))];
    cells.push(number(format!("{:.0}", report.achieved_rps)));
    cells.extend([small.p50, small.p99, small.p999].map(|us| number(micros(us))));
    cells.push(number(report.server_cpu_us_per_op.map_or("-".to_owned(), |us| format!("{us:.2}"))));
    cells.push(number(report.lost.to_string()));
    cells.push(Cell::new(bar(share, BAR_WIDTH)));
    cells
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_rise_in_equal_ratios_from_end_to_end() {
        let rates: Vec<f64> = rates(Range { from: 10_000.0, to: 160_000.0 }, 5).collect();
        for (rate, expected) in rates.iter().zip([10_000.0, 20_000.0, 40_000.0, 80_000.0, 160_000.0]) {
            assert!((rate - expected).abs() < 1.0, "{rates:?}");
        }
        assert_eq!(rates.len(), 5);
    }
}
