//! A turn: one of several nodes gets requests, and the processor time of all nodes is taken.

use std::path::Path;

use anyhow::{Context as _, ensure};
use serde_json::Value;

use super::{driver::Measurement, idle::Counts};

/// Microseconds of processor time for an operation.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cost {
    /// Of the node that is asked.
    pub(super) asked_us: f64,
    /// Of all other nodes together.
    pub(super) others_us: f64,
}

/// Runs a measurement of the node at `asked` among `pids`, then rests. All but this part of the operations must find
/// their keys.
pub(super) fn take(
    program: &Path,
    measurement: &Measurement<'_>,
    pids: &[u32],
    asked: usize,
    misses_max: f64,
) -> anyhow::Result<Cost> {
    let before = times(pids)?;
    let result = run(program, measurement)?;
    let after = times(pids)?;
    ensure!(is_answered(&result, misses_max), "node {asked}: {result}");
    let asked_us = result["server_cpu_us_per_op"].as_f64().context("no processor time")?;
    let spent: Vec<f64> = after.iter().zip(&before).map(|(after, before)| after - before).collect();
    let others: f64 = spent.iter().sum::<f64>() - spent[asked];
    // The warm-up has operations, too, which the measurement does not count.
    Ok(Cost { asked_us, others_us: asked_us * others / spent[asked] })
}

/// True if every operation was answered, and all but this part of them have found their keys.
pub(super) fn is_answered(result: &Value, misses_max: f64) -> bool {
    let count = |kind: &str| result[kind].as_f64().unwrap_or(f64::INFINITY);
    count("errors") + count("lost") == 0.0 && count("misses") <= misses_max * count("completed")
}

/// Runs a measurement, then rests.
pub(super) fn run(program: &Path, measurement: &Measurement<'_>) -> anyhow::Result<Value> {
    let result = measurement.run(program)?;
    measurement.pace.pause(measurement.warmup_ms + measurement.millis);
    Ok(result)
}

/// Nanoseconds of each node so far.
fn times(pids: &[u32]) -> anyhow::Result<Vec<f64>> {
    pids.iter().map(|&pid| Ok(Counts::of(pid)?.cpu_ns as f64)).collect()
}
