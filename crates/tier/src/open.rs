//! Makes tables on devices, and opens them.

use crate::{
    keeper::{Hands, Keeper},
    options::Options,
    payload::HEAD_BYTES,
    stats::KeeperCounts,
    tier::Tier,
};
use minos_base::{KeyHash, Seconds, limits::KEY_BYTES_MAX};
use minos_device::{Device, LaneOptions};
use minos_engine::{Standing, Tiered};
use minos_flash::{
    Damage, DeviceFailed, Found, Log, Newest, NotOurs, Outcome, Place, Recovery, Step, Tombstone, Winners,
    Work, WorkId, create,
    format::{Fault, Layout, LayoutError, PAGE_BYTES, Superblock},
};
use std::{
    io,
    sync::Arc,
    time::{Duration, Instant},
};
use thiserror::Error;

/// Longest time without any answer of the device.
const PATIENCE: Duration = Duration::from_secs(60);

/// Bytes at the beginning and at the end of a device that must be zeros before a table is made. File systems and other
/// users mark a device there, some of them tens of KiB from its ends.
const ENDS_BYTES: u64 = 1 << 20;
/// Bytes of a read that looks for zeros.
const LOOK_BYTES: usize = 64 << 10;

/// The contents of a device, as its first and last bytes tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Contents {
    /// A table.
    Table(Superblock),
    /// Zeros in the first and the last MiB.
    Empty,
    /// A table that this program cannot read: damaged, or of another version.
    Unreadable(Fault),
    /// Something that is not ours.
    Foreign,
}

/// A table to be made. All numbers but the size should be random, and the seeds be kept secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Format {
    /// Names the table.
    pub table: u64,
    /// Seed of checksums.
    pub seed: u64,
    /// Seed of key hashes, which the engine must have as well.
    pub hash_seed: u64,
    /// The second since 1970 that the store's clock counts from.
    pub clock_zero_unix_s: u64,
    /// Bytes of a segment, [`Layout::SEGMENT_BYTES`] as a rule.
    pub segment_bytes: u32,
}

impl Format {
    /// The usual bytes of a segment.
    pub const SEGMENT_BYTES: u32 = Layout::SEGMENT_BYTES;

    /// The superblock of the table on a device, before it is made.
    ///
    /// # Errors
    /// The sizes are not possible.
    pub fn superblock(&self, device: &Device) -> Result<Superblock, LayoutError> {
        let Self { table, seed, hash_seed, clock_zero_unix_s, segment_bytes } = *self;
        let layout = Layout::fitting(device.geometry().capacity_bytes, segment_bytes)?;
        Ok(Superblock { table, seed, hash_seed, clock_zero_unix_s, layout })
    }
}

/// The reason why no table was made.
#[derive(Debug, Error)]
pub enum FormatError {
    /// There is something on the device that is not ours.
    #[error(
        "the device holds something that is not a table of ours; it is left as it is. If nobody needs it, remove the file, or empty the device (`blkdiscard -z`)"
    )]
    Foreign,
    /// There is a table of a later version.
    #[error("the device holds a table that this program does not know: {0}")]
    Unreadable(Fault),
    /// The device holds a table with the same seed, whose pages would be taken for the new one's.
    #[error("the device holds a table with the same seed")]
    SameSeed,
    /// The sizes are not possible.
    #[error(transparent)]
    Layout(#[from] LayoutError),
    /// The device failed, or cannot be used.
    #[error(transparent)]
    Device(#[from] OpenError),
}

/// The reason why a table was not opened.
#[derive(Debug, Error)]
pub enum OpenError {
    /// There is no table, or none that can be read.
    #[error(transparent)]
    NotOurs(#[from] NotOurs),
    /// The table was made for a larger device.
    #[error("the table has {table} bytes, and is to use {device}: it neither grows nor shrinks")]
    TooSmall {
        /// Bytes of the table.
        table: u64,
        /// Bytes of the device.
        device: u64,
    },
    /// The engine could not be made.
    #[error("the engine: {0}")]
    Engine(Box<dyn std::error::Error + Send + Sync>),
    /// The engine takes values that no record holds.
    #[error("values of {bytes} bytes find no room in a record, whose largest has {max}")]
    ValueTooLarge {
        /// The engine's largest value.
        bytes: u64,
        /// Most bytes of a value in a record.
        max: u64,
    },
    /// A store's engine has no room in its index for what the device holds.
    #[error("the index has no room for {missing} of the records on the device: it needs more memory")]
    IndexFull {
        /// Records that found no room.
        missing: u64,
    },
    /// The engine's memory is that of another table.
    #[error("the region belongs to another table than the one on the device")]
    OtherRegion,
    /// The table was changed since the engine's memory was last above it.
    #[error(
        "the table on the device was used without this region since: its items are old. Remove it to go on with the device alone"
    )]
    OldRegion,
    /// The table is older than the engine's memory: it is a copy, or the memory is that of one.
    #[error(
        "the table on the device is not the one that this region was last above: one of them is of a copy"
    )]
    RegionOfCopy,
    /// The device failed.
    #[error(transparent)]
    Device(#[from] DeviceFailed),
    /// The device cannot be used.
    #[error("the device cannot be used: {0}")]
    Lane(#[from] io::Error),
}

/// The engine's memory when its table is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Memory {
    /// New and empty.
    Empty,
    /// Outlived the process with its index.
    Kept,
}

/// The result of recovery.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Recovered {
    /// Live records that the index names now.
    pub records: u64,
    /// Records and tombstones that were found.
    pub found: u64,
    /// Records that have expired.
    pub expired: u64,
    /// Records for which a cache's index had no room.
    pub crowded: u64,
    /// Records that the index, which outlived the process, knows to be dead.
    pub dead: u64,
    /// What does not verify of what had been complete.
    pub damage: Option<Damage>,
    /// Items that were there at a clean stop before, and that are not found.
    pub lost: u64,
    /// The time that it took.
    pub took: Duration,
}

/// Looks at a device.
///
/// # Errors
/// The device fails or cannot be used.
pub fn inspect(device: &Device) -> Result<Contents, OpenError> {
    let options = LaneOptions { pool_bytes: 1 << 20, ..LaneOptions::default() };
    contents(&mut Driver::new(device, &options)?, device.geometry().capacity_bytes)
}

fn contents(driver: &mut Driver, capacity_bytes: u64) -> Result<Contents, OpenError> {
    let reads = [0, PAGE_BYTES as u64].map(|at| Work::Read { at, len: PAGE_BYTES });
    let pages = driver.run_all(reads.into())?;
    Ok(match Superblock::of_copies(pages.iter().map(Vec::as_slice)) {
        Ok(superblock) => Contents::Table(superblock),
        Err(Fault::Mark(_)) if has_zero_ends(driver, capacity_bytes)? => Contents::Empty,
        Err(Fault::Mark(_) | Fault::Foreign) => Contents::Foreign,
        Err(fault) => Contents::Unreadable(fault),
    })
}

/// True if the first and the last bytes of a device are zeros.
fn has_zero_ends(driver: &mut Driver, capacity_bytes: u64) -> Result<bool, OpenError> {
    let page = PAGE_BYTES as u64;
    let last = capacity_bytes.saturating_sub(ENDS_BYTES) / page * page;
    for (begin, end) in [(0, capacity_bytes.min(ENDS_BYTES)), (last, capacity_bytes)] {
        let reads = (begin..end).step_by(LOOK_BYTES);
        let reads = reads.map(|at| Work::Read { at, len: (end - at).min(LOOK_BYTES as u64) as usize });
        if driver.run_all(reads.collect())?.iter().flatten().any(|byte| *byte != 0) {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Makes an empty table on a device that is empty or holds a table of ours, maybe an older one, which is lost. Only to be
/// called where the user asked for it.
///
/// # Errors
/// The device holds something else, is too small, or fails.
pub fn format(device: &Device, format: &Format) -> Result<Superblock, FormatError> {
    match inspect(device)? {
        Contents::Table(old) if old.seed == format.seed => return Err(FormatError::SameSeed),
        Contents::Table(_) | Contents::Empty => {}
        // A damaged, unfinished or older one was ours.
        Contents::Unreadable(Fault::Checksum) => {}
        Contents::Unreadable(Fault::Version(version)) if version < Superblock::VERSION => {}
        Contents::Unreadable(fault) => return Err(FormatError::Unreadable(fault)),
        Contents::Foreign => return Err(FormatError::Foreign),
    }
    let superblock = format.superblock(device)?;
    let pool_bytes = (8 * superblock.layout.journal_bytes() as usize).max(1 << 20);
    let mut driver = Driver::new(device, &LaneOptions { pool_bytes, ..LaneOptions::default() })
        .map_err(OpenError::from)?;
    for step in create(&superblock) {
        driver.run_all(step)?;
    }
    Ok(superblock)
}

/// Opens the table on a device: `engine` makes the engine, whose hash seed must be the superblock's, and says whether its
/// memory was kept. Nothing is formatted.
///
/// # Errors
/// There is no table, the engine does not fit, or the device fails.
pub fn open<E>(
    device: &Device,
    options: &Options,
    now: Seconds,
    engine: impl FnOnce(&Superblock) -> Result<(Arc<Tiered>, Memory), E>,
) -> Result<(Arc<Tier>, Keeper, Recovered), OpenError>
where
    E: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let begun = Instant::now();
    let mut options = *options;
    let pool_bytes = options.write_lane.pool_bytes.max(2 << 20);
    let mut driver = Driver::new(device, &LaneOptions { pool_bytes, ..options.write_lane })?;
    check_size(&mut driver, device)?;
    let mut newest = Newest::default();
    let mut recovered = Recovered::default();
    let (superblock, found) = recover(&mut driver, |found| {
        recovered.found += 1;
        newest.add(found);
    })?;
    let layout = superblock.layout;
    recovered.damage = found.damage;
    let (engine, memory) = engine(&superblock).map_err(|error| OpenError::Engine(error.into()))?;
    check_value(engine.value_bytes_max(), &layout)?;
    let mut log = Log::resume(&superblock, log_options(&options, &engine, &layout), found);
    check_region(&engine, &superblock, (memory, &log))?;
    let winners = newest.decide();
    let items_before = recovered.damage.and_then(|damage| damage.items);
    recovered.lost = items_before.map_or(0, |items| items.saturating_sub(winners.live().count() as u64));
    winners.settle(&mut log);
    let dead = adopt(&engine, &winners, (memory, now), &mut log, &mut recovered);
    if options.is_lossless && recovered.crowded > 0 {
        return Err(OpenError::IndexFull { missing: recovered.crowded });
    }
    drop(driver);
    // Footers are written at once, records are read at once.
    let half = layout.segment_bytes() as usize / 2;
    options.write_lane.pool_bytes = options.write_lane.pool_bytes.max(2 * half).max(4 << 20);
    options.read_lane.pool_bytes = options.read_lane.pool_bytes.max(half * 5 / 4);
    let lane = device.lane(&options.write_lane)?;
    let tier = Arc::new(Tier::new(engine, device.clone(), superblock, options));
    let damaged_pages = recovered.damage.map_or(0, |damage| damage.pages);
    tier.kept.add(&KeeperCounts { lost: recovered.lost, damaged_pages, ..KeeperCounts::default() });
    let mut keeper = Keeper::new(Arc::clone(&tier), log, lane)?;
    keeper.bury_first(dead);
    recovered.took = begun.elapsed();
    Ok((tier, keeper, recovered))
}

/// What lies beyond the device's end would look like segments that cannot be read.
fn check_size(driver: &mut Driver, device: &Device) -> Result<(), OpenError> {
    let device = device.geometry().capacity_bytes;
    let Contents::Table(superblock) = contents(driver, device)? else { return Ok(()) };
    let table = superblock.layout.device_bytes();
    if table > device { Err(OpenError::TooSmall { table, device }) } else { Ok(()) }
}

/// Where compaction waits for groups, it begins while there is room for a group of all that memory holds.
fn log_options(options: &Options, engine: &Tiered, layout: &Layout) -> minos_flash::Options {
    let mut log = options.log.unwrap_or(minos_flash::Options::of(options.policy(), layout));
    log.scrub_bytes_s = options.scrub_bytes_s.unwrap_or(log.scrub_bytes_s);
    log.compaction_bytes_s = options.compaction_bytes_s.unwrap_or(log.compaction_bytes_s);
    if options.holds_deaths() {
        let of_memory = engine.memory_limit().div_ceil(u64::from(layout.segment_bytes())) as usize;
        log.available_min += of_memory.min(layout.segments() as usize / 4);
    }
    log
}

/// Bytes of the largest value that finds room in a record, whatever its key.
pub fn value_bytes_max(layout: &Layout) -> u64 {
    layout.record_bytes_max().saturating_sub((KEY_BYTES_MAX + HEAD_BYTES) as u64)
}

/// The largest value must find room in a record.
///
/// # Errors
/// [`OpenError::ValueTooLarge`].
pub fn check_value(bytes: u64, layout: &Layout) -> Result<(), OpenError> {
    let max = value_bytes_max(layout);
    if bytes > max { Err(OpenError::ValueTooLarge { bytes, max }) } else { Ok(()) }
}

/// Memory that outlived the process must be that of this table, and of its last session.
fn check_region(
    engine: &Tiered,
    superblock: &Superblock,
    (memory, log): (Memory, &Log),
) -> Result<(), OpenError> {
    if engine.hash_seed() != superblock.hash_seed {
        return Err(OpenError::OtherRegion);
    }
    // Each session writes a journal, and memory knows of it a moment earlier.
    let (known, durable) = (engine.journal_known(), log.journal_number());
    match memory {
        Memory::Kept if known < durable => Err(OpenError::OldRegion),
        Memory::Kept if known > durable + 1 => Err(OpenError::RegionOfCopy),
        Memory::Kept | Memory::Empty => Ok(()),
    }
}

/// The index names the live records. Returns tombstones for those that a kept memory knows to be dead.
fn adopt(
    engine: &Tiered,
    winners: &Winners,
    (memory, now): (Memory, Seconds),
    log: &mut Log,
    recovered: &mut Recovered,
) -> Vec<Tombstone> {
    let mut dead = Vec::new();
    if memory == Memory::Empty {
        engine.expect_cold(winners.live().count() as u64);
    }
    // In the order of hashes one partition comes after the other, so that the caches hold the index of each.
    for (hash, sequence, expiry, place) in winners.live() {
        let is_expired = expiry != 0 && expiry <= now;
        if memory == Memory::Kept {
            if is_named(engine, winners, (hash, sequence), place) {
                recovered.records += 1;
            } else {
                recovered.dead += 1;
                dead.push(Tombstone { hash, sequence, place, is_forgotten: true });
            }
        } else if is_expired {
            recovered.expired += 1;
            log.debit(place);
        } else if engine.adopt(hash, place, sequence).is_ok() {
            recovered.records += 1;
        } else {
            recovered.crowded += 1;
            log.debit(place);
        }
    }
    match memory {
        Memory::Empty => engine.pass_lost_sequences(winners.sequence_max()),
        Memory::Kept => engine.pass_sequence(winners.sequence_max()),
    }
    dead
}

/// True if memory that outlived the process names this record, or the one that it is a copy of: from now on the copy.
fn is_named(engine: &Tiered, winners: &Winners, (hash, sequence): (KeyHash, u64), place: Place) -> bool {
    let is_named = |page| engine.standing(hash, page) != Standing::Dead;
    is_named(place.page)
        || winners.left(hash, sequence).any(|page| is_named(page) && engine.move_cold(hash, page, place))
}

fn recover(
    driver: &mut Driver,
    out: impl FnMut(&Found),
) -> Result<(Superblock, minos_flash::Recovered), OpenError> {
    run(driver, (Recovery::new(), || false), out)?.ok_or_else(|| DeviceFailed::Broken.into())
}

/// Runs a recovery to its end. `None` if it `is_over` before.
pub(crate) fn run(
    driver: &mut Driver,
    (mut recovery, is_over): (Recovery, impl Fn() -> bool),
    mut out: impl FnMut(&Found),
) -> Result<Option<(Superblock, minos_flash::Recovered)>, OpenError> {
    let mut step = Step::Working;
    while !is_over() {
        recovery.poll(driver.hands.jobs());
        driver.run(|id, outcome| {
            if matches!(step, Step::Working) {
                step = recovery.done(id, outcome, &mut out);
            }
        })?;
        match step {
            Step::Working => {}
            Step::Done(done) => return Ok(Some(*done)),
            Step::Failed(reason) => return Err(reason.into()),
        }
    }
    Ok(None)
}

/// Executes work, and waits for it.
pub(crate) struct Driver {
    hands: Hands,
    /// Longest time without any answer of the device.
    patience: Duration,
}

impl Driver {
    pub(crate) fn new(device: &Device, options: &LaneOptions) -> io::Result<Self> {
        Ok(Self { hands: Hands::new(device.lane(options)?), patience: PATIENCE })
    }

    /// Waits no longer than this for an answer of the device.
    pub(crate) fn waiting_for(self, patience: Duration) -> Self {
        Self { patience, ..self }
    }

    /// Submits what there is, and waits for a result.
    fn run(&mut self, mut f: impl FnMut(WorkId, Outcome<'_>)) -> Result<(), OpenError> {
        let begun = Instant::now();
        while begun.elapsed() < self.patience {
            self.hands.submit()?;
            if self.hands.take_one(&mut f)? {
                return Ok(());
            }
            self.hands.wait(Duration::from_millis(100))?;
        }
        Err(DeviceFailed::Broken.into())
    }

    /// Executes independent pieces of work; the bytes that were read.
    pub(crate) fn run_all(&mut self, works: Vec<Work>) -> Result<Vec<Vec<u8>>, OpenError> {
        let mut results = vec![None; works.len()];
        let jobs = works.into_iter().enumerate();
        self.hands.jobs().extend(jobs.map(|(number, work)| (WorkId(number as u64), work)));
        while results.iter().any(Option::is_none) {
            self.run(|id, outcome| results[id.0 as usize] = Some(outcome.map(<[u8]>::to_vec)))?;
        }
        let results: Result<Vec<_>, DeviceFailed> = results.into_iter().flatten().collect();
        Ok(results?)
    }
}
