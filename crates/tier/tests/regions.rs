//! Kills of a process whose memory is a file, between any two turns, and power losses that take that file too.

mod common;

use common::{NOW, Rig, key, value};
use minos_device::{
    Device, MemoryOptions,
    faulty::{Faults, Twin},
};
use minos_engine::{Backing, ItemMeta, StoreConfig, Tiered};
use minos_tier::{Durability, Memory, Options};
use rand::{RngExt, SeedableRng, rngs::StdRng};
use std::{collections::HashMap, sync::Arc};
use tempfile::TempDir;

/// With their values, about twice what memory holds, and half of what the device holds.
const KEYS: u32 = 2500;
const DEVICE_BYTES: u64 = 6 << 20;
const STEPS: u32 = 6000;
/// Segments for a group of all that memory holds.
const ROOM_MIN: u64 = 16;
/// Keys that are read after a kill.
const LOOKS: u32 = 150;

/// The versions that a key may have after a power loss: the last is the newest, the first that at the last sync.
type Versions = Vec<Option<u32>>;

struct World {
    /// `None` while no process runs.
    rig: Option<Rig>,
    twin: Twin,
    options: Options,
    folder: TempDir,
    random: StdRng,
    model: HashMap<u32, Versions>,
    version: u32,
    kills: u32,
    /// The file is lost with each kill: for the control.
    loses_file: bool,
}

impl World {
    fn new(options: Options, seed: u64) -> Self {
        let memory = MemoryOptions { capacity_bytes: DEVICE_BYTES, ..MemoryOptions::default() };
        let twin = Twin::over(Device::in_memory(&memory), Faults::none(), seed);
        minos_tier::format(&twin.device(), &common::format()).unwrap();
        twin.set_faults(Faults { slow: 0.5, slow_polls_max: 6, ..Faults::none() });
        let (folder, random) = (tempfile::tempdir().unwrap(), StdRng::seed_from_u64(seed));
        let (model, version, kills) = (HashMap::new(), 0, 0);
        let mut world =
            Self { rig: None, twin, options, folder, random, model, version, kills, loses_file: false };
        world.open().unwrap();
        world
    }

    /// Begins a process. Without the file memory is empty.
    fn open(&mut self) -> Result<(), String> {
        let path = self.folder.path().join("region");
        let memory = if path.exists() { Memory::Kept } else { Memory::Empty };
        let engine = move |config: &StoreConfig| {
            let config = StoreConfig { backing: Backing::File(path), ..config.clone() };
            Tiered::open(&config).map(|(engine, _)| (Arc::new(engine), memory))
        };
        let rig = Rig::open_with(&self.twin.device(), self.options, engine);
        let mut rig = rig.map_err(|error| error.to_string())?;
        rig.store = rig.store.promoting(self.random.random_bool(0.5));
        self.rig = Some(rig);
        Ok(())
    }

    fn rig(&mut self) -> &mut Rig {
        self.rig.as_mut().expect("a process runs")
    }

    fn step(&mut self) -> Result<(), String> {
        let number = self.random.random_range(0..KEYS);
        match self.random.random_range(0..1000) {
            0..600 => self.put(number),
            600..750 => self.delete(number),
            750..900 => self.check(number)?,
            900..980 => (0..8).for_each(|_| _ = self.rig().turn()),
            980..993 => self.sync(),
            993..999 => self.kill()?,
            _ => self.lose_power()?,
        }
        self.rig().turn();
        Ok(())
    }

    fn versions(&mut self, number: u32) -> &mut Versions {
        self.model.entry(number).or_insert_with(|| vec![None])
    }

    fn put(&mut self, number: u32) {
        self.version += 1;
        let version = self.version;
        // Some expire soon enough to lie in a stream of their own, but not here.
        let expiry = if self.random.random_bool(0.2) { NOW + 1000 } else { 0 };
        let meta = ItemMeta { expiry, ..ItemMeta::default() };
        if self.rig().put_with(&key(number), &value(number, version), meta) {
            self.versions(number).push(Some(version));
        }
    }

    fn delete(&mut self, number: u32) {
        for _ in 0..200 {
            if self.rig().store.delete(&key(number), NOW).is_ok() {
                return self.versions(number).push(None);
            }
            self.rig().turn();
        }
    }

    fn get(&mut self, number: u32) -> Result<Option<Vec<u8>>, String> {
        let got = self.rig().get(&key(number));
        got.map_err(|error| format!("key {number}: {error}"))
    }

    /// The key has its newest version; that of a cache may be gone.
    fn check(&mut self, number: u32) -> Result<(), String> {
        let got = self.get(number)?;
        let newest = *self.versions(number).last().expect("a version");
        let may_miss = !self.options.is_lossless && got.is_none();
        if may_miss || got == newest.map(|version| value(number, version)) {
            return Ok(());
        }
        let is = self.versions(number).iter().rposition(|it| it.map(|it| value(number, it)) == got);
        Err(format!("key {number} is not {newest:?}, but {is:?} of {:?}", self.versions(number)))
    }

    fn sync(&mut self) {
        self.rig().sync();
        self.model.values_mut().for_each(|versions| drop(versions.drain(..versions.len() - 1)));
    }

    fn kill(&mut self) -> Result<(), String> {
        // Each start takes segments, and a store that lacks them for a group never has any again.
        let has_room = |world: &mut Self| world.rig().tier.stats().state.available_segments >= ROOM_MIN;
        if !self.options.is_lossless || has_room(self) {
            self.kill_now()?;
        }
        Ok(())
    }

    fn kill_now(&mut self) -> Result<(), String> {
        self.kills += 1;
        // Requests in flight are completed or not; nobody is told. The device keeps what was completed.
        self.rig = None;
        if self.loses_file {
            std::fs::remove_file(self.folder.path().join("region")).unwrap();
        }
        self.open()?;
        for _ in 0..LOOKS {
            let number = self.random.random_range(0..KEYS);
            self.check(number).map_err(|error| format!("after kill {}: {error}", self.kills))?;
        }
        self.look_at_counts()
    }

    fn look_at_counts(&mut self) -> Result<(), String> {
        let stats = self.rig().tier.stats();
        let is_sane = stats.state.live_bytes <= stats.state.capacity_bytes;
        if is_sane { self.rig().tier.engine().check() } else { Err(format!("{stats:?}")) }
    }

    /// The power fails; memory is lost with it.
    fn lose_power(&mut self) -> Result<(), String> {
        if self.options == Options::store(Durability::None) {
            return Ok(());
        }
        self.twin.cut_power();
        self.rig = None;
        std::fs::remove_file(self.folder.path().join("region")).unwrap();
        self.open()?;
        for number in 0..KEYS {
            let got = self.get(number)?;
            let may_miss = !self.options.is_lossless && got.is_none();
            let versions = self.versions(number);
            let is_it = |version: &&Option<u32>| version.map(|it| value(number, it)) == got;
            let kept = versions.iter().rev().find(is_it).copied().or(may_miss.then_some(None));
            let Some(kept) = kept else {
                let bytes = got.map(|it| it.len());
                return Err(format!("power: key {number} is none of {versions:?}, but {bytes:?}"));
            };
            *versions = vec![kept];
            self.rig().turn();
        }
        self.look_at_counts()
    }
}

fn seeds() -> std::ops::Range<u64> {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let first = number("MINOS_TIER_SEED").unwrap_or(0);
    first..first + number("MINOS_TIER_SEEDS").unwrap_or(1)
}

fn run(options: Options, seed: u64, loses_file: bool) -> Result<(), String> {
    let mut world = World::new(options, seed);
    world.loses_file = loses_file;
    (0..STEPS).try_for_each(|_| world.step())?;
    (0..KEYS).try_for_each(|number| world.check(number))?;
    world.sync();
    world.kill()?;
    world.lose_power()
}

fn survives(options: Options) {
    for seed in seeds() {
        let result = run(options, seed, false);
        assert!(result.is_ok(), "MINOS_TIER_SEED={seed} {:?}: {result:?}", options.durability);
    }
}

#[test]
fn a_cache_returns_nothing_that_was_replaced_after_a_kill() {
    survives(Options::cache());
    survives(Options { durability: Durability::Flush, ..Options::cache() });
}

#[test]
fn a_store_loses_nothing_in_a_kill() {
    survives(Options::store(Durability::None));
}

#[test]
fn a_store_that_was_killed_keeps_what_is_durable_when_the_power_fails() {
    survives(Options::store(Durability::Flush));
    survives(Options::store(Durability::Interval(20)));
}

#[test]
fn control_without_the_file_replaced_values_come_back() {
    let violation = (0..20).find_map(|seed| run(Options::cache(), seed, true).err());
    assert!(violation.as_ref().is_some_and(|it| it.contains("after kill")), "{violation:?}");
}
