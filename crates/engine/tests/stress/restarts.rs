//! A reader of another process beside an owner that gives its keys away, is killed and repairs its table, again and
//! again: what is read belongs to the tenure in which it is read, and a key that its owner has is never missing.

use crate::values::{Watch, copy, fill, random};
use minos_engine::{
    Answer, Backing, CacheMode, Crcw, Engine, ItemMeta, Mode, OwnerState, Ownership, ReadOnly, StoreConfig,
    StoreMode,
};
use minos_testkit::Over;
use rand::RngExt;
use std::{
    hint,
    sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    thread,
};

const KEYS: u64 = 24;
const MICRO_SHARDS: u32 = 4;
const LIVES: u32 = 60;
/// On a busy machine the reader may seldom run while the keys are owned.
const LIVES_MAX: u32 = 10 * LIVES;
const FOUND_MIN: u64 = 500;
/// Tenures of a life.
const TENURES: u32 = 100;
/// How long a tenure lasts: long enough for a few reads.
const OWNED_SPINS: u32 = 5000;
const NOW: u32 = 6;
const SEED: u64 = 2029;

fn micro_shard(key: u64) -> u32 {
    key as u32 % MICRO_SHARDS
}

/// Every third value is large.
fn len(key: u64) -> usize {
    if key.is_multiple_of(3) { 6_000 + 500 * key as usize } else { 40 * key as usize }
}

/// One life of the owner, which ends by a kill. It takes all keys and gives all but the last away.
fn live<M: Mode>(config: &StoreConfig, life: u32) {
    let (engine, _) = Engine::<M, Crcw>::open(config).unwrap();
    for tenure in 0..TENURES {
        let epoch = life * TENURES + tenure;
        take(&engine, epoch);
        (0..OWNED_SPINS).for_each(|_| hint::spin_loop());
        if tenure + 1 < TENURES {
            give_away(&engine, epoch);
        }
    }
}

/// Writes each key, and owns them only then.
fn take<M: Mode>(engine: &Engine<M, Crcw>, epoch: u32) {
    let (mut value, cas) = (Vec::new(), u64::from(epoch));
    for key in 0..KEYS {
        let bytes = key.to_le_bytes();
        fill(&mut value, key, cas, len(key));
        let meta = ItemMeta { cas: Some(cas), ..ItemMeta::default() };
        engine.entry(engine.hash(&bytes), &bytes, NOW).insert(&[&value], meta).unwrap();
    }
    for micro_shard in 0..MICRO_SHARDS {
        engine.set_ownership(micro_shard, Ownership { epoch, state: OwnerState::Owned });
    }
}

/// Another node has the keys from now on: they are not kept.
fn give_away<M: Mode>(engine: &Engine<M, Crcw>, epoch: u32) {
    for key in 0..KEYS {
        let bytes = key.to_le_bytes();
        engine.set_ownership(micro_shard(key), Ownership { epoch, state: OwnerState::None });
        engine.entry(engine.hash(&bytes), &bytes, NOW).remove();
    }
}

/// Answers that were seen.
#[derive(Debug, Default)]
struct Seen {
    missing: u64,
    asked: u64,
    /// Items of another tenure than that of the read.
    out_of_time: u64,
}

fn read<M: Mode>(table: &ReadOnly<M>, (done, found): (&AtomicBool, &AtomicU64), watch: &mut Watch) -> Seen {
    let (mut random, mut value, mut seen) = (random(SEED, 1), Vec::new(), Seen::default());
    while !done.load(Relaxed) {
        let key = random.random_range(0..KEYS);
        let (bytes, shard, sleeps) = (key.to_le_bytes(), micro_shard(key), random.random_range(0..8) == 0);
        let before = table.ownership(shard);
        let answer =
            table.read_owned(shard, table.hash(&bytes), &bytes, NOW, |item| copy(item, sleeps, &mut value));
        let after = table.ownership(shard);
        match answer {
            Answer::Found(state) => {
                watch.read(key, &state, &value);
                found.fetch_add(1, Relaxed);
                let earliest = u64::from(before.epoch) + u64::from(!before.is_readable());
                seen.out_of_time += u64::from(!(earliest..=after.epoch.into()).contains(&state.cas()));
            }
            Answer::Missing => seen.missing += 1,
            Answer::AskOwner => seen.asked += 1,
        }
    }
    seen
}

fn reads_belong_to_their_tenure<M: Mode>() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("table");
    let backing = Backing::File(path.clone());
    let config = StoreConfig {
        backing,
        partitions: Some(2),
        micro_shards: MICRO_SHARDS,
        value_bytes_max: 1 << 16,
        ..StoreConfig::new(4 << 20)
    };
    live::<M>(&config, 1);
    let table = ReadOnly::<M>::open(&path).unwrap();
    let (mut watch, done, found) = (Watch::new(KEYS), AtomicBool::new(false), AtomicU64::new(0));
    let seen = thread::scope(|scope| {
        let reader = scope.spawn(|| read(&table, (&done, &found), &mut watch));
        let over = Over(&done);
        let is_enough = |life: &u32| *life > LIVES && found.load(Relaxed) > FOUND_MIN;
        (2..LIVES_MAX).take_while(|life| !is_enough(life)).for_each(|life| live::<M>(&config, life));
        drop(over);
        reader.join().unwrap()
    });
    println!("{} values read, {} torn, {} stale; {seen:?}", watch.found, watch.torn, watch.stale);
    assert_eq!((watch.torn, watch.stale, seen.out_of_time, seen.missing), (0, 0, 0, 0));
    assert!(watch.found > FOUND_MIN && seen.asked > FOUND_MIN, "the test read too little");
}

#[test]
fn reads_of_a_store_belong_to_their_tenure() {
    reads_belong_to_their_tenure::<StoreMode>();
}

#[test]
fn reads_of_a_cache_belong_to_their_tenure() {
    reads_belong_to_their_tenure::<CacheMode>();
}
