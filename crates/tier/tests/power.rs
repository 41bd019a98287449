//! Power losses, kills and faults of the device, against a model.

mod common;

use common::{NOW, Rig, key, value};
use minos_device::{
    Device, MemoryOptions,
    faulty::{Faults, Twin},
};
use minos_engine::{Backing, ItemMeta, StoreConfig, Tiered};
use minos_tier::{Durability, Memory, Options, ReadError};
use rand::{RngExt, SeedableRng, rngs::StdRng};
use std::{collections::HashMap, sync::Arc, time::Duration};

const KEYS: u32 = 600;
const FILL: u32 = 2500;

fn twin(faults: Faults, seed: u64) -> Twin {
    let options = MemoryOptions { capacity_bytes: 8 << 20, ..MemoryOptions::default() };
    let twin = Twin::over(Device::in_memory(&options), Faults::none(), seed);
    minos_tier::format(&twin.device(), &common::format()).unwrap();
    twin.set_faults(faults);
    twin
}

/// The versions that a key may have: the last is the newest, the first the one at the last sync.
type Versions = Vec<Option<u32>>;

struct World {
    rig: Rig,
    twin: Twin,
    options: Options,
    random: StdRng,
    model: HashMap<u32, Versions>,
    version: u32,
    /// A sync is only pretended: for the control.
    pretends: bool,
}

impl World {
    fn new(options: Options, seed: u64) -> Self {
        let twin = twin(Faults::none(), seed);
        let rig = Rig::open(&twin.device(), options).unwrap();
        let random = StdRng::seed_from_u64(seed);
        Self { rig, twin, options, random, model: HashMap::new(), version: 0, pretends: false }
    }

    fn step(&mut self) -> Result<(), String> {
        let number = self.random.random_range(0..KEYS);
        match self.random.random_range(0..1000) {
            0..450 => self.put(number),
            450..600 => self.delete(number),
            600..900 => self.check(number)?,
            900..990 => drop((0..8).map(|_| self.rig.turn()).count()),
            990..997 => self.sync(),
            _ => self.lose_power()?,
        }
        self.rig.turn();
        Ok(())
    }

    fn versions(&mut self, number: u32) -> &mut Versions {
        self.model.entry(number).or_insert_with(|| vec![None])
    }

    fn put(&mut self, number: u32) {
        self.version += 1;
        let version = self.version;
        if self.rig.put(&key(number), &value(number, version)) {
            self.versions(number).push(Some(version));
        }
    }

    fn delete(&mut self, number: u32) {
        for _ in 0..200 {
            match self.rig.store.delete(&key(number), NOW) {
                Ok(_) => {
                    self.versions(number).push(None);
                    return;
                }
                Err(_) => drop(self.rig.turn()),
            }
        }
    }

    /// The key has its newest version.
    fn check(&mut self, number: u32) -> Result<(), String> {
        let got = self.rig.get(&key(number)).map_err(|error| format!("key {number}: {error}"))?;
        let newest = *self.versions(number).last().expect("a version");
        if got == newest.map(|version| value(number, version)) {
            return Ok(());
        }
        Err(format!("key {number} is not {newest:?}, but there: {}", got.is_some()))
    }

    fn sync(&mut self) {
        if !self.pretends {
            self.rig.sync();
        }
        for versions in self.model.values_mut() {
            versions.drain(..versions.len() - 1);
        }
    }

    fn lose_power(&mut self) -> Result<(), String> {
        self.twin.cut_power();
        self.rig = Rig::open(&self.twin.device(), self.options).map_err(|error| error.to_string())?;
        let mut numbers: Vec<u32> = self.model.keys().copied().collect();
        numbers.sort_unstable();
        for number in numbers {
            let got = self.rig.get(&key(number)).map_err(|error| format!("key {number}: {error}"))?;
            let versions = self.model.remove(&number).expect("a key of the model");
            let is_it = |version: &&Option<u32>| version.map(|it| value(number, it)) == got;
            let Some(kept) = versions.iter().rev().find(is_it) else {
                return Err(format!(
                    "after a power loss key {number} is none of {versions:?}, but {:?}",
                    got.map(|it| it.len())
                ));
            };
            self.model.insert(number, vec![*kept]);
            self.rig.turn();
        }
        self.rig.tier.engine().check()
    }
}

fn seeds() -> std::ops::Range<u64> {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let first = number("MINOS_TIER_SEED").unwrap_or(0);
    first..first + number("MINOS_TIER_SEEDS").unwrap_or(6)
}

fn run(options: Options, seed: u64, pretends: bool) -> Result<(), String> {
    let mut world = World::new(options, seed);
    world.pretends = pretends;
    for _ in 0..4000 {
        world.step()?;
    }
    world.sync();
    world.lose_power()?;
    let numbers: Vec<u32> = world.model.keys().copied().collect();
    numbers.into_iter().try_for_each(|number| world.check(number))
}

#[test]
fn a_store_keeps_what_it_acknowledged_when_the_power_fails() {
    for seed in seeds() {
        for durability in [Durability::Flush, Durability::Interval(20)] {
            let result = run(Options::store(durability), seed, false);
            assert!(result.is_ok(), "MINOS_TIER_SEED={seed} {durability:?}: {result:?}");
        }
    }
}

#[test]
fn control_without_the_sync_acknowledged_writes_are_lost() {
    let violation = (0..20).find_map(|seed| run(Options::store(Durability::Flush), seed, true).err());
    assert!(violation.is_some(), "nothing was synced, and nothing was lost");
}

#[test]
fn control_without_held_tombstones_a_power_loss_takes_old_and_new_value() {
    let violation = (0..20).find_map(|seed| run(Options::store(Durability::None), seed, false).err());
    assert!(violation.is_some(), "tombstones were written at once, and nothing was lost");
}

#[test]
fn what_was_replaced_and_then_deleted_stays_dead() {
    // Their first copies lie among items that stay, so that their segment outlives all that killed them.
    const STAY: u32 = 60;
    const DELETED: u32 = 80;
    const CHURN: u32 = 200;
    let twin = twin(Faults::none(), 1);
    let options = Options::store(Durability::Flush);
    let mut rig = Rig::open(&twin.device(), options).unwrap();
    let put_all = |rig: &mut Rig, numbers: std::ops::Range<u32>, version| {
        for number in numbers {
            assert!(rig.put(&key(number), &value(number, version)), "{number}");
        }
        rig.sync();
    };
    put_all(&mut rig, 0..DELETED, 0);
    put_all(&mut rig, STAY..CHURN, 1);
    for number in STAY..DELETED {
        assert!(rig.store.delete(&key(number), NOW).unwrap());
    }
    for version in 2..200 {
        put_all(&mut rig, DELETED..CHURN, version);
    }
    let stats = rig.tier.stats();
    assert!(stats.log.compacted_segments > 20, "{stats:?}");
    twin.cut_power();
    let mut rig = Rig::open(&twin.device(), options).unwrap();
    for number in 0..DELETED {
        let expected = (number < STAY).then(|| value(number, 0));
        assert_eq!(rig.get(&key(number)), Ok(expected), "{number}");
    }
}

/// A power loss may come when the new copies of items are durable, and the tombstones of their old ones are not.
#[test]
fn what_was_replaced_before_a_power_loss_and_then_deleted_stays_dead() {
    // As above.
    const STAY: u32 = 60;
    const DELETED: u32 = 80;
    const CHURN: u32 = 200;
    let options = Options::store(Durability::Flush);
    let mut replaced = 0;
    for turns in 0..24 {
        let twin = twin(Faults::none(), 1);
        let mut rig = Rig::open(&twin.device(), options).unwrap();
        let put_all = |rig: &mut Rig, numbers: std::ops::Range<u32>, version| {
            numbers.for_each(|number| assert!(rig.put(&key(number), &value(number, version)), "{number}"));
        };
        put_all(&mut rig, 0..DELETED, 0);
        rig.sync();
        // More than memory has room for: they become cold.
        put_all(&mut rig, 1000..3000, 0);
        rig.sync();
        put_all(&mut rig, STAY..CHURN, 1);
        rig.tier.sync();
        for _ in 0..turns {
            rig.turn();
        }
        twin.cut_power();
        let mut rig = Rig::open(&twin.device(), options).unwrap();
        for number in STAY..DELETED {
            replaced += u32::from(rig.get(&key(number)) == Ok(Some(value(number, 1))));
            assert!(rig.store.delete(&key(number), NOW).unwrap());
        }
        (1000..3000).for_each(|number| assert!(rig.store.delete(&key(number), NOW).unwrap()));
        rig.sync();
        for version in 2..100 {
            put_all(&mut rig, DELETED..CHURN, version);
            rig.sync();
        }
        assert!(rig.tier.stats().log.compacted_segments > 20, "{:?}", rig.tier.stats());
        twin.cut_power();
        let mut rig = Rig::open(&twin.device(), options).unwrap();
        for number in 0..DELETED {
            let expected = (number < STAY).then(|| value(number, 0));
            assert_eq!(rig.get(&key(number)), Ok(expected), "{number} after {turns} turns");
        }
    }
    assert!(replaced > 0, "the control: some power losses came late enough");
}

#[test]
fn a_store_by_the_clock_loses_no_more_than_its_interval() {
    let twin = twin(Faults::none(), 1);
    let options = Options::store(Durability::Interval(50));
    let mut rig = Rig::open(&twin.device(), options).unwrap();
    for number in 0..FILL {
        assert!(rig.put(&key(number), &value(number, 0)));
    }
    // A turn is a millisecond here. An interval begins and ends, with the time that its writes take.
    for _ in 0..400 {
        rig.turn();
    }
    twin.cut_power();
    let mut rig = Rig::open(&twin.device(), options).unwrap();
    for number in 0..FILL {
        assert_eq!(rig.get(&key(number)), Ok(Some(value(number, 0))), "{number}");
        rig.turn();
    }
}

/// The engine of a rig in a file, which outlives a kill.
fn kept_engine(
    path: &std::path::Path,
    is_new: bool,
) -> impl Fn(&StoreConfig) -> Result<(Arc<Tiered>, Memory), minos_engine::OpenError> {
    let path = path.to_owned();
    move |config| {
        let config = StoreConfig { backing: Backing::File(path.clone()), ..config.clone() };
        let memory = if is_new { Memory::Empty } else { Memory::Kept };
        Tiered::open(&config).map(|(engine, _)| (Arc::new(engine), memory))
    }
}

#[test]
fn a_kill_loses_nothing_where_memory_is_a_file() {
    for durability in [Durability::None, Durability::Flush] {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("region");
        let options = Options::store(durability);
        let twin = twin(Faults { slow: 0.5, slow_polls_max: 6, ..Faults::none() }, 3);
        let mut rig = Rig::open_with(&twin.device(), options, kept_engine(&path, true)).unwrap();
        let mut model = HashMap::new();
        let mut random = StdRng::seed_from_u64(5);
        for round in 0..6 {
            for version in 0..1500 {
                let number = random.random_range(0..FILL);
                if random.random_bool(0.8) {
                    assert!(
                        rig.put(&key(number), &value(number, version + 10_000 * round)),
                        "{round} {version} {:?} {:?}",
                        rig.keeper,
                        rig.tier.engine().stats()
                    );
                    model.insert(number, version + 10_000 * round);
                } else if rig.store.delete(&key(number), NOW).is_ok() {
                    model.remove(&number);
                }
            }
            // Requests in flight are completed or not; nobody is told. The device keeps what was completed.
            drop(rig);
            rig = Rig::open_with(&twin.device(), options, kept_engine(&path, false)).unwrap();
            assert!(rig.recovered.records > 0, "{:?}", rig.recovered);
            for number in 0..FILL {
                let expected = model.get(&number).map(|version| value(number, *version));
                assert_eq!(rig.get(&key(number)), Ok(expected), "{number}");
                rig.turn();
            }
        }
    }
}

#[test]
fn a_full_device_refuses_and_keeps_what_it_has() {
    for durability in [Durability::None, Durability::Flush, Durability::Interval(10)] {
        let mut rig = Rig::new(Options::store(durability));
        let mut stored = 0;
        // Twice what the device holds.
        while stored < 25_000 && rig.put(&key(stored), &value(stored, 0)) {
            stored += 1;
        }
        assert!((4000..20_000).contains(&stored), "{stored}: {:?}", rig.keeper);
        rig.store = rig.store.promoting(false);
        for number in 0..stored {
            assert_eq!(rig.get(&key(number)), Ok(Some(value(number, 0))), "{number}");
        }
        // Deleting makes room again.
        for number in 0..stored / 2 {
            for attempt in 0.. {
                if rig.store.delete(&key(number), NOW).is_ok() {
                    break;
                }
                assert!(attempt < 1000, "{number}: {:?}", rig.keeper);
                rig.turn();
            }
            rig.turn();
        }
        for number in 0..stored / 4 {
            assert!(rig.put(&key(number), &value(number, 1)), "{number}: {:?}", rig.keeper);
        }
        if durability != Durability::None {
            rig.sync();
        }
    }
}

#[test]
fn a_record_that_rots_is_an_error_of_a_store_and_a_miss_of_a_cache() {
    for is_lossless in [true, false] {
        let options = if is_lossless { Options::store(Durability::None) } else { Options::cache() };
        let twin = twin(Faults::none(), 4);
        let mut rig = Rig::open(&twin.device(), options).unwrap();
        for number in 0..FILL {
            assert!(rig.put(&key(number), &value(number, 0)));
        }
        rig.drive();
        rig.store = rig.store.promoting(false);
        let cold: Vec<u32> = (0..FILL).filter(|&number| rig.is_cold(&key(number))).collect();
        twin.set_faults(Faults { rot: 1.0, ..Faults::none() });
        let mut failed = 0;
        for &number in &cold {
            match rig.get(&key(number)) {
                Ok(Some(got)) => assert_eq!(got, value(number, 0)),
                Ok(None) => failed += u32::from(!is_lossless),
                Err(error) => {
                    assert!(is_lossless && error == ReadError::Rot);
                    failed += 1;
                }
            }
        }
        let reads = rig.tier.stats().reads;
        assert!(failed > 50 && reads.read_rotten == u64::from(failed), "{failed} {reads:?}");
        // A header that rots in a part of a record's pages.
        assert!(reads.read_again > 0, "{reads:?}");
    }
}

#[test]
fn a_device_that_fails_or_goes_is_told_apart() {
    let twin = twin(Faults::none(), 4);
    let mut rig = Rig::open(&twin.device(), Options::store(Durability::Flush)).unwrap();
    for number in 0..FILL {
        assert!(rig.put(&key(number), &value(number, 0)));
    }
    rig.drive();
    rig.store = rig.store.promoting(false);
    let cold = (0..FILL).find(|&number| rig.is_cold(&key(number))).unwrap();
    let hot = (0..FILL).find(|&number| !rig.is_cold(&key(number))).unwrap();
    twin.set_faults(Faults { eio: 1.0, ..Faults::none() });
    assert_eq!(rig.get(&key(cold)), Err(ReadError::Device));
    twin.set_faults(Faults::none());
    assert_eq!(rig.get(&key(cold)), Ok(Some(value(cold, 0))));
    twin.cut_power();
    assert_eq!(rig.get(&key(cold)), Err(ReadError::Gone));
    assert_eq!(rig.get(&key(hot)), Ok(Some(value(hot, 0))), "memory serves on");
    // What cannot become durable is not acknowledged.
    rig.put(b"new", b"value");
    assert!(!rig.try_sync());
    let stats = rig.tier.stats();
    assert!(
        stats.state.is_read_only && stats.reads.read_gone > 0 && stats.reads.read_failed > 0,
        "{stats:?}"
    );
}

/// Before the fix, the keeper looked every 5 ms, or without a pause where a group was due.
#[test]
fn a_keeper_rests_above_a_device_that_takes_nothing() {
    let durabilities = [Durability::None, Durability::Interval(1000), Durability::Flush];
    for options in durabilities.map(Options::store).into_iter().chain([Options::cache()]) {
        let twin = twin(Faults::none(), 4);
        let mut rig = Rig::open(&twin.device(), options).unwrap();
        for number in 0..FILL {
            assert!(rig.put(&key(number), &value(number, 0)));
        }
        rig.sync();
        twin.cut_power();
        // Items are to leave memory for these.
        for number in FILL..FILL + 20 {
            rig.put(&key(number), &value(number, 0));
        }
        assert!(!rig.try_sync());
        assert_rests(&mut rig);
    }
    let mut rig = Rig::new(Options::store(Durability::None));
    let engine = Arc::clone(rig.tier.engine());
    // As a server, which stores until memory is full.
    let is_refused = |number: u32| {
        let mut put = || {
            rig.turn();
            let key = key(number);
            engine
                .entry(engine.hash(&key), &key, NOW)
                .insert(&[&value(number, 0)], ItemMeta::default())
                .is_ok()
        };
        (0..200).all(|_| !put())
    };
    assert!((0..25_000).any(is_refused));
    assert_rests(&mut rig);
}

fn assert_rests(rig: &mut Rig) {
    (0..1000).for_each(|_| _ = rig.turn());
    rig.now.us += 10_000_000;
    let turn = rig.keeper.turn(rig.now).unwrap();
    assert!(!turn.did && turn.rest >= Duration::from_secs(1), "{turn:?}: {:?}", rig.keeper);
}

#[test]
fn failed_writes_lose_nothing() {
    let mut again = 0;
    for seed in seeds() {
        let twin = twin(Faults::none(), seed);
        let options = Options::store(Durability::Flush);
        // A table that cannot be made is another matter.
        let mut rig = Rig::open(&twin.device(), options).unwrap();
        twin.set_faults(Faults { eio: 0.02, short: 0.01, ..Faults::none() });
        let mut model = HashMap::new();
        let mut random = StdRng::seed_from_u64(seed);
        for version in 0..3000 {
            let number = random.random_range(0..FILL);
            if rig.put(&key(number), &value(number, version)) {
                model.insert(number, version);
            }
        }
        twin.set_faults(Faults::none());
        let stats = rig.tier.stats();
        again += stats.keeper.appends_again;
        if !stats.state.is_read_only {
            rig.sync();
            twin.cut_power();
            rig = Rig::open(&twin.device(), options).unwrap();
        }
        for (&number, &version) in &model {
            assert_eq!(rig.get(&key(number)), Ok(Some(value(number, version))), "{seed} {number}");
            rig.turn();
        }
    }
    assert!(again > 0 || seeds().count() == 1);
}

#[test]
fn what_failed_is_acknowledged_only_when_it_is_durable() {
    // So few that a cache has room for all of them.
    const FEW: u32 = 100;
    // Before, tombstones were carried again after each failure, until they filled the device.
    const STUCK: [u64; 2] = [5212, 5301];
    let (mut acknowledged, mut failed) = (0, 0);
    let cache = Options { durability: Durability::Flush, ..Options::cache() };
    for (seed, options) in
        seeds().chain(STUCK).flat_map(|seed| [(seed, cache), (seed, Options::store(Durability::Flush))])
    {
        let twin = twin(Faults::none(), seed);
        let mut rig = Rig::open(&twin.device(), options).unwrap();
        for round in 0..10 {
            twin.set_faults(Faults { eio: 0.2, ..Faults::none() });
            (0..FEW).for_each(|number| assert!(rig.put(&key(number), &value(number, round)), "{number}"));
            let is_acknowledged = rig.try_sync();
            failed += rig.tier.stats().log.failed_writes;
            twin.set_faults(Faults::none());
            twin.cut_power();
            rig = Rig::open(&twin.device(), options).unwrap();
            let mut numbers = 0..if is_acknowledged { FEW } else { 0 };
            let is_lost = |number: &u32| rig.get(&key(*number)) != Ok(Some(value(*number, round)));
            assert_eq!(numbers.find(is_lost), None, "MINOS_TIER_SEED={seed} {round} {}", options.is_lossless);
            acknowledged += u32::from(is_acknowledged);
        }
    }
    assert!(failed > 0 && acknowledged > 0, "{failed} {acknowledged}");
}

#[test]
fn a_cache_never_returns_what_was_replaced() {
    for seed in seeds() {
        let twin = twin(Faults::none(), seed);
        let options = Options::cache();
        let mut rig = Rig::open(&twin.device(), options).unwrap();
        let mut model = HashMap::new();
        let mut random = StdRng::seed_from_u64(seed);
        for version in 0..8000 {
            let number = random.random_range(0..FILL);
            if random.random_bool(0.8) {
                assert!(
                    rig.put(&key(number), &value(number, version)),
                    "{version} {:?} {:?}",
                    rig.keeper,
                    rig.tier.engine().stats()
                );
                model.insert(number, version);
            } else if rig.store.delete(&key(number), NOW).is_ok() {
                model.remove(&number);
            }
            let number = random.random_range(0..FILL);
            let got = rig.get(&key(number)).unwrap();
            let expected = model.get(&number).map(|version| value(number, *version));
            assert!(got.is_none() || got == expected, "{seed} {number}");
            if version % 2000 == 1999 {
                // After a power loss, neither deleted nor replaced values come back that were so at a sync.
                rig.sync();
                twin.cut_power();
                rig = Rig::open(&twin.device(), options).unwrap();
            }
        }
    }
}

#[test]
fn what_is_deleted_stays_so_while_its_older_records_cannot_be_read() {
    const DELETED: u32 = 1200;
    let twin = twin(Faults::none(), 1);
    let mut rig = Rig::open(&twin.device(), Options::store(Durability::Flush)).unwrap();
    for number in 0..FILL {
        assert!(rig.put(&key(number), &value(number, 0)));
    }
    rig.drive();
    // Their records cannot be read while something newer in memory hides them.
    twin.set_faults(Faults { eio: 0.3, ..Faults::none() });
    for number in 0..DELETED {
        assert!(rig.put(&key(number), &value(number, 1)));
        while rig.store.delete(&key(number), NOW).is_err() {
            rig.turn();
        }
    }
    for _ in 0..2000 {
        rig.turn();
    }
    twin.set_faults(Faults::none());
    let back = (0..DELETED).filter(|&number| rig.get(&key(number)) != Ok(None)).count();
    assert_eq!(back, 0);
}

#[test]
fn what_was_flushed_is_not_written_again() {
    const FEW: u32 = 50;
    let options = Options::store(Durability::Flush);
    let (mut failed, mut given_up) = (0, 0);
    for seed in 0..20 {
        let twin = twin(Faults::none(), seed);
        let mut rig = Rig::open(&twin.device(), options).unwrap();
        (0..FEW).for_each(|number| assert!(rig.put(&key(number), &value(number, 0))));
        rig.tier.sync();
        // Writes are under way when everything is removed, and fail then.
        twin.set_faults(Faults { eio: 0.5, ..Faults::none() });
        for _ in 0..seed % 5 {
            rig.turn();
        }
        let id = rig.tier.empty();
        let is_emptied = loop {
            rig.turn();
            match rig.tier.is_emptied(id) {
                Ok(false) => {}
                Ok(true) => break true,
                Err(_) => break false,
            }
        };
        failed += rig.tier.stats().log.failed_writes;
        twin.set_faults(Faults::none());
        if !is_emptied {
            given_up += 1;
            continue;
        }
        for _ in 0..200 {
            rig.turn();
        }
        twin.cut_power();
        rig = Rig::open(&twin.device(), options).unwrap();
        let back = (0..FEW).filter(|&number| rig.get(&key(number)) != Ok(None)).count();
        assert_eq!(back, 0, "seed {seed}");
    }
    assert!(failed > 0 && given_up < 20, "{failed} {given_up}");
}
