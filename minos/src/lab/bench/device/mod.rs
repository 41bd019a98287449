//! `minos bench --target device:PATH`: random reads and writes of a file, a block device or modelled memory, in vectors
//! of every width and depth (SoCC'12 §4.1).

mod args;
mod driver;
mod report;

use std::{fmt, path::PathBuf, time::Duration};

use anyhow::{Context, Result, bail, ensure};
use minos_base::seeded_stream;
use minos_device::{Device, FileOptions, MemoryOptions, ServiceTime};

pub(super) use args::DeviceArgs;

use super::{
    BenchArgs, emit_either,
    team::{Team, Times},
};
use driver::{Driver, Tally, Window, Work};
use report::DeviceReport;

/// Blocks of the device in memory, as in the paper.
const MEMORY_BLOCK_BYTES: u32 = 512;
/// Requests in flight of the device in memory.
const MEMORY_IN_FLIGHT_MAX: u32 = 4096;

/// A device to measure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum DeviceTarget {
    /// A file or block device.
    Path(PathBuf),
    /// Memory with the service times of the paper's device.
    Memory,
}

impl fmt::Display for DeviceTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Path(path) => write!(f, "device:{}", path.display()),
            Self::Memory => f.write_str("device:memory"),
        }
    }
}

/// A closed loop of requests of one kind, for a figure.
#[derive(Clone, Copy, Debug)]
pub(in crate::lab) struct Point {
    pub(in crate::lab) threads: usize,
    /// Requests in flight of each thread.
    pub(in crate::lab) depth: usize,
    /// Requests of a vector.
    pub(in crate::lab) width: usize,
    /// Bytes of a request.
    pub(in crate::lab) request_bytes: usize,
    pub(in crate::lab) writes: bool,
    pub(in crate::lab) duration: Duration,
    pub(in crate::lab) seed: u64,
}

/// The results of a [`Point`].
#[derive(Clone, Copy, Debug)]
pub(in crate::lab) struct Measured {
    pub(in crate::lab) iops: f64,
    /// Requests by a second of processor time, the driver's included.
    pub(in crate::lab) iops_per_core: f64,
}

/// Measures one point, after a warm-up of a fourth of its time.
///
/// # Errors
/// A lane cannot be opened, or a request failed.
pub(in crate::lab) fn measure(device: &Device, point: &Point) -> Result<Measured> {
    let Point { threads, depth, width, request_bytes, writes, duration, seed } = *point;
    let read_share = if writes { 0.0 } else { 1.0 };
    let work = Work {
        request_bytes,
        width,
        depth,
        read_share,
        flush_every: None,
        vectors_per_s: None,
        spins: false,
        must_register: false,
    };
    let window = Window { warmup: duration / 4, duration, drain: Duration::from_secs(10) };
    let load = Load { work, window, threads, cpus: &[], seed };
    let (tallies, (user, system)) = load.run(device)?;
    let errors: u64 = tallies.iter().flat_map(|tally| tally.errors.values()).sum();
    ensure!(errors == 0, "{errors} requests failed at {point:?}");
    let completed = tallies.iter().map(|tally| tally.reads + tally.writes).sum::<u64>() as f64;
    let core_s = (user + system).as_secs_f64();
    let iops_per_core = if core_s > 0.0 { completed / core_s } else { f64::NAN };
    Ok(Measured { iops: completed / duration.as_secs_f64(), iops_per_core })
}

/// The device in memory, with the service times of the paper.
pub(in crate::lab) fn modelled(capacity_bytes: Option<u64>) -> Device {
    let capacity_bytes = capacity_bytes.unwrap_or(MemoryOptions::default().capacity_bytes);
    modelled_in_blocks(capacity_bytes, MEMORY_BLOCK_BYTES)
}

/// The same, whose service times are those of blocks of so many bytes.
pub(in crate::lab) fn modelled_in_blocks(capacity_bytes: u64, block_bytes: u32) -> Device {
    Device::in_memory(&MemoryOptions {
        capacity_bytes,
        block_bytes,
        in_flight_max: MEMORY_IN_FLIGHT_MAX,
        service_time: Some(ServiceTime::of_the_paper()),
    })
}

/// The parameters of a run.
struct Plan<'a> {
    target: &'a DeviceTarget,
    load: Load<'a>,
    /// Requests a second of all threads; without it a closed loop.
    rate: Option<f64>,
}

/// The threads of a run.
struct Load<'a> {
    work: Work,
    window: Window,
    threads: usize,
    cpus: &'a [usize],
    seed: u64,
}

/// Runs the benchmark and prints the report.
///
/// # Errors
/// The options contradict each other, the device cannot be opened, or nothing was completed.
pub(super) fn run(args: &BenchArgs, target: &DeviceTarget) -> Result<()> {
    args.check_device()?;
    let request_bytes = args.device.request_bytes();
    ensure!(
        request_bytes.is_power_of_two() && (512..=64 << 20).contains(&request_bytes),
        "--block {request_bytes}: a power of two from 512 to 64m"
    );
    let (width, depth) = args.device.width_and_depth();
    ensure!(width <= depth, "--width {width} is more than --depth {depth}, the requests in flight");
    let device = open(args, target, request_bytes)?;
    ensure!(
        device.geometry().capacity_bytes >= request_bytes,
        "{target} has no room for one request of {request_bytes} bytes"
    );
    let (threads, rate) = (args.thread_count(), args.fixed_rate());
    let vectors_per_s = rate.map(|rate| rate / (threads * width) as f64);
    let (read_share, spins) = (args.read_share(), args.spins());
    let (flush_every, must_register) = (args.device.flush_every, args.device.must_register);
    ensure!(flush_every.is_none() || read_share < 1.0, "--flush-every needs writes: --get-ratio below 1");
    let request_bytes = request_bytes as usize;
    let work =
        Work { request_bytes, width, depth, read_share, flush_every, vectors_per_s, spins, must_register };
    let (warmup, duration, drain) = (args.warmup_time(), args.measured_time(), args.drain_time());
    let window = Window { warmup, duration, drain };
    let load = Load { work, window, threads, cpus: args.cpus(), seed: args.seed };
    let plan = Plan { target, load, rate };
    let (tallies, spent) = plan.load.run(&device)?;
    let report = DeviceReport::of(&plan, &device, &tallies, spent);
    emit_either(args.json, &report, &report.to_string())?;
    ensure!(report.common.completed > 0, "{target} completed nothing as it should");
    Ok(())
}

/// Opens the device, to read only unless there are writes.
fn open(args: &BenchArgs, target: &DeviceTarget, request_bytes: u64) -> Result<Device> {
    let size_bytes = args.device.device_size.map(|size| size.0);
    let DeviceTarget::Path(path) = target else {
        return Ok(modelled(size_bytes));
    };
    let writes = args.read_share() < 1.0;
    let options = FileOptions {
        size_bytes,
        create: true,
        prefill: true,
        read_only: path.exists() && !writes,
        block_bytes: request_bytes.min(4096) as u32,
        in_flight_max: None,
        driver: args.device.driver_choice(),
    };
    let device = Device::open(path, &options).with_context(|| match size_bytes {
        None if !path.exists() => format!("{target}: --device-size creates it"),
        _ => target.to_string(),
    })?;
    if writes && !device.facts().was_created && !args.device.device_write {
        bail!("{target} exists: --device-write lets writes destroy its contents; --get-ratio 1 only reads");
    }
    Ok(device)
}

impl Load<'_> {
    /// Runs all threads; returns their results and the processor time of the window.
    fn run(&self, device: &Device) -> Result<(Vec<Tally>, Times)> {
        let Window { warmup, duration, .. } = self.window;
        Team { threads: self.threads, cpus: self.cpus, warmup, duration }.run(
            |number| {
                let rng = seeded_stream(self.seed, number as u64);
                Driver::new(device, self.work, self.window, rng)
            },
            Driver::run,
        )
    }
}
