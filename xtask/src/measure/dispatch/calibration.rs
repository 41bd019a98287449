//! What requests take over TCP, which `minos calibrate` does not measure.

use std::{env, fs, path::Path, process};

use anyhow::Context;
use toml::{Table, Value};

use super::{
    designs::Contest,
    runner::{Case, Runner, Sample, Series},
};
use crate::measure::driver::Pace;

/// Sizes by which the costs of a request and of a byte are found.
const SHORT_BYTES: u32 = 32;
const LONG_BYTES: [u32; 2] = [100_000, 500_000];
/// So few that hardly one waits for another.
const UNLOADED_PER_S: &str = "4000";
const UNLOADED_LONG_PER_S: &str = "400";

/// The costs of the file `base`, in which those of requests and of bytes are what was measured of a worker.
///
/// Measured are its processor time a short request and its time from one long value to the next, in closed loop, and median
/// responses of one that has hardly anything to do, from which a long reply's time comes: in closed loop the kernel works on
/// several at once, and a byte takes less. No percentile under load goes into it.
pub(super) fn over_tcp(
    runner: &mut Runner<'_>,
    busy: &Contest,
    spinning: &Contest,
    base: &Path,
    rounds: u32,
) -> anyhow::Result<Table> {
    let text = fs::read_to_string(base).with_context(|| base.display().to_string())?;
    let mut costs: Table = toml::from_str(&text).with_context(|| base.display().to_string())?;
    let get_ns = busy_ns(runner, busy, "1.0", rounds)?;
    let put_ns = busy_ns(runner, busy, "0.0", rounds)?;
    let stored_byte_ns = stored_byte_ns(runner, busy, put_ns, rounds)?;
    let replies = Replies::measure(runner, spinning, rounds)?;
    let lookup_ns = costs.get("lookup_ns").and_then(Value::as_float).unwrap_or(0.0);
    let source = "processor time of a worker over TCP on loopback, two virtual processors: \
                  `cargo xtask measure dispatch-model`; the rest from `minos calibrate`";
    costs.insert("source".to_owned(), Value::String(source.to_owned()));
    for of_others in ["spread_percent", "also_measured"] {
        costs.remove(of_others);
    }
    for (name, value) in [
        ("per_request_ns", (get_ns - lookup_ns).max(0.0)),
        ("per_put_ns", (put_ns - get_ns).max(0.0)),
        ("per_byte_ns", replies.a_byte_ns),
        ("per_long_reply_ns", replies.long_ns),
        ("per_byte_in_ns", stored_byte_ns),
        ("network_ns", (replies.short_ns - get_ns).max(0.0)),
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

/// Processor time of a short request in closed loop, in nanoseconds. The driver may be slower than the worker, so that the
/// worker's own time counts.
fn busy_ns(runner: &mut Runner<'_>, busy: &Contest, get_ratio: &str, rounds: u32) -> anyhow::Result<f64> {
    let series = closed_loop(runner, busy, SHORT_BYTES, get_ratio, rounds)?;
    Ok(1e3 * series.median(|sample| sample.server_cpu_us))
}

/// Time a byte that is stored, in nanoseconds: the mean of what two lengths say.
fn stored_byte_ns(
    runner: &mut Runner<'_>,
    busy: &Contest,
    short_ns: f64,
    rounds: u32,
) -> anyhow::Result<f64> {
    let mut sum_ns = 0.0;
    for bytes in LONG_BYTES {
        // The worker is the slower one, and always busy.
        let series = closed_loop(runner, busy, bytes, "0.0", rounds)?;
        let long_ns = series.median(|sample| 1e9 / sample.achieved_per_s);
        sum_ns += (long_ns - short_ns) / f64::from(bytes - SHORT_BYTES);
    }
    Ok(sum_ns / LONG_BYTES.len() as f64)
}

fn closed_loop(
    runner: &mut Runner<'_>,
    busy: &Contest,
    bytes: u32,
    get_ratio: &str,
    rounds: u32,
) -> anyhow::Result<Series> {
    let items = Items::load(runner, busy, bytes, get_ratio)?;
    let name = format!("{bytes} bytes and {get_ratio} GETs");
    measure(runner, busy, &name, &["--workload", &items.path, "--rate", "max"], rounds)
}

/// What replies take without load, in nanoseconds.
struct Replies {
    /// The response to a short one.
    short_ns: f64,
    /// What a long one takes more, beside its bytes.
    long_ns: f64,
    a_byte_ns: f64,
}

impl Replies {
    fn measure(runner: &mut Runner<'_>, spinning: &Contest, rounds: u32) -> anyhow::Result<Self> {
        let mut response_ns = |bytes, rate, figure: fn(&Sample) -> f64| -> anyhow::Result<f64> {
            let items = Items::load(runner, spinning, bytes, "1.0")?;
            let name = format!("unloaded, {bytes} bytes");
            let series =
                measure(runner, spinning, &name, &["--workload", &items.path, "--rate", rate], rounds)?;
            Ok(1e3 * series.median(figure))
        };
        let short_ns = response_ns(SHORT_BYTES, UNLOADED_PER_S, |sample| sample.small.p50_us)?;
        let mut long_response_ns =
            |bytes| response_ns(bytes, UNLOADED_LONG_PER_S, |sample| sample.large.p50_us);
        let [fewer, more] = LONG_BYTES;
        let (fewer_ns, more_ns) = (long_response_ns(fewer)?, long_response_ns(more)?);
        let a_byte_ns = ((more_ns - fewer_ns) / f64::from(more - fewer)).max(0.0);
        let long_ns = (fewer_ns - short_ns - a_byte_ns * f64::from(fewer)).max(0.0);
        Ok(Self { short_ns, long_ns, a_byte_ns })
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
