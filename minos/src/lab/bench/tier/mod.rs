//! `minos bench --target tier:PATH`: vectors of gets and puts of a store above a device, within this process (SoCC'12
//! §4.2). All items are stored first; then the memory is emptied, so that every get goes to the device.

mod driver;
mod report;

use std::{
    fmt,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail, ensure};
use minos_base::seeded_stream;
use minos_device::{Device, FileOptions};
use minos_engine::{CreateError, StoreConfig, TierConfig, Tiered};
use minos_tier::{Durability, Format, Keeper, Memory, Now, Options, Tier};
use minos_workload::Latencies;

use crate::serve::random_seed;

use super::{
    BenchArgs,
    device::{DeviceTarget, modelled},
    emit_either,
    team::Team,
};
use driver::{Driver, NOW, Tally, Work};
use report::TierReport;

/// Bytes of a record beside its key and value, and of its footer.
const RECORD_BYTES: u64 = 46 + 8 + 28;
/// The device is filled to this share, in percent.
const FILL_PERCENT: u64 = 60;
/// Bytes of the index for an item, at most.
const INDEX_BYTES: u64 = 16;
/// Memory beside the index.
const MEMORY_BYTES: u64 = 32 << 20;
/// Keys of a vector while a figure's items are stored.
const LOAD_WIDTH: usize = 32;
/// Longest time to make everything durable.
const PATIENCE: Duration = Duration::from_secs(600);

/// A device to measure a store on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct TierTarget(pub(super) DeviceTarget);

impl fmt::Display for TierTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            DeviceTarget::Path(path) => write!(f, "tier:{}", path.display()),
            DeviceTarget::Memory => f.write_str("tier:memory"),
        }
    }
}

/// The way from nothing to a store whose items are all on the device.
#[derive(Clone, Copy, Debug, Default)]
struct Preparation {
    load: Duration,
    /// Bytes written for each byte of keys and values.
    amplification: f64,
    recovery: Duration,
    records: u64,
}

/// Vectors of gets or of puts in a closed loop, for a figure.
#[derive(Clone, Copy, Debug)]
pub(in crate::lab) struct StorePoint {
    pub(in crate::lab) threads: usize,
    /// Keys of a vector.
    pub(in crate::lab) width: usize,
    pub(in crate::lab) writes: bool,
}

/// The items of a figure's store, and the time of each of its points.
#[derive(Clone, Copy, Debug)]
pub(in crate::lab) struct StoreStudy {
    pub(in crate::lab) keys: u64,
    pub(in crate::lab) value_bytes: usize,
    pub(in crate::lab) duration: Duration,
    pub(in crate::lab) seed: u64,
}

/// The results of a [`StorePoint`].
#[derive(Clone, Copy, Debug)]
pub(in crate::lab) struct StoreMeasured {
    pub(in crate::lab) keys_per_s: f64,
    /// The median of a vector, in microseconds.
    pub(in crate::lab) p50_us: f64,
}

/// Stores the items of `study` on `device`, whose contents are lost, and measures each point.
///
/// # Errors
/// The device is too small or fails, or an item is not found.
pub(in crate::lab) fn measure_store(
    device: &Device,
    study: &StoreStudy,
    points: &[StorePoint],
) -> Result<Vec<StoreMeasured>> {
    let StoreStudy { keys, value_bytes, duration, seed } = *study;
    let target = TierTarget(DeviceTarget::Memory);
    let plan = |point: &StorePoint| {
        let read_share = if point.writes { 0.0 } else { 1.0 };
        let work = Work { width: point.width, keys, value_bytes, read_share };
        Plan {
            target: &target,
            work,
            threads: point.threads,
            warmup: duration / 4,
            duration,
            cpus: &[],
            seed,
        }
    };
    let first = plan(&StorePoint { threads: 1, width: LOAD_WIDTH, writes: true });
    first.make_table(device)?;
    let mut preparation = first.load(device)?;
    let (tier, keeper) = first.open(device, &mut preparation)?;
    let measure = |point: &StorePoint| {
        let (tallies, _) = plan(point).measure(&tier)?;
        let mut latencies = Latencies::new();
        tallies.iter().for_each(|tally| latencies.merge(&tally.latencies));
        let wrong: u64 = tallies.iter().map(|tally| tally.wrong).sum();
        ensure!(wrong == 0, "{wrong} gets found nothing, or another key's value, at {point:?}");
        let done: u64 = tallies.iter().map(|tally| tally.gets + tally.puts).sum();
        let keys_per_s = done as f64 / duration.as_secs_f64();
        Ok(StoreMeasured { keys_per_s, p50_us: latencies.quantiles().p50 })
    };
    with_keeper(keeper, || points.iter().map(measure).collect())
}

/// The parameters of a run.
struct Plan<'a> {
    target: &'a TierTarget,
    work: Work,
    threads: usize,
    warmup: Duration,
    duration: Duration,
    cpus: &'a [usize],
    seed: u64,
}

/// Runs the benchmark and prints the report.
///
/// # Errors
/// The options contradict each other, the device cannot be opened, or an item is lost.
pub(super) fn run(args: &BenchArgs, target: &TierTarget) -> Result<()> {
    args.check_tier()?;
    let (width, _) = args.device.width_and_depth();
    let work = Work {
        width,
        keys: args.tier_keys(),
        value_bytes: args.device.value_bytes() as usize,
        read_share: args.read_share(),
    };
    ensure!((8..=1 << 20).contains(&work.value_bytes), "--block {}: from 8 to 1m", work.value_bytes);
    let plan = Plan {
        target,
        work,
        threads: args.thread_count(),
        warmup: args.warmup_time(),
        duration: args.measured_time(),
        cpus: args.cpus(),
        seed: args.seed,
    };
    let device = plan.open_device(args)?;
    let mut preparation = plan.load(&device)?;
    let (tier, keeper) = plan.open(&device, &mut preparation)?;
    let (tallies, spent) = with_keeper(keeper, || plan.measure(&tier))?;
    let report = TierReport::of(&plan, &device, &tier, (preparation, &tallies, spent));
    emit_either(args.json, &report, &report.to_string())?;
    report.check()
}

/// Runs the keeper in a thread of its own as long as `f` runs.
fn with_keeper<R>(keeper: Keeper, f: impl FnOnce() -> Result<R>) -> Result<R> {
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        let keeping = scope.spawn(|| keep(keeper, &done));
        let result = f();
        done.store(true, Relaxed);
        keeping.join().expect("the keeper does not panic").context("the keeper's lane")?;
        result
    })
}

fn keep(mut keeper: Keeper, done: &AtomicBool) -> std::io::Result<()> {
    let begun = Instant::now();
    while !done.load(Relaxed) {
        let turn = keeper.turn(Now { us: begun.elapsed().as_micros() as u64, seconds: NOW })?;
        keeper.rest_for(&turn)?;
    }
    Ok(())
}

impl Plan<'_> {
    /// Bytes of the device that the items need.
    fn device_bytes(&self) -> u64 {
        let item = self.work.value_bytes as u64 + 8 + RECORD_BYTES;
        (self.work.keys * item * 100 / FILL_PERCENT + (64 << 20)).next_multiple_of(1 << 20)
    }

    /// Opens the device, and makes an empty table on it.
    fn open_device(&self, args: &BenchArgs) -> Result<Device> {
        let size_bytes = args.device.device_size.map_or(self.device_bytes(), |size| size.0);
        let device = match &self.target.0 {
            DeviceTarget::Memory => modelled(Some(size_bytes)),
            DeviceTarget::Path(path) => self.open_file(args, path, size_bytes)?,
        };
        self.make_table(&device)?;
        Ok(device)
    }

    /// Makes an empty table on a device.
    fn make_table(&self, device: &Device) -> Result<()> {
        let size_bytes = device.geometry().capacity_bytes;
        // 64 segments at least, so that compaction has a choice.
        let segment_bytes = (size_bytes / 64).next_power_of_two().clamp(1 << 20, 16 << 20) as u32;
        // Another table's pages must not be taken for this one's.
        let [table, seed, hash_seed] = [(); 3].map(|()| random_seed());
        let format = Format { table, seed, hash_seed, clock_zero_unix_s: 0, segment_bytes };
        minos_tier::format(device, &format).with_context(|| self.target.to_string())?;
        Ok(())
    }

    fn open_file(&self, args: &BenchArgs, path: &Path, size_bytes: u64) -> Result<Device> {
        let driver = args.device.driver_choice();
        let (size_bytes, prefill) = (Some(size_bytes), true);
        let options = FileOptions { size_bytes, create: true, prefill, driver, ..FileOptions::default() };
        let device = Device::open(path, &options).with_context(|| self.target.to_string())?;
        if !device.facts().was_created && !args.device.device_write {
            bail!("{} exists: --device-write destroys its contents", self.target);
        }
        Ok(device)
    }

    fn open(&self, device: &Device, preparation: &mut Preparation) -> Result<(Arc<Tier>, Keeper)> {
        let engine = |superblock: &minos_tier::Superblock| -> Result<_, CreateError> {
            let tier = TierConfig { is_lossless: true, ..TierConfig::default() };
            let memory_bytes = self.work.keys * INDEX_BYTES * 2 + MEMORY_BYTES;
            let value_bytes_max = self.work.value_bytes as u64;
            let hash_seed = superblock.hash_seed;
            let config = StoreConfig { tier, hash_seed, value_bytes_max, ..StoreConfig::new(memory_bytes) };
            Ok((Arc::new(Tiered::create(&config)?), Memory::Empty))
        };
        let options = Options::store(Durability::None);
        let (tier, keeper, recovered) = minos_tier::open(device, &options, NOW, engine)?;
        (preparation.recovery, preparation.records) = (recovered.took, recovered.records);
        Ok((tier, keeper))
    }

    /// Stores all items and makes them durable.
    fn load(&self, device: &Device) -> Result<Preparation> {
        let mut preparation = Preparation::default();
        let (tier, keeper) = self.open(device, &mut preparation)?;
        let begun = Instant::now();
        with_keeper(keeper, || {
            Driver::new(&tier, self.work, seeded_stream(self.seed, u64::MAX))?.load(PATIENCE)?;
            let id = tier.sync();
            ensure!(tier.wait_synced(id, PATIENCE)?, "{} does not become durable", self.target);
            preparation.load = begun.elapsed();
            let log = tier.stats().log;
            preparation.amplification = log.written_bytes as f64 / log.appended_bytes.max(1) as f64;
            Ok(())
        })?;
        Ok(preparation)
    }

    /// Runs all threads; their results and the processor time of the measured window.
    fn measure(&self, tier: &Arc<Tier>) -> Result<(Vec<Tally>, Duration)> {
        let Self { threads, cpus, warmup, duration, .. } = *self;
        let (tallies, (user, system)) = Team { threads, cpus, warmup, duration }.run(
            |number| Driver::new(tier, self.work, seeded_stream(self.seed, number as u64)),
            |driver, begin| driver.run(begin + warmup, duration),
        )?;
        Ok((tallies, user + system))
    }
}
