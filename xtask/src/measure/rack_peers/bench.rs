//! Runs of the driver against one node.

use std::{fs, path::Path, thread, time::Duration};

use minos_rackmodel::Random;
use serde_json::Value;

use super::{LIMIT_US, keys::Mix, limit::highest_rate};
use crate::measure::{
    driver::{self, Measurement, ON_THE_SECOND, Pace, WARMUP_MS},
    turn::{self, Cost},
};

/// Requests of a trace for a closed loop, which the driver repeats.
pub(in crate::measure) const REQUESTS: usize = 200_000;
/// Part of the reads that may miss: a cache evicts a key now and then whose bucket is full.
const MISSES_MAX: f64 = 1e-3;
/// Tries of a rate that exceeds the limit: other load on the machine makes requests late, never early.
pub(in crate::measure) const TRIES: u32 = 2;
/// Measurements of a cost that fail before the figure does: on a busy machine, a node may not get its lease in time.
const FAILURES_MAX: u32 = 5;
const REST: Duration = Duration::from_secs(2);
/// Part of its time that the driver may be busy: beyond, it is measured and not the server.
const BUSY_MAX: f64 = 0.95;

/// The driver, and where its traces are written.
pub(in crate::measure) struct Bench<'a> {
    pub(super) program: &'a Path,
    millis: u32,
    trace: tempfile::NamedTempFile,
    random: Random,
    /// Tries in which the driver had no time to spare.
    pub(super) full: u32,
}

/// A node and how it is asked.
pub(super) struct Node<'a> {
    pub(super) target: String,
    pub(super) pids: Vec<u32>,
    /// Among `pids`.
    pub(super) number: usize,
    pub(super) mix: Mix<'a>,
}

impl<'a> Bench<'a> {
    pub(in crate::measure) fn new(program: &'a Path, millis: u32) -> anyhow::Result<Self> {
        let trace = tempfile::Builder::new().suffix(".csv").tempfile()?;
        Ok(Self { program, millis, trace, random: Random::new(1, 0), full: 0 })
    }

    fn workload(&self) -> String {
        format!("trace:{}", self.trace.path().display())
    }

    /// Stores keys at a node.
    pub(super) fn load(&mut self, target: &str, mix: &Mix<'_>) -> anyhow::Result<()> {
        fs::write(&self.trace, mix.load())?;
        driver::load(self.program, target, &["--workload", &self.workload()])
    }

    /// Processor time of an operation, closed loop.
    pub(super) fn cost(&mut self, node: &Node<'_>, pipeline: &str) -> anyhow::Result<Cost> {
        fs::write(&self.trace, node.mix.trace(REQUESTS, None, &mut self.random))?;
        let workload = self.workload();
        let arguments = ["--workload", &workload, "--pipeline", pipeline];
        let measurement = self.measurement(node, &arguments);
        let take = || turn::take(self.program, &measurement, &node.pids, node.number, MISSES_MAX);
        for _ in 1..FAILURES_MAX {
            match take() {
                Ok(cost) => return Ok(cost),
                Err(error) => eprintln!("rack-peers: once more, as it failed: {error:#}"),
            }
            thread::sleep(REST);
        }
        take()
    }

    /// The highest rate at which 99 % of the requests end within the limit, searched from `start`.
    pub(super) fn rate_within_limit(&mut self, node: &Node<'_>, start: f64) -> anyhow::Result<f64> {
        highest_rate(start, |rate| {
            for _ in 0..TRIES {
                if self.is_within(node, rate)? {
                    return Ok(true);
                }
            }
            Ok(false)
        })
    }

    fn is_within(&mut self, node: &Node<'_>, rate: f64) -> anyhow::Result<bool> {
        let seconds = f64::from(WARMUP_MS + self.millis) / 1e3;
        let requests = (rate * seconds) as usize;
        fs::write(&self.trace, node.mix.trace(requests, Some(rate), &mut self.random))?;
        let workload = self.workload();
        let arguments = ["--workload", workload.as_str()];
        let result = match turn::run(self.program, &self.measurement(node, &arguments)) {
            Ok(result) => result,
            Err(error) => {
                // Far beyond the limit, nothing is answered in time.
                eprintln!("rack-peers: beyond the limit, as it failed: {error:#}");
                return Ok(false);
            }
        };
        self.full += u32::from(is_full(&result));
        Ok(is_within(&result))
    }

    fn measurement<'m>(&self, node: &'m Node<'_>, arguments: &'m [&'m str]) -> Measurement<'m> {
        Measurement {
            target: &node.target,
            server_pid: node.pids[node.number],
            threads: ON_THE_SECOND,
            pace: Pace::Spin,
            drain: "100ms",
            warmup_ms: WARMUP_MS,
            millis: self.millis,
            draw: 0,
            arguments,
        }
    }
}

/// True if the driver had no time to spare.
fn is_full(result: &Value) -> bool {
    result["driver"]["busy"].as_f64().is_some_and(|busy| busy > BUSY_MAX)
}

/// True if a node has answered within the limit, and the driver had time to spare.
pub(in crate::measure) fn is_within(result: &Value) -> bool {
    let p99_us = result["latency_us"]["all"]["p99"].as_f64();
    let is_in_time = p99_us.is_some_and(|p99_us| p99_us <= LIMIT_US);
    turn::is_answered(result, MISSES_MAX) && !is_full(result) && is_in_time
}
