//! A copy of the table at one moment, made while clients and keeper go on.

mod common;

use common::{NOW, Rig, key, value};
use minos_device::{
    Device, FileOptions, MemoryOptions,
    faulty::{Faults, Twin},
};
use minos_engine::{Backing, StoreConfig, Tiered};
use minos_tier::{
    Durability, Memory, OpenError, Options, Snapshot, SnapshotError, SnapshotPhase, SnapshotWish,
};
use rand::{RngExt, SeedableRng, rngs::StdRng};
use std::{
    collections::HashMap,
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, Instant},
};
use tempfile::TempDir;

const KEYS: u32 = 2000;
/// Longest time for anything; a test that takes longer fails.
const WITHIN: Duration = Duration::from_secs(60);
/// Slow enough for many changes meanwhile.
const BYTES_S: u64 = 12 << 20;

/// The versions that a key may have in the copy.
type Model = HashMap<u32, Vec<Option<u32>>>;

struct World {
    rig: Rig,
    folder: TempDir,
    random: StdRng,
    model: Model,
    version: u32,
}

impl World {
    fn new(options: Options, seed: u64) -> Self {
        let (rig, folder) = (Rig::new(options), tempfile::tempdir().unwrap());
        let random = StdRng::seed_from_u64(seed);
        let mut world = Self { rig, folder, random, model: Model::new(), version: 0 };
        (0..3 * KEYS).for_each(|_| world.change());
        world
    }

    /// A put, or now and then a delete.
    fn change(&mut self) {
        let number = self.random.random_range(0..KEYS);
        self.version += 1;
        let versions = self.model.entry(number).or_insert_with(|| vec![None]);
        if self.random.random_bool(0.8) {
            if self.rig.put(&key(number), &value(number, self.version)) {
                versions.push(Some(self.version));
            }
        } else if self.rig.store.delete(&key(number), NOW).is_ok() {
            versions.push(None);
        }
        // Clients of a store wait for groups, which make room.
        if self.version.is_multiple_of(64) && self.rig.tier.acknowledges_durable() {
            self.rig.tier.sync();
        }
        self.rig.turn();
    }

    fn wish(&self, bytes_s: u64) -> SnapshotWish {
        SnapshotWish { folder: self.folder.path().to_owned(), name: "copy".to_owned(), bytes_s }
    }

    fn begin(&mut self, bytes_s: u64) -> Snapshot {
        let begun = self.rig.tier.snapshot(&self.wish(bytes_s)).unwrap();
        // From now on only what comes later may differ.
        self.model.values_mut().for_each(|versions| drop(versions.drain(..versions.len() - 1)));
        begun
    }

    fn last(&self) -> Snapshot {
        self.rig.tier.last_snapshot().unwrap()
    }

    /// Changes keys until the image is taken, and then others while it is copied. Returns the most segments that
    /// were held back.
    fn change_until_copied(&mut self) -> u64 {
        let deadline = Instant::now() + WITHIN;
        let (mut frozen, mut held_max) = (None, 0);
        loop {
            let last = self.last();
            match last.phase {
                SnapshotPhase::Syncing | SnapshotPhase::Copying => {
                    if last.phase == SnapshotPhase::Copying {
                        frozen.get_or_insert_with(|| self.model.clone());
                    }
                    let state = self.rig.tier.stats().state;
                    held_max = held_max.max(state.held_segments);
                    // The copy need not be given up here: the time of turns runs faster than its own.
                    if state.available_segments > 5 {
                        self.change();
                    } else {
                        self.rig.turn();
                        std::thread::sleep(Duration::from_millis(if state.available_segments > 2 {
                            1
                        } else {
                            10
                        }));
                    }
                }
                SnapshotPhase::Done => break,
                SnapshotPhase::Failed(reason) => panic!("{reason}: {:?}", self.rig.keeper),
            }
            assert!(Instant::now() < deadline, "{last:?} {:?}", self.rig.keeper);
        }
        self.model = frozen.unwrap_or_else(|| self.model.clone());
        held_max
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("copy")
    }
}

/// Turns until it is so; a device may be slow.
fn turn_until(rig: &mut Rig, mut is_so: impl FnMut(&Rig) -> bool) {
    let deadline = Instant::now() + WITHIN;
    while !is_so(rig) {
        assert!(Instant::now() < deadline, "{:?} {:?}", rig.tier.last_snapshot(), rig.keeper);
        if !rig.turn() {
            std::thread::sleep(Duration::from_micros(100));
        }
    }
}

fn open_copy(path: &Path, options: Options) -> Result<Rig, OpenError> {
    Rig::open(&Device::open(path, &FileOptions::default()).unwrap(), options)
}

/// Each key is as it may be.
fn check(rig: &mut Rig, model: &Model) -> Result<(), String> {
    for number in 0..KEYS {
        let got = rig.get(&key(number)).map_err(|error| format!("key {number}: {error}"))?;
        let never = vec![None];
        let versions = model.get(&number).unwrap_or(&never);
        if !versions.iter().any(|version| version.map(|it| value(number, it)) == got) {
            return Err(format!("key {number} is none of {versions:?}, but there: {}", got.is_some()));
        }
        rig.turn();
    }
    rig.tier.engine().check()
}

#[test]
fn a_copy_of_a_store_is_served_with_what_was_acknowledged_before_it_began() {
    for (seed, durability) in
        [Durability::None, Durability::Flush, Durability::Interval(20)].into_iter().enumerate()
    {
        // On a busy machine the copy may be complete before this thread has used anything of the image again.
        let mut held = (0..6).map(|slower| serve_a_copy(seed as u64, durability, BYTES_S >> slower));
        assert!(held.any(|held| held > 0), "{durability:?}: nothing of the image would have been used again");
    }
}

/// Changes a store while it is copied, and serves the copy. Returns the most segments that were held back for it.
fn serve_a_copy(seed: u64, durability: Durability, bytes_s: u64) -> u64 {
    let options = Options::store(durability);
    let mut world = World::new(options, seed);
    world.begin(bytes_s);
    let held = world.change_until_copied();
    let last = world.last();
    assert!(last.copied_bytes == last.bytes && last.bytes > 1 << 20, "{last:?}");
    let stats = world.rig.tier.stats();
    assert_eq!((stats.snapshots.done, stats.snapshots.failed), (1, 0));
    let mut copy = open_copy(&world.path(), options).unwrap();
    let checked = check(&mut copy, &world.model);
    assert_eq!(checked, Ok(()), "{durability:?}");
    // It is a table like any other.
    assert!(copy.put(b"new", b"value"));
    let id = copy.tier.sync();
    turn_until(&mut copy, |copy| copy.tier.is_synced(id).unwrap());
    drop(copy);
    let mut copy = open_copy(&world.path(), options).unwrap();
    assert_eq!(copy.get(b"new").unwrap().as_deref(), Some(&b"value"[..]));
    // The table goes on as if nothing had been.
    (0..100).for_each(|_| _ = world.rig.turn());
    assert_eq!(world.rig.tier.stats().state.held_segments, 0);
    held
}

#[test]
fn control_a_copy_is_not_the_state_at_its_end() {
    let options = Options::store(Durability::Flush);
    let mut world = World::new(options, 7);
    world.begin(BYTES_S);
    world.change_until_copied();
    // Each key has one more version than the copy knows.
    let newest =
        |(number, versions): (&u32, &Vec<Option<u32>>)| (*number, vec![versions[0].map(|it| it + 1_000_000)]);
    let wrong: Model = world.model.iter().map(newest).collect();
    let mut copy = open_copy(&world.path(), options).unwrap();
    assert!(check(&mut copy, &wrong).is_err());
}

#[test]
fn a_copy_of_a_cache_returns_nothing_that_was_replaced_before_it_began() {
    let mut world = World::new(Options::cache(), 3);
    world.begin(BYTES_S);
    world.change_until_copied();
    let mut copy = open_copy(&world.path(), Options::cache()).unwrap();
    let mut found = 0;
    for number in 0..KEYS {
        let got = copy.get(&key(number)).unwrap();
        let never = vec![None];
        let versions = world.model.get(&number).unwrap_or(&never);
        let is_right = versions.iter().any(|version| version.map(|it| value(number, it)) == got);
        assert!(got.is_none() || is_right, "{number}: {versions:?}");
        found += u32::from(got.is_some());
        copy.turn();
    }
    assert!(found > KEYS / 4, "{found}");
}

#[test]
fn a_copy_that_the_log_has_no_room_for_is_given_up() {
    for durability in [Durability::None, Durability::Flush] {
        let mut world = World::new(Options::store(durability), 5);
        world.begin(1);
        let deadline = Instant::now() + WITHIN;
        let reason = loop {
            world.change();
            if let SnapshotPhase::Failed(reason) = world.last().phase {
                break reason;
            }
            assert!(Instant::now() < deadline, "{:?}", world.rig.keeper);
        };
        assert!(reason.contains("ran out of segments"), "{reason}");
        assert_eq!(std::fs::read_dir(&world.folder).unwrap().count(), 0, "nothing is left behind");
        (0..KEYS).for_each(|_| world.change());
        world.rig.drive();
        let stats = world.rig.tier.stats();
        assert_eq!((stats.snapshots.given_up, stats.snapshots.failed, stats.state.held_segments), (1, 1, 0));
        for (number, versions) in world.model.clone() {
            let newest = versions.last().copied().flatten().map(|version| value(number, version));
            assert_eq!(world.rig.get(&key(number)), Ok(newest), "{number}");
            world.rig.turn();
        }
    }
}

/// The reason why a snapshot of this rig fails.
fn failure(rig: &mut Rig, wish: &SnapshotWish) -> String {
    rig.tier.snapshot(wish).unwrap();
    let mut reason = None;
    turn_until(rig, |rig| match rig.tier.last_snapshot().unwrap().phase {
        SnapshotPhase::Failed(why) => {
            reason = Some(why);
            true
        }
        SnapshotPhase::Done => panic!("it did not fail"),
        SnapshotPhase::Syncing | SnapshotPhase::Copying => false,
    });
    reason.expect("a reason")
}

#[test]
fn rot_and_errors_of_the_device_end_a_copy() {
    let memory = MemoryOptions { capacity_bytes: 8 << 20, ..MemoryOptions::default() };
    let twin = Twin::over(Device::in_memory(&memory), Faults::none(), 1);
    minos_tier::format(&twin.device(), &common::format()).unwrap();
    let mut rig = Rig::open(&twin.device(), Options::store(Durability::Flush)).unwrap();
    for number in 0..KEYS {
        assert!(rig.put(&key(number), &value(number, 0)));
    }
    rig.sync();
    rig.drive();
    let folder = tempfile::tempdir().unwrap();
    let wish = SnapshotWish { folder: folder.path().to_owned(), name: "copy".to_owned(), bytes_s: 0 };
    twin.set_faults(Faults { rot: 1.0, ..Faults::none() });
    let reason = failure(&mut rig, &wish);
    assert!(reason.contains("does not verify"), "{reason}");
    twin.set_faults(Faults { eio: 1.0, ..Faults::none() });
    let reason = failure(&mut rig, &wish);
    assert!(reason.contains("the device cannot be read"), "{reason}");
    assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 0, "nothing is left behind");
    twin.set_faults(Faults::none());
    assert!(rig.put(b"new", b"value"), "the store goes on");
    rig.sync();
}

#[test]
fn one_at_a_time_and_never_over_a_file() {
    let mut world = World::new(Options::store(Durability::Flush), 1);
    let taken = world.folder.path().join("taken");
    std::fs::write(&taken, "letters").unwrap();
    let wish = SnapshotWish { name: "taken".to_owned(), ..world.wish(0) };
    assert!(matches!(world.rig.tier.snapshot(&wish), Err(SnapshotError::Exists(_))));
    world.begin(1);
    let wish = SnapshotWish { name: "other".to_owned(), ..world.wish(0) };
    assert!(matches!(world.rig.tier.snapshot(&wish), Err(SnapshotError::Busy)));
    // The server stops while it is copied.
    (0..200).for_each(|_| _ = world.rig.turn());
    let Rig { tier, keeper, .. } = world.rig;
    drop(keeper);
    assert!(tier.wait_snapshot(WITHIN));
    let last = tier.last_snapshot().unwrap();
    assert_eq!(last.phase, SnapshotPhase::Failed(SnapshotError::Ended.to_string()));
    assert!(matches!(tier.snapshot(&wish), Err(SnapshotError::Ended)));
    assert_eq!(std::fs::read_dir(&world.folder).unwrap().count(), 1, "nothing is left behind");
    assert_eq!(std::fs::read(&taken).unwrap(), b"letters");
}

/// The engine of a rig in a file.
fn above(
    path: PathBuf,
    memory: Memory,
) -> impl FnOnce(&StoreConfig) -> Result<(Arc<Tiered>, Memory), minos_engine::OpenError> {
    move |config| {
        let config = StoreConfig { backing: Backing::File(path), ..config.clone() };
        Tiered::open(&config).map(|(engine, _)| (Arc::new(engine), memory))
    }
}

#[test]
fn a_region_fits_the_table_or_its_copy_but_not_both() {
    let options = Options::store(Durability::None);
    let folder = tempfile::tempdir().unwrap();
    let (path, region) = (folder.path().join("flash"), folder.path().join("region"));
    let file = FileOptions { size_bytes: Some(8 << 20), create: true, ..FileOptions::default() };
    let device = Device::open(&path, &file).unwrap();
    minos_tier::format(&device, &common::format()).unwrap();
    let mut rig = Rig::open_with(&device, options, above(region.clone(), Memory::Empty)).unwrap();
    assert!(rig.put(b"key", b"value"));
    let wish = SnapshotWish { folder: folder.path().to_owned(), name: "copy".to_owned(), bytes_s: 0 };
    rig.tier.snapshot(&wish).unwrap();
    turn_until(&mut rig, |rig| rig.tier.last_snapshot().unwrap().phase == SnapshotPhase::Done);
    drop(rig);
    let copy = Device::open(&folder.path().join("copy"), &FileOptions::default()).unwrap();
    let opened = Rig::open_with(&copy, options, above(region.clone(), Memory::Kept));
    assert!(matches!(opened, Err(OpenError::OldRegion)), "{:?}", opened.err());
    // The region of a server of the copy.
    let new = folder.path().join("new");
    let mut rig = Rig::open_with(&copy, options, above(new.clone(), Memory::Empty)).unwrap();
    assert_eq!(rig.get(b"key").unwrap().as_deref(), Some(&b"value"[..]));
    drop(rig);
    let opened = Rig::open_with(&device, options, above(new, Memory::Kept));
    assert!(matches!(opened, Err(OpenError::RegionOfCopy)), "{:?}", opened.err());
    assert!(Rig::open_with(&device, options, above(region, Memory::Kept)).is_ok());
}
