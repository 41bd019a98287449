//! Two servers, measured in turn.

use anyhow::Result;
use comfy_table::Cell;
use minos_workload::{Report, RunConfig, Target, Workload};
use serde_json::{Map, Value, json};

use super::{
    BenchArgs, aimed_at, emit_either, measure,
    table::{micros, number, numbers_table},
};

/// A figure to compare: its name and its accessor.
type Figure = (&'static str, fn(&Report) -> Option<f64>);

const FIGURES: [Figure; 9] = [
    ("small p50 us", |report| counted(report.latency_us.small.count, report.latency_us.small.p50)),
    ("small p99 us", |report| counted(report.latency_us.small.count, report.latency_us.small.p99)),
    ("small p99.9 us", |report| counted(report.latency_us.small.count, report.latency_us.small.p999)),
    ("small p99.99 us", |report| counted(report.latency_us.small.count, report.latency_us.small.p9999)),
    ("large p50 us", |report| counted(report.latency_us.large.count, report.latency_us.large.p50)),
    ("large p99 us", |report| counted(report.latency_us.large.count, report.latency_us.large.p99)),
    ("achieved/s", |report| Some(report.achieved_rps)),
    ("server CPU us/op", |report| report.server_cpu_us_per_op),
    ("errors and lost", |report| Some((report.errors + report.lost) as f64)),
];

fn counted(count: u64, value: f64) -> Option<f64> {
    (count > 0).then_some(value)
}

/// Runs the rounds and prints medians, spreads and ratios.
pub(super) fn run(args: &BenchArgs, config: &RunConfig, rival: &Target, workload: &Workload) -> Result<()> {
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    let rival = aimed_at(config, rival);
    for _ in 0..args.rounds {
        ours.push(measure(config, workload, args.is_quiet())?);
        theirs.push(measure(&rival, workload, args.is_quiet())?);
    }
    Ok(emit_either(args.json, &as_json(&ours, &theirs), &comparison(&ours, &theirs))?)
}

/// The median and the extremes over the rounds.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Spread {
    median: f64,
    least: f64,
    most: f64,
}

fn spread(reports: &[Report], figure: fn(&Report) -> Option<f64>) -> Option<Spread> {
    spread_of(reports.iter().filter_map(figure).collect())
}

fn spread_of(mut values: Vec<f64>) -> Option<Spread> {
    values.sort_by(f64::total_cmp);
    let (&least, &most) = (values.first()?, values.last()?);
    let middle = values.len() / 2;
    let median =
        if values.len() % 2 == 1 { values[middle] } else { (values[middle - 1] + values[middle]) / 2.0 };
    Some(Spread { median, least, most })
}

/// The second server's figure as a multiple of the first one's.
fn ratio(ours: Spread, theirs: Spread) -> Option<f64> {
    (ours.median > 0.0).then(|| theirs.median / ours.median)
}

/// Both servers side by side, as text.
fn comparison(ours: &[Report], theirs: &[Report]) -> String {
    let Some((our, their)) = ours.first().zip(theirs.first()) else { return String::new() };
    let mut table = numbers_table(&["", "A", "B", "B / A"]);
    for (name, figure) in FIGURES {
        let (Some(a), Some(b)) = (spread(ours, figure), spread(theirs, figure)) else { continue };
        let ratio = ratio(a, b).map_or("-".to_owned(), |ratio| format!("{ratio:.2}"));
        table.add_row([Cell::new(name), number(shown(a)), number(shown(b)), number(ratio)]);
    }
    format!(
        "{}, {} rounds in turn, medians (least to most)\nA: {}\nB: {}\n{table}",
        our.workload,
        ours.len(),
        our.target,
        their.target
    )
}

fn shown(spread: Spread) -> String {
    format!("{} ({} to {})", micros(spread.median), micros(spread.least), micros(spread.most))
}

fn as_json(ours: &[Report], theirs: &[Report]) -> Value {
    let mut figures = Map::new();
    for (name, figure) in FIGURES {
        let (Some(a), Some(b)) = (spread(ours, figure), spread(theirs, figure)) else { continue };
        let side =
            |spread: Spread| json!({ "median": spread.median, "min": spread.least, "max": spread.most });
        figures.insert(
            name.replace([' ', '/', '.'], "_"),
            json!({ "a": side(a), "b": side(b), "ratio": ratio(a, b) }),
        );
    }
    json!({
        "a": ours.first().map(|report| &report.target),
        "b": theirs.first().map(|report| &report.target),
        "figures": figures,
        "rounds": { "a": ours, "b": theirs },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_and_ratios() {
        let odd = spread_of(vec![3.0, 1.0, 2.0]).unwrap();
        assert_eq!(odd, Spread { median: 2.0, least: 1.0, most: 3.0 });
        let even = spread_of(vec![4.0, 1.0, 2.0, 8.0]).unwrap();
        assert_eq!(even.median, 3.0);
        assert_eq!(ratio(odd, even), Some(1.5));
        assert_eq!(spread_of(Vec::new()), None);
        assert_eq!(ratio(Spread { median: 0.0, ..odd }, even), None);
    }
}
