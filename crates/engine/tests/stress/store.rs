//! A store: items are overwritten, deleted, pinned and flushed while the index grows.

use crate::values::{Watch, copy, fill, len, random};
use minos_engine::{ItemMeta, Store, StoreConfig};
use rand::{RngExt, rngs::StdRng};
use std::{
    collections::VecDeque,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    thread,
};

const HOT_KEYS: u64 = 8;
const COLD_KEYS: u64 = 30_000;
const READS: u64 = 60_000;
/// Items that are stored before the first read.
const STORED_MIN: u64 = 1000;
/// Rounds of a writer, even if all readers are done before.
const ROUNDS_MIN: u64 = 5000;
const SEED: u64 = 2026;

struct Stress {
    store: Arc<Store>,
    done: AtomicBool,
    cas: AtomicU64,
}

impl Stress {
    fn new() -> Self {
        let config = StoreConfig { partitions: Some(2), ..StoreConfig::new(24 << 20) };
        Self {
            store: Arc::new(Store::create(&config).unwrap()),
            done: AtomicBool::new(false),
            cas: AtomicU64::new(1),
        }
    }

    fn set(&self, key: u64, len: usize, value: &mut Vec<u8>, reserves: bool) {
        let (bytes, cas) = (key.to_le_bytes(), self.cas.fetch_add(1, Relaxed));
        let hash = self.store.hash(&bytes);
        fill(value, key, cas, len);
        let meta = ItemMeta { cas: Some(cas), flags: cas as u32, ..ItemMeta::default() };
        if reserves {
            let Ok(mut reservation) = self.store.reserve(hash, &bytes, len as u64) else { return };
            reservation.value_mut().copy_from_slice(value);
            reservation.settle();
            let _ = self.store.entry(hash, &bytes, 5).commit(reservation, meta);
        } else {
            let _ = self.store.entry(hash, &bytes, 5).insert(&[value], meta);
        }
    }

    fn write(&self, _: &mut Watch, random: &mut StdRng) {
        let (mut value, mut cold) = (Vec::new(), 0);
        let mut rounds = 0;
        while rounds < ROUNDS_MIN || !self.done.load(Relaxed) {
            rounds += 1;
            let key = random.random_range(0..HOT_KEYS);
            let bytes = key.to_le_bytes();
            match random.random_range(0..40) {
                0..24 => self.set(key, len(random), &mut value, random.random()),
                24..28 => {
                    self.store.entry(self.store.hash(&bytes), &bytes, 5).remove();
                }
                // Grows the index, and fills arenas with small items.
                28..39 => {
                    cold = (cold + 1) % COLD_KEYS;
                    self.set(HOT_KEYS + cold, random.random_range(0..40), &mut value, false);
                }
                _ => {
                    for partition in 0..self.store.partitions() {
                        self.store.sweep(partition, 16, 5);
                    }
                }
            }
            if random.random_range(0..50_000) == 0 {
                self.store.flush();
            }
        }
    }

    fn read(&self, watch: &mut Watch, random: &mut StdRng) {
        let mut value = Vec::new();
        for _ in 0..READS {
            let key = if random.random_range(0..8) == 0 {
                HOT_KEYS + random.random_range(0..COLD_KEYS)
            } else {
                random.random_range(0..HOT_KEYS)
            };
            let bytes = key.to_le_bytes();
            let sleeps = random.random_range(0..8) == 0;
            let state =
                self.store.read(self.store.hash(&bytes), &bytes, 6, |item| copy(item, sleeps, &mut value));
            if let Some(state) = state {
                watch.bytes(key, &state, &value);
            }
        }
    }

    /// Keeps some items pinned while they are overwritten, and checks them at the end.
    fn pin(&self, watch: &mut Watch, random: &mut StdRng) {
        let mut held = VecDeque::new();
        for _ in 0..READS / 8 {
            let key = random.random_range(0..HOT_KEYS);
            let bytes = key.to_le_bytes();
            held.extend(self.store.pin(self.store.hash(&bytes), &bytes, 6).map(|pinned| (key, pinned)));
            if held.len() > 16 {
                let (key, pinned) = held.pop_front().unwrap();
                watch.bytes(key, &pinned, pinned.value());
            }
        }
    }

    /// Runs `work` with randomness of its own; in the control `version-check` garbage may also end it.
    fn run(&self, stream: u64, work: impl Fn(&Self, &mut Watch, &mut StdRng)) -> Watch {
        let mut watch = Watch::new(0);
        let mut random = random(SEED, stream);
        let work = std::panic::AssertUnwindSafe(|| work(self, &mut watch, &mut random));
        if std::panic::catch_unwind(work).is_err() {
            watch.torn += 1;
        }
        watch
    }
}

#[test]
fn every_byte_read_was_stored() {
    let stress = Stress::new();
    let watches = thread::scope(|scope| {
        let stress = &stress;
        let writers = [0, 1].map(|stream| scope.spawn(move || stress.run(stream, Stress::write)));
        // Otherwise readers may be done before any writer has run.
        while stress.store.stats().items_stored < STORED_MIN && !writers.iter().all(|it| it.is_finished()) {
            thread::yield_now();
        }
        let readers = [
            scope.spawn(move || stress.run(10, Stress::read)),
            scope.spawn(move || stress.run(11, Stress::read)),
            scope.spawn(move || stress.run(12, Stress::pin)),
        ];
        let read = readers.map(|reader| reader.join().unwrap());
        stress.done.store(true, Relaxed);
        let written = writers.map(|writer| writer.join().unwrap());
        read.into_iter().chain(written).collect::<Vec<_>>()
    });
    let sum = |count: fn(&Watch) -> u64| watches.iter().map(count).sum::<u64>();
    let (torn, found) = (sum(|watch| watch.torn), sum(|watch| watch.found));
    let stats = stress.store.stats();
    println!("{found} values read, {torn} torn reads, {} retries", stats.read_retries);
    assert_eq!(torn, 0, "torn reads");
    assert!(found > READS / 4 && stats.splits > 0, "the test read too little: {stats:?}");
    stress.store.check().unwrap();
}
