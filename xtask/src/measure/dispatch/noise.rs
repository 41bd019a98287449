//! Small requests beside a trickle of very large ones on other connections.

use super::{designs::Contest, runner::Sample, table::Table, target};
use crate::measure::report::{Report, cell};

/// Small GETs at 40 k a second, and 20 GETs of 10 MB a second.
pub(super) const WORKLOAD: [&str; 2] = ["--workload", "noise"];
/// Upper bound for the 99th percentile of small requests, as a share of HKH's: three times better.
const SHARE_MAX: f64 = 1.0 / 3.0;

pub(super) fn table(contests: &[Contest]) -> Table<'static> {
    Table::new("noise", WORKLOAD.to_vec(), contests)
}

pub(super) fn targets(table: &Table<'_>) -> String {
    let ratio = table.size_aware_to_keyhash(|sample| sample.small.p99_us);
    let what = "small p99 under noise, size-aware to keyhash";
    target(what, "at most 0.33", &cell(&ratio, 2), ratio.median() <= SHARE_MAX)
}

pub(super) fn report(table: &Table<'_>) -> Report {
    let mut report = Report::new(
        "Under noise",
        "40 000 GETs of small values a second on 16 connections beside 20 GETs a second of 10 MB on 4 others \
         (`minos bench --workload noise`). Microseconds. The ratio is of 99th percentiles, to keyhash with as many \
         workers in the same round.",
        &["design", "small p50", "p90", "p99", "p99.9", "ratio", "large p50", "lost"],
    );
    for row in &table.rows {
        let us = |figure: fn(&Sample) -> f64| cell(&row.series.samples(figure), 0);
        report.rows.push(vec![
            row.name.to_owned(),
            us(|sample| sample.small.p50_us),
            us(|sample| sample.small.p90_us),
            us(|sample| sample.small.p99_us),
            us(|sample| sample.small.p999_us),
            cell(&table.to_keyhash(row, |sample| sample.small.p99_us), 2),
            us(|sample| sample.large.p50_us),
            row.series.lost().to_string(),
        ]);
    }
    report
}
