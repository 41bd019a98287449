//! The options of flash below the memory, and the table on it.

use std::{
    fs::{self, OpenOptions},
    path::{Path, PathBuf},
    str::FromStr,
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::{Context, bail, ensure};
use clap::{Args, ValueEnum};
use minos_base::{Clock, SizeText};
use minos_device::{Device, FileOptions, OpenError};
use minos_engine::{Opening, StoreConfig, TierConfig, Tiered};
use minos_net::{Address, Listener, has_unused_sockets};
use minos_node::{
    ServerConfig,
    config::{Gathering, Promote, VectorWidth},
    settings::parse_time,
};
use minos_tier::{Contents, Damage, Durability, Format, Keeper, Memory, Options, Recovered, Superblock};

use super::{
    ServeOptions,
    values::{EngineKind, names, random_seed},
};
use crate::{admin::keys, rate::parse_rate};

/// Longest time to wait for a device that another server has just left.
const RELEASE_MAX: Duration = Duration::from_secs(2);

/// Segments of a small device.
const SEGMENTS_MIN: u64 = 64;
const SEGMENT_BYTES_MIN: u32 = 64 << 10;

/// The options of `minos serve` for flash.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Flash")]
pub(crate) struct FlashOptions {
    /// File or block device below the memory, for items that leave it; a missing file is made, with this size
    #[arg(long, value_name = "PATH[:SIZE]")]
    pub(crate) flash: Option<FlashPath>,
    /// Make an empty table there. An old one is lost; anything else is left as it is
    #[arg(long, requires = "flash")]
    pub(super) flash_format: bool,
    /// When a change survives a power loss: once its item has left memory (none), after some time (interval), before
    /// it is acknowledged (flush)
    #[arg(long, value_enum, default_value_t = Promise::None, requires = "flash")]
    durability: Promise,
    /// That time, with --durability interval
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = parse_time, requires = "flash")]
    durability_interval: Duration,
    /// Reads that a worker submits as one vector: those that wait, at least MIN or after --flash-delay, at most MAX
    /// (with a MIN of 1 they wait for one under way to end, if there is any); or those of one request or datagram
    /// (direct)
    #[arg(long, value_name = "MIN:MAX|direct", default_value = "1:1024", requires = "flash")]
    flash_width: VectorWidth,
    /// Time for which a read waits for others, if there are fewer
    #[arg(long, value_name = "TIME", default_value = "20us", value_parser = parse_time, requires = "flash")]
    flash_delay: Duration,
    /// Time for which a request waits for room in memory while flash takes items. Then a store refuses it, and a cache
    /// evicts what flash does not have. At most 1h, 0s: it does not wait [default: 1s, or 200ms with --engine cache]
    #[arg(long, value_name = "TIME", value_parser = parse_time, requires = "flash")]
    pub(super) flash_wait: Option<Duration>,
    /// When an item that is read comes to memory, if others would leave for it: with the first read, or the second in a
    /// while
    #[arg(long, value_name = "READ", default_value = "second", value_parser = names::<Promote>(Promote::NAMES), requires = "flash")]
    pub(super) flash_promote: Promote,
    /// Bytes a second that are read from flash to find what rots, round and round; 0: none
    #[arg(long, value_name = "SIZE", default_value = "1m", value_parser = parse_rate, requires = "flash")]
    scrub_rate: u64,
    /// Bytes a second that compaction reads to move, unless segments run out; 0: none
    #[arg(long, value_name = "SIZE", default_value = "64m", value_parser = parse_rate, requires = "flash")]
    compaction_rate: u64,
}

/// A path, and the size of the file to be made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FlashPath {
    path: PathBuf,
    size_bytes: Option<u64>,
}

impl FromStr for FlashPath {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let sized =
            text.rsplit_once(':').and_then(|(path, size)| Some((path, size.parse::<SizeText>().ok()?)));
        let (path, size_bytes) = sized.map_or((text, None), |(path, size)| (path, Some(size.0)));
        if path.is_empty() {
            return Err("expected PATH or PATH:SIZE".to_owned());
        }
        Ok(Self { path: path.into(), size_bytes })
    }
}

/// What a power loss leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Promise {
    /// Items that have left memory.
    None,
    /// Everything but the changes of the last interval.
    Interval,
    /// Everything that was acknowledged.
    Flush,
}

impl FlashOptions {
    /// How reads are gathered.
    pub(super) fn gathering(&self) -> Gathering {
        Gathering { width: self.flash_width, delay: self.flash_delay }
    }

    /// True if opening makes a table: an old one is lost then.
    pub(super) fn makes_table(&self, flash: &FlashPath) -> bool {
        let is_new = || fs::metadata(&flash.path).map_or(true, |file| file.is_file() && file.len() == 0);
        self.flash_format || is_new()
    }

    /// True if changes survive the loss of memory.
    pub(super) fn promises_durability(&self) -> bool {
        self.flash.is_some() && self.durability != Promise::None
    }

    /// Opens the table on `flash`, or makes one, under an engine of `config`. Also returns the clock by which
    /// items expire. Unless the largest value `is_fixed`, it is lowered to what a record has room for.
    ///
    /// # Errors
    /// The device cannot be used, holds something else, or is too small.
    pub(super) fn open(
        &self,
        flash: &FlashPath,
        above: Above,
        config: &StoreConfig,
        is_fixed: bool,
    ) -> anyhow::Result<(Keeper, Clock)> {
        // A cache does not yet keep all that it must not return.
        ensure!(
            !above.has_region || above.engine == EngineKind::Store,
            "--region above --flash needs --engine store"
        );
        let name = format!("--flash {}", flash.path.display());
        let file = FileOptions { size_bytes: flash.size_bytes, create: true, ..FileOptions::default() };
        let device = open_soon(&flash.path, &file).with_context(|| name.clone())?;
        let fixed_bytes = is_fixed.then_some(config.value_bytes_max);
        let table = self.table((&device, &flash.path), above, fixed_bytes);
        let (table, is_new) = table.with_context(|| name.clone())?;
        let options = self.tier_options(above.engine);
        let make = |superblock: &Superblock| {
            let room = if is_fixed { u64::MAX } else { minos_tier::value_bytes_max(&superblock.layout) };
            let config = StoreConfig {
                tier: TierConfig { is_lossless: options.is_lossless, ..config.tier },
                hash_seed: superblock.hash_seed,
                value_bytes_max: config.value_bytes_max.min(room),
                ..config.clone()
            };
            let (engine, memory) = if above.has_region {
                memory_above(&config, options.durability)?
            } else {
                (Arc::new(Tiered::create(&config)?), Memory::Empty)
            };
            engine.set_clock_base(superblock.clock_zero_unix_s);
            anyhow::Ok((engine, memory))
        };
        let made = table.as_ref().map(&make).transpose().with_context(|| name.clone())?;
        if let (Some(table), Some((_, Memory::Empty))) = (&table, &made)
            && !is_new
            && self.is_lost_with_memory(above)
        {
            // What memory has lost may have been newer.
            tracing::warn!("{name}: it begins without items, because the memory above it is gone");
            let format = Format { table: random_seed(), seed: random_seed(), ..format_of(table) };
            make_table(&device, &format, fixed_bytes).with_context(|| name.clone())?;
        }
        let clock = table.map_or_else(Clock::new, |table| Clock::with_zero_at(table.clock_zero_unix_s));
        let opened = minos_tier::open(&device, &options, clock.seconds(), |superblock| {
            made.map_or_else(|| make(superblock), Ok)
        });
        let (_, keeper, recovered) = opened.with_context(|| name.clone())?;
        tell(&name, &device, &recovered);
        Ok((keeper, clock))
    }

    /// True if what is on flash does not count without the memory above it. Others have seen what that memory held, and
    /// with a coordinator may have changed it since.
    fn is_lost_with_memory(&self, above: Above) -> bool {
        above.is_managed || above.is_in_rack && self.durability != Promise::Flush
    }

    /// The table on the device, and whether it is new: one is made where the user asks for it, or in a file that is new.
    /// `None` if it cannot be read: opening it says why. One that is made has room for values of so many bytes.
    fn table(
        &self,
        (device, path): (&Device, &Path),
        above: Above,
        fixed_bytes: Option<u64>,
    ) -> anyhow::Result<(Option<Superblock>, bool)> {
        if !self.flash_format && !device.facts().was_created {
            return match minos_tier::inspect(device)? {
                Contents::Empty => bail!("there is no table; --flash-format makes one"),
                Contents::Foreign => bail!("it holds something that is not a table of this program"),
                Contents::Table(table) if above.hash_seed.is_some_and(|seed| seed != table.hash_seed) => {
                    bail!("its table hashes keys otherwise (--hash-seed)")
                }
                Contents::Table(table) => Ok((Some(table), false)),
                Contents::Unreadable(_) => Ok((None, false)),
            };
        }
        let format = Format {
            table: random_seed(),
            seed: random_seed(),
            hash_seed: above.hash_seed.unwrap_or_else(random_seed),
            clock_zero_unix_s: Clock::new().zero_unix_s(),
            segment_bytes: segment_bytes(device.geometry().capacity_bytes),
        };
        let table = make_table(device, &format, fixed_bytes).inspect_err(|_| empty_if_new(device, path))?;
        tracing::info!("made an empty table");
        Ok((Some(table), true))
    }

    fn tier_options(&self, engine: EngineKind) -> Options {
        let durability = match self.durability {
            Promise::None => Durability::None,
            Promise::Interval => Durability::Interval(self.durability_interval.as_millis() as u64),
            Promise::Flush => Durability::Flush,
        };
        let usual = match engine {
            EngineKind::Cache => Options { durability, ..Options::cache() },
            EngineKind::Store => Options::store(durability),
        };
        Options {
            scrub_bytes_s: Some(self.scrub_rate),
            compaction_bytes_s: Some(self.compaction_rate),
            ..usual
        }
    }
}

/// Refuses what is known to end this start after a table was made: an old one would be lost for nothing.
///
/// # Errors
/// A value is out of its bounds, the region is not empty, or an address is in use.
pub(super) fn check_before_making(options: &ServeOptions, config: &ServerConfig) -> anyhow::Result<()> {
    config.check()?;
    keys(&options.admin, config.tls.as_ref().map(|tls| &tls.acceptor))?;
    if let Some(region) = &options.region {
        ensure!(!region.is_used()?, "--region {region} holds items above another table; remove it");
    }
    // Sockets that were left to this process listen already. The path of a Unix socket would be taken over.
    if has_unused_sockets() {
        return Ok(());
    }
    let admin = options.admin.admin.iter().map(|admin| &admin.address);
    let addresses = config.memcached.iter().chain(&config.resp).chain(admin);
    let bind = |address| Listener::bind(address).with_context(|| format!("cannot listen on {address}"));
    addresses
        .filter(|address| matches!(address, Address::Tcp(_)))
        .map(bind)
        .collect::<Result<Vec<_>, _>>()?;
    Ok(())
}

/// What is above a table.
#[derive(Clone, Copy, Debug)]
pub(super) struct Above {
    pub(super) engine: EngineKind,
    pub(super) has_region: bool,
    /// The seed of the key hash that was asked for. All nodes of a rack have one.
    pub(super) hash_seed: Option<u64>,
    /// It is a node of a rack, perhaps one with a coordinator.
    pub(super) is_in_rack: bool,
    pub(super) is_managed: bool,
}

/// Logs what was found on a device.
fn tell(name: &str, device: &Device, recovered: &Recovered) {
    let facts = device.facts();
    tracing::info!(
        driver = %facts.driver,
        records = recovered.records,
        expired = recovered.expired,
        crowded = recovered.crowded,
        took_ms = recovered.took.as_millis() as u64,
        "{name}"
    );
    match recovered.damage {
        None => {}
        Some(Damage { segments, pages, items: Some(items) }) => tracing::warn!(
            segments,
            pages,
            lost = recovered.lost,
            items,
            "{name}: it was damaged since it was stopped: pages in these segments do not verify, \
             and of the items of that time so many are lost"
        ),
        Some(Damage { segments, pages, items: None }) => tracing::warn!(
            segments,
            pages,
            "{name}: it is damaged: pages in these segments were complete and do not verify; \
             what the last session had is not known, because it was not stopped"
        ),
    }
    for reason in facts.why_threads.iter().chain(&facts.why_buffered) {
        tracing::warn!("{name}: {reason}");
    }
}

/// The format of a table.
fn format_of(table: &Superblock) -> Format {
    let Superblock { table: number, seed, hash_seed, clock_zero_unix_s, layout } = *table;
    Format { table: number, seed, hash_seed, clock_zero_unix_s, segment_bytes: layout.segment_bytes() }
}

/// The engine above a table, and whether its memory outlived the last process.
fn memory_above(config: &StoreConfig, durability: Durability) -> anyhow::Result<(Arc<Tiered>, Memory)> {
    let (mut engine, opening) = Tiered::open(config)?;
    let mut memory = Memory::Kept;
    match opening {
        Opening::Created | Opening::StartedEmpty { .. } => memory = Memory::Empty,
        // What was dropped is on flash, and what is only in memory was not acknowledged.
        Opening::Repaired { dropped: 1.., .. } if durability == Durability::Flush => {
            drop(engine);
            config.backing.remove()?;
            (engine, memory) = (Tiered::open(config)?.0, Memory::Empty);
        }
        Opening::Repaired { .. } | Opening::Warm { .. } => {}
    }
    Ok((Arc::new(engine), memory))
}

/// Opens a device. The kernel may hold one for a moment after its server was killed, until the ring has ended.
fn open_soon(path: &Path, options: &FileOptions) -> Result<Device, OpenError> {
    let begun = Instant::now();
    loop {
        match Device::open(path, options) {
            Err(OpenError::InUse { .. }) if begun.elapsed() < RELEASE_MAX => {
                std::thread::sleep(Duration::from_millis(20));
            }
            opened => return opened,
        }
    }
}

/// Makes a table, if it has room for values of so many bytes.
fn make_table(device: &Device, format: &Format, value_bytes: Option<u64>) -> anyhow::Result<Superblock> {
    if let Some(bytes) = value_bytes {
        minos_tier::check_value(bytes, &format.superblock(device)?.layout)?;
    }
    Ok(minos_tier::format(device, format)?)
}

/// Empties a file that was made for a table which was not: the next start may make one.
fn empty_if_new(device: &Device, path: &Path) {
    if device.facts().was_created
        && let Err(error) = OpenOptions::new().write(true).truncate(true).open(path)
    {
        tracing::warn!(%error, "{} is left without a table", path.display());
    }
}

/// Bytes of a segment on a device: the usual ones, or fewer, so that compaction has enough to choose from.
fn segment_bytes(capacity_bytes: u64) -> u32 {
    let share = (capacity_bytes / SEGMENTS_MIN).max(1).ilog2();
    (1u32 << share.min(Format::SEGMENT_BYTES.ilog2())).max(SEGMENT_BYTES_MIN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_small_device_has_small_segments() {
        for (capacity_bytes, bytes) in
            [(0, 64 << 10), (64 << 20, 1 << 20), (100 << 20, 1 << 20), (1 << 40, 16 << 20)]
        {
            assert_eq!(segment_bytes(capacity_bytes), bytes);
        }
    }

    #[test]
    fn a_path_may_name_a_size() {
        let parse =
            |text: &str| text.parse::<FlashPath>().map(|it| (it.path.display().to_string(), it.size_bytes));
        assert_eq!(parse("/dev/x"), Ok(("/dev/x".to_owned(), None)));
        assert_eq!(parse("a:b"), Ok(("a:b".to_owned(), None)));
        assert_eq!(parse("a:4g"), Ok(("a".to_owned(), Some(4 << 30))));
        assert!(parse(":4g").is_err());
    }
}
