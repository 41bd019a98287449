//! A read-only mapping of the region: it is read while others write through their own mapping.

use crate::values::{Watch, copy, fill, random};
use minos_engine::{
    Answer, Backing, CacheMode, Crcw, Engine, ItemMeta, Mode, ReadOnly, StoreConfig, StoreMode,
};
use rand::RngExt;
use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    thread,
};

const HOT_KEYS: u64 = 8;
/// Keys whose values are large, and more than a cache has room for.
const LARGE_KEYS: u64 = HOT_KEYS + 40;
const KEYS: u64 = LARGE_KEYS + 30_000;
const READS: u64 = 30_000;
const WRITERS: u64 = 2;
/// Items that are stored before the first read.
const STORED_MIN: u64 = 1000;
/// Rounds of a writer, at least: it may get no processor while all others run.
const ROUNDS_MIN: u64 = 20_000;
const NOW: u32 = 6;
const SEED: u64 = 2028;

/// Writes keys of its own: hot ones again and again, cold ones to grow the index and to have logs evict, large ones
/// to have extents evicted.
fn write<M: Mode>(engine: &Arc<Engine<M, Crcw>>, number: u64, done: &AtomicBool) {
    let (mut random, mut value) = (random(SEED, number), Vec::new());
    for cas in 1.. {
        if cas > ROUNDS_MIN && done.load(Relaxed) {
            return;
        }
        let (keys, lens) = match random.random_range(0..16) {
            0..9 => (0..HOT_KEYS, 0..3000),
            9 => (0..HOT_KEYS, 0..100_000),
            10..12 => (HOT_KEYS..LARGE_KEYS, 4_000..200_000),
            _ => (LARGE_KEYS..KEYS, 0..100),
        };
        let key = random.random_range(keys) / WRITERS * WRITERS + number;
        let bytes = key.to_le_bytes();
        let hash = engine.hash(&bytes);
        if random.random_range(0..16) == 0 {
            engine.entry(hash, &bytes, NOW).remove();
            continue;
        }
        fill(&mut value, key, cas, random.random_range(lens));
        let meta = ItemMeta { cas: Some(cas), ..ItemMeta::default() };
        if random.random() {
            let _ = engine.entry(hash, &bytes, NOW).insert(&[&value], meta);
        } else if let Ok(mut reservation) = engine.reserve(hash, &bytes, value.len() as u64) {
            // As plain bytes, where no reader of this process can look.
            reservation.value_mut().copy_from_slice(&value);
            let _ = engine.entry(hash, &bytes, NOW).commit(reservation, meta);
        }
    }
}

/// The answers to a reader.
#[derive(Debug, Default)]
struct Answers {
    /// Values that are larger than the optimistic bound.
    large: u64,
    /// How often the owner was to be asked.
    asked: u64,
}

/// Reads as another process would.
fn read<M: Mode>(table: &ReadOnly<M>, watch: &mut Watch) -> Answers {
    let (mut random, mut value, mut answers) = (random(SEED, 10), Vec::new(), Answers::default());
    for _ in 0..READS {
        let keys = match random.random_range(0..8) {
            0..4 => 0..HOT_KEYS,
            4..6 => HOT_KEYS..LARGE_KEYS,
            _ => LARGE_KEYS..KEYS,
        };
        let key = random.random_range(keys);
        let (bytes, sleeps) = (key.to_le_bytes(), random.random_range(0..8) == 0);
        let answer = table.read(table.hash(&bytes), &bytes, NOW, |item| copy(item, sleeps, &mut value));
        match answer {
            Answer::Found(state) => {
                watch.read(key, &state, &value);
                answers.large += u64::from(value.len() > 4096);
            }
            Answer::AskOwner => answers.asked += 1,
            Answer::Missing => {}
        }
    }
    answers
}

fn every_read_is_right<M: Mode>(evicts: bool) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("table");
    let backing = Backing::File(path.clone());
    let config = StoreConfig { backing, partitions: Some(2), ..StoreConfig::new(8 << 20) };
    let engine = Arc::new(Engine::<M, Crcw>::open(&config).unwrap().0);
    let table = ReadOnly::<M>::open(&path).unwrap();
    let (mut watch, done) = (Watch::new(KEYS), AtomicBool::new(false));
    let answers = thread::scope(|scope| {
        for number in 0..WRITERS {
            let (engine, done) = (&engine, &done);
            scope.spawn(move || write(engine, number, done));
        }
        // Otherwise the reader may be done before any writer has run.
        while engine.stats().items_stored < STORED_MIN {
            thread::yield_now();
        }
        // In the control `version-check`, garbage may also end it.
        let answers = catch_unwind(AssertUnwindSafe(|| read(&table, &mut watch)));
        done.store(true, Relaxed);
        answers
    });
    println!("{} values read, {} torn, {} stale; {answers:?}", watch.found, watch.torn, watch.stale);
    assert_eq!((watch.torn, watch.stale), (0, 0), "torn and stale reads");
    let answers = answers.unwrap();
    let is_enough = watch.found > READS / 4 && answers.large > READS / 20 && answers.asked < READS / 4;
    assert!(is_enough, "the test read too little: {answers:?}");
    let stats = engine.stats();
    assert_eq!(stats.read_retries, 0, "it has counted in the engine");
    assert!(stats.splits > 0 && (stats.evictions_log > 0) == evicts, "{stats:?}");
    assert!((stats.evictions_large > 100) == evicts, "{stats:?}");
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
