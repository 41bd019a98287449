//! The highest throughput of each design.

use super::{
    designs::Contest,
    runner::{Case, Runner},
    table::Table,
    target,
};
use crate::measure::{
    Samples,
    report::{Report, cell},
};

/// Measurements of HKH from which the loads are derived.
const BEFORE: u32 = 3;
/// Share of HKH's throughput that size-aware sharding must reach.
const SHARE_MIN: f64 = 0.9;

/// The throughput of HKH, from which loads are derived; the first server is HKH with two workers.
pub(super) fn keyhash_per_s(
    runner: &mut Runner<'_>,
    contests: &[Contest],
    workload: &[&str],
) -> anyhow::Result<f64> {
    let arguments = arguments(workload);
    let mut samples = Samples::default();
    for _ in 0..BEFORE {
        let case = Case { name: "saturation before", round: 0 };
        samples.push(runner.measure(&contests[0], case, &arguments)?.achieved_per_s);
    }
    Ok(samples.median())
}

/// A table of closed-loop throughput.
pub(super) fn table<'a>(contests: &[Contest], workload: &[&'a str]) -> Table<'a> {
    Table::new("saturation", arguments(workload), contests)
}

fn arguments<'a>(workload: &[&'a str]) -> Vec<&'a str> {
    [workload, &["--rate", "max"]].concat()
}

pub(super) fn targets(table: &Table<'_>) -> String {
    let ratio = table.size_aware_to_keyhash(|sample| sample.achieved_per_s);
    let what = "throughput at saturation, size-aware to keyhash";
    target(what, &format!("at least {SHARE_MIN}"), &cell(&ratio, 2), ratio.median() >= SHARE_MIN)
}

pub(super) fn report(table: &Table<'_>) -> Report {
    let mut report = Report::new(
        "Throughput at saturation",
        "Closed loop, 16 connections with one request each at a time. Ratios are to keyhash with as many workers in the \
         same round. Where driver and worker share a processor, processor time a request says more about the server \
         than requests a second.",
        &["design", "thousand requests a second", "ratio", "server's processor time a request, us", "ratio"],
    );
    for row in &table.rows {
        report.rows.push(vec![
            row.name.to_owned(),
            cell(&row.series.samples(|sample| sample.achieved_per_s / 1e3), 1),
            cell(&table.to_keyhash(row, |sample| sample.achieved_per_s), 2),
            cell(&row.series.samples(|sample| sample.server_cpu_us), 2),
            cell(&table.to_keyhash(row, |sample| sample.server_cpu_us), 2),
        ]);
    }
    report
}
