//! How processors stand still: gaps in a loop that only reads the clock.

use std::{
    process::Command,
    str::FromStr,
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, ensure};
use toml::{Table, Value};

use super::driver;

/// A gap above this is none of the loop's own.
const GAP_MIN: Duration = Duration::from_micros(5);
/// By this factor the longest of those that are taken for alike is longer than the shortest.
const ALIKE: f64 = 1.5;
/// Processors that are measured on.
const PROCESSORS: [&str; 2] = ["0", "1"];

/// Reads the clock for so long, and prints each gap in nanoseconds.
pub(crate) fn print(length: Duration) {
    let mut last = Instant::now();
    let (end, mut gaps) = (last + length, Vec::new());
    while last < end {
        let now = Instant::now();
        if now - last >= GAP_MIN {
            gaps.push(now - last);
        }
        last = now;
    }
    // What printing takes is no gap.
    gaps.iter().for_each(|gap| println!("{}", gap.as_nanos()));
}

/// Pauses of both processors.
#[derive(Clone, Debug, Default)]
pub(super) struct Pauses {
    /// How long was looked, both processors together.
    watched_s: f64,
    lengths_ns: Vec<f64>,
}

impl Pauses {
    /// Watches both processors for so long, before everything else there, if that is allowed.
    pub(super) fn watch(length: Duration) -> anyhow::Result<Self> {
        let outputs = thread::scope(|scope| {
            PROCESSORS
                .map(|processor| scope.spawn(move || watch_one(processor, length)))
                .map(|thread| thread.join().unwrap_or_else(|_| Ok(String::new())))
        });
        let mut pauses =
            Self { watched_s: PROCESSORS.len() as f64 * length.as_secs_f64(), lengths_ns: Vec::new() };
        for output in outputs {
            for line in output?.lines() {
                pauses.lengths_ns.push(f64::from_str(line).with_context(|| line.to_owned())?);
            }
        }
        pauses.lengths_ns.sort_by(f64::total_cmp);
        Ok(pauses)
    }

    pub(super) fn add(&mut self, other: &Self) {
        self.watched_s += other.watched_s;
        self.lengths_ns.extend(&other.lengths_ns);
        self.lengths_ns.sort_by(f64::total_cmp);
    }

    /// Percent of the time.
    pub(super) fn percent(&self) -> f64 {
        self.lengths_ns.iter().sum::<f64>() / 1e7 / self.watched_s
    }

    /// How many a second that are longer.
    pub(super) fn per_s_above(&self, us: f64) -> f64 {
        let shorter = self.lengths_ns.partition_point(|&ns| ns <= 1e3 * us);
        (self.lengths_ns.len() - shorter) as f64 / self.watched_s
    }

    pub(super) fn longest_us(&self) -> f64 {
        self.lengths_ns.last().map_or(0.0, |ns| ns / 1e3)
    }

    /// Those up to `longest`, as costs of the simulator have them: those that are about alike have one length.
    pub(super) fn costs(&self, longest: Duration) -> Value {
        let mut left = &self.lengths_ns[..];
        left = &left[..left.partition_point(|&ns| ns <= longest.as_nanos() as f64)];
        let mut kinds = Vec::new();
        while let Some(&shortest) = left.first() {
            let (alike, longer) = left.split_at(left.partition_point(|&ns| ns <= ALIKE * shortest));
            let (per_s, ns) = (alike.len() as f64 / self.watched_s, mean(alike));
            let number = |value: f64| Value::Float((value * 1e3).round() / 1e3);
            let entries = [("per_s", per_s), ("ns", ns)];
            let kind: Table =
                entries.map(|(name, value)| (name.to_owned(), number(value))).into_iter().collect();
            kinds.push(Value::Table(kind));
            left = longer;
        }
        Value::Array(kinds)
    }
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

fn watch_one(processor: &str, length: Duration) -> anyhow::Result<String> {
    let mut command = Command::new("taskset");
    command.args(["--cpu-list", processor]);
    if driver::may_be_realtime() {
        command.args(["chrt", "--fifo", "1"]);
    }
    command.arg(std::env::current_exe()?).args(["pauses", "--millis", &length.as_millis().to_string()]);
    let output = command.output().context("taskset")?;
    ensure!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    Ok(String::from_utf8(output.stdout)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MILLISECOND: Duration = Duration::from_millis(1);

    #[test]
    fn pauses_that_are_alike_are_one_kind() {
        let mut pauses = Pauses { watched_s: 1.0, lengths_ns: vec![10e3, 14e3, 200e3] };
        pauses.add(&Pauses { watched_s: 3.0, lengths_ns: vec![12e3, 2e6] });
        assert_eq!(pauses.per_s_above(12.0), 0.75);
        assert_eq!(pauses.longest_us(), 2000.0);
        assert!((pauses.percent() - 100.0 * 2236e-6 / 4.0).abs() < 1e-9);
        let costs =
            toml::to_string(&Table::from_iter([("pauses".to_owned(), pauses.costs(MILLISECOND))])).unwrap();
        let wanted = "[[pauses]]\nns = 12000.0\nper_s = 0.75\n\n[[pauses]]\nns = 200000.0\nper_s = 0.25\n";
        assert_eq!(costs, wanted);
        assert_eq!(Pauses::default().costs(MILLISECOND), Value::Array(Vec::new()));
    }
}
