//! A read-only mapping of the region: it is read while others write through their own mapping.

use crate::values::{Watch, copy, fill, random};
use minos_engine::{
    Answer, Backing, CacheMode, Crcw, Engine, ItemMeta, Mode, ReadOnly, StoreConfig, StoreMode,
};
use rand::RngExt;
use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    thread,
};

const HOT_KEYS: u64 = 8;
const KEYS: u64 = HOT_KEYS + 30_000;
const READS: u64 = 30_000;
const WRITERS: u64 = 2;
/// Items that are stored before the first read.
const STORED_MIN: u64 = 1000;
const NOW: u32 = 6;
const SEED: u64 = 2028;

/// Writes keys of its own: hot ones again and again, cold ones to grow the index and to have logs evict.
fn write<M: Mode>(engine: &Engine<M, Crcw>, number: u64, done: &AtomicBool) {
    let (mut random, mut value) = (random(SEED, number), Vec::new());
    for cas in 1.. {
        if done.load(Relaxed) {
            return;
        }
        let (key, len) = match random.random_range(0..8) {
            0..5 => (random.random_range(0..HOT_KEYS / WRITERS), random.random_range(0..3000)),
            // Now and then a large value, for which readers ask the owner.
            5 => (random.random_range(0..HOT_KEYS / WRITERS), random.random_range(0..100_000)),
            _ => (random.random_range(HOT_KEYS..KEYS) / WRITERS, random.random_range(0..100)),
        };
        let key = key * WRITERS + number;
        let bytes = key.to_le_bytes();
        fill(&mut value, key, cas, len);
        let mut entry = engine.entry(engine.hash(&bytes), &bytes, NOW);
        if random.random_range(0..16) == 0 {
            entry.remove();
        } else {
            let _ = entry.insert(&[&value], ItemMeta { cas: Some(cas), ..ItemMeta::default() });
        }
    }
}

/// Reads as another process would; returns how often the owner was to be asked.
fn read<M: Mode>(table: &ReadOnly<M>, watch: &mut Watch) -> u64 {
    let (mut random, mut value, mut asked) = (random(SEED, 10), Vec::new(), 0);
    for _ in 0..READS {
        let is_hot = random.random_range(0..4) > 0;
        let key = if is_hot { random.random_range(0..HOT_KEYS) } else { random.random_range(HOT_KEYS..KEYS) };
        let (bytes, sleeps) = (key.to_le_bytes(), random.random_range(0..8) == 0);
        let answer = table.read(table.hash(&bytes), &bytes, NOW, |item| copy(item, sleeps, &mut value));
        match answer {
            Answer::Found(state) => watch.read(key, &state, &value),
            Answer::AskOwner => asked += 1,
            Answer::Missing => {}
        }
    }
    asked
}

fn every_read_is_right<M: Mode>(evicts: bool)
where
    Engine<M, Crcw>: Sync,
{
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("table");
    let backing = Backing::File(path.clone());
    let config = StoreConfig { backing, partitions: Some(2), ..StoreConfig::new(8 << 20) };
    let (engine, _) = Engine::<M, Crcw>::open(&config).unwrap();
    let table = ReadOnly::<M>::open(&path).unwrap();
    let (mut watch, done) = (Watch::new(KEYS), AtomicBool::new(false));
    let asked = thread::scope(|scope| {
        for number in 0..WRITERS {
            let (engine, done) = (&engine, &done);
            scope.spawn(move || write(engine, number, done));
        }
        // Otherwise the reader may be done before any writer has run.
        while engine.stats().items_stored < STORED_MIN {
            thread::yield_now();
        }
        // In the control build, garbage may also end it.
        let asked = catch_unwind(AssertUnwindSafe(|| read(&table, &mut watch)));
        done.store(true, Relaxed);
        asked
    });
    println!("{} values read, {} torn, {} stale; {asked:?} asked", watch.found, watch.torn, watch.stale);
    assert_eq!((watch.torn, watch.stale), (0, 0), "torn and stale reads");
    let asked = asked.unwrap();
    assert!(watch.found > READS / 4 && asked > 0 && asked < READS / 2, "the test read too little: {asked}");
    let stats = engine.stats();
    assert_eq!(stats.read_retries, 0, "it has counted in the engine");
    assert!(stats.splits > 0 && (stats.evictions_log > 0) == evicts, "{stats:?}");
    engine.check().unwrap();
}

#[test]
fn read_only_readers_of_a_store_see_what_was_stored() {
    every_read_is_right::<StoreMode>(false);
}

#[test]
fn read_only_readers_of_a_cache_see_what_was_stored() {
    every_read_is_right::<CacheMode>(true);
}
