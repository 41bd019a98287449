//! What requests take over TCP, which `minos calibrate` does not measure.

use std::{env, fs, path::Path, process};

use anyhow::Context;
use toml::{Table, Value};

use super::{
    designs::Contest,
    runner::{Case, Runner, Sample, Series},
};
use crate::measure::{Samples, driver::Pace};

/// Sizes by which the costs of a request and of a byte are found.
const SHORT_BYTES: u32 = 32;
const LONG_BYTES: [u32; 2] = [100_000, 500_000];
/// So few that none waits for another.
const UNLOADED_PER_S: &str = "4000";

/// Processor time that requests take, in nanoseconds.
struct Times {
    short: f64,
    /// For each byte more.
    a_byte: f64,
}

/// The costs of the file `base`, in which those of requests and of bytes are what was measured of a worker.
///
/// Measured are its processor time a short request and its time from one long reply to the next, in closed loop, and the
/// median response of one that has hardly anything to do. No percentile under load goes into it.
pub(super) fn over_tcp(
    runner: &mut Runner<'_>,
    busy: &Contest,
    spinning: &Contest,
    base: &Path,
    rounds: u32,
) -> anyhow::Result<Table> {
    let text = fs::read_to_string(base).with_context(|| base.display().to_string())?;
    let mut costs: Table = toml::from_str(&text).with_context(|| base.display().to_string())?;
    let gets = Times::measure(runner, busy, "1.0", rounds)?;
    let puts = Times::measure(runner, busy, "0.0", rounds)?;
    let unloaded_us = {
        let _items = Items::load(runner, spinning, SHORT_BYTES, "1.0")?;
        let arguments = ["--workload", &_items.path, "--rate", UNLOADED_PER_S];
        measure(runner, spinning, "unloaded", &arguments, rounds)?.median(|sample| sample.small.p50_us)
    };
    let lookup_ns = costs.get("lookup_ns").and_then(Value::as_float).unwrap_or(0.0);
    let source = "processor time of a worker over TCP on loopback, two virtual processors: \
                  `cargo xtask measure dispatch-model`; the rest from `minos calibrate`";
    costs.insert("source".to_owned(), Value::String(source.to_owned()));
    for of_others in ["spread_percent", "also_measured"] {
        costs.remove(of_others);
    }
    for (name, value) in [
        ("per_request_ns", (gets.short - lookup_ns).max(0.0)),
        ("per_put_ns", (puts.short - gets.short).max(0.0)),
        ("per_byte_ns", gets.a_byte),
        ("per_byte_in_ns", puts.a_byte),
        ("network_ns", (unloaded_us * 1e3 - gets.short).max(0.0)),
        // These are in the time of a request and of a byte.
        ("per_packet_ns", 0.0),
        ("per_packet_out_ns", 0.0),
        ("per_segment_ns", 0.0),
        ("per_segment_out_ns", 0.0),
        ("per_receive_ns", 0.0),
        ("per_send_ns", 0.0),
        // It spins.
        ("wake_ns", 0.0),
        // What loopback carries is carried by the processors.
        ("link_gbps", 10_000.0),
    ] {
        costs.insert(name.to_owned(), Value::Float((value * 1e4).round() / 1e4));
    }
    Ok(costs)
}

impl Times {
    fn measure(
        runner: &mut Runner<'_>,
        contest: &Contest,
        get_ratio: &str,
        rounds: u32,
    ) -> anyhow::Result<Self> {
        let mut series = |bytes| -> anyhow::Result<Series> {
            let items = Items::load(runner, contest, bytes, get_ratio)?;
            let name = format!("{bytes} bytes and {get_ratio} GETs");
            let arguments = ["--workload", &items.path, "--rate", "max"];
            measure(runner, contest, &name, &arguments, rounds)
        };
        // The driver may be slower than the worker, so that the worker's own time counts.
        let short = 1e3 * series(SHORT_BYTES)?.median(|sample| sample.server_cpu_us);
        let mut slopes = Samples::default();
        for bytes in LONG_BYTES {
            // The driver drops what it receives: the worker is the slower one, and always busy.
            let long = series(bytes)?.median(|sample| 1e9 / sample.achieved_per_s);
            slopes.push((long - short) / f64::from(bytes - SHORT_BYTES));
        }
        // The mean of the two.
        Ok(Self { short, a_byte: (slopes.min() + slopes.max()) / 2.0 })
    }
}

fn measure(
    runner: &mut Runner<'_>,
    contest: &Contest,
    name: &str,
    arguments: &[&str],
    rounds: u32,
) -> anyhow::Result<Series> {
    let samples: anyhow::Result<Vec<Sample>> = (1..=rounds)
        .map(|round| runner.measure(contest, Case { name, round, pace: Pace::Spin }, arguments))
        .collect();
    Ok(Series(samples?))
}

/// A workload of items of one size, in a file that is removed again.
struct Items {
    path: String,
}

impl Items {
    /// Writes the file, and stores the items.
    fn load(runner: &Runner<'_>, contest: &Contest, bytes: u32, get_ratio: &str) -> anyhow::Result<Self> {
        let keys = if bytes == SHORT_BYTES { 100_000 } else { 200 };
        let path = env::temp_dir().join(format!("minos-calibration-{}-{bytes}.toml", process::id()));
        let text = format!(
            "name = \"calibration\"\n[[stream]]\nname = \"all\"\nget_ratio = {get_ratio}\n[[stream.group]]\n\
             keys = {keys}\nvalue_bytes = {{ min = {bytes}, max = {bytes} }}\npopularity = \"uniform\"\n"
        );
        fs::write(&path, text).with_context(|| path.display().to_string())?;
        let items = Self { path: path.display().to_string() };
        runner.load(contest, &["--workload", &items.path])?;
        Ok(items)
    }
}

impl Drop for Items {
    fn drop(&mut self) {
        // A file that is gone already is what is wanted.
        fs::remove_file(&self.path).ok();
    }
}
