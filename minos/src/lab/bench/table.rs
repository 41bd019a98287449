//! Results as text.

use std::collections::BTreeMap;

use comfy_table::{Cell, CellAlignment, Table};
use minos_base::SizeText;
use minos_workload::{LoadReport, Octave, Quantiles, Report, Target};

use super::{bar, log_share};

pub(super) fn report(report: &Report) -> String {
    let mut lines = vec![
        format!("{} on {}, {} s, seed {}", report.workload, report.target, report.duration_s, report.seed),
        summary(report),
    ];
    if report.completed > 0 {
        lines.push(latencies(report).to_string());
        lines.extend(histogram(&report.latency_us.octaves));
        lines.push(driver_share(report));
    }
    lines.extend(of_a_rack(&report.errors_by_kind).map(str::to_owned));
    if report.misses * 100 > report.completed {
        lines.push("many keys were not found: store them first with --load".to_owned());
    }
    lines.join("\n")
}

fn summary(report: &Report) -> String {
    let mut text = format!(
        "offered {:.0}/s, achieved {:.0}/s, completed {}, errors {}, lost {}, misses {}",
        report.offered_rps, report.achieved_rps, report.completed, report.errors, report.lost, report.misses
    );
    if report.errors > 0 {
        text.push_str(&format!(" ({})", kinds(&report.errors_by_kind)));
    }
    if let Some(cpu_us) = report.server_cpu_us_per_op {
        text.push_str(&format!(", server CPU {cpu_us:.2} us/op"));
    }
    // Requests of many keys, or vectors of operations.
    if report.operations_per_s > 1.01 * report.achieved_rps {
        text.push_str(&format!("\nin them {:.0} operations/s", report.operations_per_s));
        if let Some(rate) = report.operations_per_server_cpu_s {
            text.push_str(&format!(", {rate:.0} for each second of server CPU"));
        }
    }
    text
}

fn latencies(report: &Report) -> Table {
    let mut table = numbers_table(&["latency, us", "p50", "p90", "p99", "p99.9", "p99.99", "max", "count"]);
    let rows = [
        ("all", &report.latency_us.all),
        ("small", &report.latency_us.small),
        ("large", &report.latency_us.large),
    ];
    for (name, quantiles) in rows.into_iter().filter(|(_, quantiles)| quantiles.count > 0) {
        let Quantiles { p50, p90, p99, p999, p9999, max, count, .. } = quantiles;
        let mut cells = vec![Cell::new(name)];
        cells.extend([p50, p90, p99, p999, p9999, max].map(|us| number(micros(*us))));
        cells.push(number(count.to_string()));
        table.add_row(cells);
    }
    table
}

/// Columns of the longest bar.
const BAR_COLUMNS: usize = 40;

/// A bar for each octave of latency, by a logarithmic scale on which one operation can be seen.
fn histogram(octaves: &[Octave]) -> Option<String> {
    let most = octaves.iter().map(|octave| octave.small + octave.large).max()?;
    let line = |octave: &Octave| {
        let Octave { up_to_us, small, large } = *octave;
        let share =
            if small + large == 0 { 0.0 } else { log_share((small + large) as f64, 0.5, most as f64) };
        let of_which = if large > 0 { format!(", {large} large") } else { String::new() };
        format!("{:>9} us {} {}{of_which}", micros(up_to_us), bar(share, BAR_COLUMNS), small + large)
    };
    let lines: Vec<_> = octaves.iter().map(line).collect();
    Some(format!("operations that took up to twice as long each (logarithmic bars)\n{}", lines.join("\n")))
}

/// The driver's own delays, so that the server is not blamed for them.
fn driver_share(report: &Report) -> String {
    let share = &report.driver;
    let busy =
        share.busy.map_or_else(String::new, |busy| format!("; busy {:.0} % of its time", 100.0 * busy));
    if share.send_lag_us.count == 0 {
        return format!("closed loop: latencies count from the actual send time{busy}");
    }
    format!(
        "of that the driver: sent late by p50 {} p99 {} us; arrivals dated by the {}{busy}",
        micros(share.send_lag_us.p50),
        micros(share.send_lag_us.p99),
        if share.kernel_stamped > 0.5 { "kernel" } else { "driver" },
    )
}

/// The result of a load, as text.
pub(super) fn load(target: &Target, loaded: &LoadReport) -> String {
    let sizes = &loaded.value_bytes;
    format!(
        "stored {} items in {target} within {:.1} s: {} of values, p50 {}, p90 {}, p99 {}, max {} bytes",
        loaded.stored,
        loaded.duration_s,
        rounded_size(sizes.total),
        sizes.p50,
        sizes.p90,
        sizes.p99,
        sizes.max
    )
}

/// What to do if the server does not own all keys.
pub(super) fn of_a_rack(errors: &BTreeMap<String, u64>) -> Option<&'static str> {
    errors.contains_key("not_owner").then_some(
        "the server is a node of a rack, and minos:// asks it alone: measure the rack by memcached:// or resp://",
    )
}

/// Errors by kind in one line.
pub(super) fn kinds(errors: &BTreeMap<String, u64>) -> String {
    let kinds: Vec<String> = errors.iter().map(|(kind, count)| format!("{kind} {count}")).collect();
    if kinds.is_empty() { "no answer".to_owned() } else { kinds.join(", ") }
}

/// A table whose first column holds names.
pub(super) fn numbers_table(header: &[&str]) -> Table {
    crate::lab::sim::table(header, 1, [])
}

pub(super) fn number(text: impl Into<String>) -> Cell {
    Cell::new(text.into()).set_alignment(CellAlignment::Right)
}

/// Microseconds with all significant digits.
pub(super) fn micros(us: f64) -> String {
    if us < 100.0 { format!("{us:.1}") } else { format!("{us:.0}") }
}

fn rounded_size(bytes: u64) -> SizeText {
    let shift = [30, 20, 10].into_iter().find(|shift| bytes >> shift >= 10).unwrap_or(0);
    SizeText(bytes >> shift << shift)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_rounded_to_two_digits_or_more() {
        assert_eq!(rounded_size(123_456_789).to_string(), "117m");
        assert_eq!(rounded_size(500).to_string(), "500");
        assert_eq!(rounded_size(11 << 30).to_string(), "11g");
    }

    #[test]
    fn microseconds_have_three_digits() {
        assert_eq!([micros(9.87), micros(99.94), micros(1234.5)], ["9.9", "99.9", "1234"]);
    }
}
