//! Runs `minos bench` on the second processor and keeps every sample.

use std::{fmt::Write as _, path::Path, process::Command};

use anyhow::ensure;
use serde_json::Value;

use crate::measure::driver;

/// The share of lost requests above which a measurement is invalid.
const LOST_SHARE_MAX: f64 = 0.05;

/// The results of one run of `minos bench`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sample {
    pub(super) requests_per_s: f64,
    pub(super) operations_per_s: f64,
    /// Operations for each second of the server's processor time.
    pub(super) operations_per_cpu_s: f64,
    pub(super) p50_us: f64,
    pub(super) p99_us: f64,
    pub(super) lost: u64,
    completed: u64,
}

/// The server and the name of a measurement.
#[derive(Clone, Copy, Debug)]
pub(super) struct Case<'a> {
    pub(super) name: &'a str,
    pub(super) target: &'a str,
    pub(super) pid: u32,
    pub(super) round: u32,
}

/// Runs `minos bench`.
pub(super) struct Runner<'a> {
    program: &'a Path,
    millis: u32,
    /// All samples so far.
    pub(super) csv: String,
}

impl<'a> Runner<'a> {
    pub(super) fn new(program: &'a Path, millis: u32) -> Self {
        let csv =
            "case,round,arguments,requests_per_s,operations_per_s,operations_per_cpu_s,p50_us,p99_us,lost\n";
        Self { program, millis, csv: csv.to_owned() }
    }

    pub(super) fn seconds(&self) -> f64 {
        f64::from(self.millis) / 1e3
    }

    /// Stores the items of a workload.
    pub(super) fn load(&self, target: &str, arguments: &[&str]) -> anyhow::Result<()> {
        driver::load(self.program, target, arguments)
    }

    pub(super) fn measure(&mut self, case: Case<'_>, arguments: &[&str]) -> anyhow::Result<Sample> {
        let Case { name, target, pid, round } = case;
        let duration = format!("{}ms", self.millis);
        let times = ["--pin", "1", "--warmup", "150ms", "--drain", "600ms", "--duration", &duration];
        let mut command = driver::bench(Command::new(self.program), target, pid);
        command.args(times).args(arguments);
        let sample = Sample::of(&driver::json(command)?)?;
        writeln!(
            self.csv,
            "{name},{round},{},{:.0},{:.0},{:.0},{},{},{}",
            arguments.join(" "),
            sample.requests_per_s,
            sample.operations_per_s,
            sample.operations_per_cpu_s,
            sample.p50_us,
            sample.p99_us,
            sample.lost
        )?;
        Ok(sample)
    }
}

impl Sample {
    fn of(result: &Value) -> anyhow::Result<Self> {
        ensure!(result["errors"] == 0, "{} errors: {}", result["errors"], result["errors_by_kind"]);
        let number = |name: &str| result[name].as_f64().unwrap_or(f64::NAN);
        let latency = |name: &str| result["latency_us"]["all"][name].as_f64().unwrap_or(f64::NAN);
        Ok(Self {
            requests_per_s: number("achieved_rps"),
            operations_per_s: number("operations_per_s"),
            operations_per_cpu_s: number("operations_per_server_cpu_s"),
            p50_us: latency("p50"),
            p99_us: latency("p99"),
            lost: result["lost"].as_u64().unwrap_or(0),
            completed: result["completed"].as_u64().unwrap_or(0),
        })
    }

    /// Fails if so many requests were lost that the sample is invalid.
    pub(super) fn checked(self, name: &str) -> anyhow::Result<Self> {
        let (lost, all) = (self.lost, self.lost + self.completed);
        let share = lost as f64 / all.max(1) as f64;
        ensure!(share <= LOST_SHARE_MAX, "{name}: {lost} of {all} requests were lost");
        Ok(self)
    }
}
