//! A region may hold anything, and change at any moment: readers end, and stay within it.

use super::{Answer, ReadOnly};
use crate::{
    burst::Get,
    cache_mode::CacheMode,
    chain,
    config::StoreConfig,
    index::BUCKET_WORDS,
    item::{ItemMeta, ItemView},
    mode::Mode,
    store::Engine,
    store_mode::StoreMode,
    visit::Named,
};
use minos_base::{KeyHash, seeded_stream};
use minos_region::{Backing, Offset, OwnerState, Ownership};
use minos_sync::Crcw;
use minos_testkit::Over;
use proptest::{collection::vec, prelude::*};
use rand::{Rng, RngExt};
use std::{
    collections::BTreeSet,
    hint::black_box,
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    thread,
    time::{Duration, Instant},
};

const MEMORY_BYTES: u64 = 2 << 20;
const KEYS: u64 = 800;
const MICRO_SHARDS: u32 = 16;

/// Attempts of a read that never ends would take for ever; one that ends takes far less than this.
const READ_TIME_MAX: Duration = Duration::from_secs(30);

/// A table with items of all kinds, and a reader of it.
struct Victim<M: Mode> {
    engine: Engine<M, Crcw>,
    table: ReadOnly<M>,
    /// Words in which damage shows: of index, chains, logs and items.
    places: Vec<Offset>,
    buckets: Vec<Offset>,
}

fn key(number: u64) -> [u8; 8] {
    number.to_le_bytes()
}

impl<M: Mode> Victim<M> {
    fn new() -> Self {
        let config = StoreConfig {
            backing: Backing::Memfd,
            partitions: Some(2),
            micro_shards: MICRO_SHARDS,
            value_bytes_max: 1 << 19,
            ..StoreConfig::new(MEMORY_BYTES)
        };
        let engine = Engine::<M, Crcw>::create(&config).unwrap();
        for number in 0..KEYS {
            let len = if number % 41 == 0 { 6000 } else { number as usize % 300 };
            let key = key(number);
            let mut entry = engine.entry(engine.hash(&key), &key, 5);
            entry.insert(&[&vec![number as u8; len]], ItemMeta::default()).unwrap();
        }
        for micro_shard in 0..MICRO_SHARDS {
            engine.set_ownership(micro_shard, Ownership { epoch: 1, state: OwnerState::Owned });
        }
        let table = ReadOnly::from_descriptor(engine.descriptor_to_read().unwrap()).unwrap();
        let (places, buckets) = Self::places(&engine);
        Self { engine, table, places, buckets }
    }

    fn places(engine: &Engine<M, Crcw>) -> (Vec<Offset>, Vec<Offset>) {
        let region = engine.memory().region();
        let words = |start: Offset, count| (0..count).map(move |at| start.plus(at));
        let (mut places, mut buckets) = (Vec::new(), Vec::new());
        for partition in &engine.partitions {
            let start = engine.memory().partition_start(partition.number);
            places.extend(words(start, engine.memory().geometry().partition_words));
            for number in 0..partition.index.buckets(region) {
                let head = partition.index.bucket(region, number);
                buckets.extend(chain::buckets(region, head));
                let items = chain::places(region, head).map(|place| place.slot(region));
                let items = items.filter_map(|slot| M::locate(&partition.space, region, slot));
                places.extend(items.flat_map(|item| words(item.minus(1), 9)));
            }
        }
        places.extend(buckets.iter().flat_map(|&bucket| words(bucket, BUCKET_WORDS as u64)));
        (places, buckets)
    }

    fn put(&self, place: Offset, value: u64) {
        self.engine.memory().region().word(place).store(value, Relaxed);
    }

    /// Changes one word; returns where it is, and what it was.
    fn damage(&self, (kind, at, value): (u8, u64, u64)) -> (Offset, u64) {
        let region = self.engine.memory().region();
        let bucket = self.buckets[(value >> 32) as usize % self.buckets.len()].words() / BUCKET_WORDS as u64;
        let place = match kind % 8 {
            0 => Offset::from_words(at % region.len_words()),
            1..4 => Offset::from_words(self.buckets[at as usize % self.buckets.len()].words() + value % 8),
            _ => self.places[at as usize % self.places.len()],
        };
        let old = region.word(place).load(Relaxed);
        let new = match kind / 8 % 8 {
            0 => value,
            1 => u64::MAX,
            2 => value % 64,
            3 => 1 << (value % 64),
            4 => old ^ 1 << (value % 64),
            // The chain continues at another bucket, or at the same.
            5 => bucket << 32 | value & 0xffff_fffe,
            6 => old & !((1 << 38) - 1) | region.len_words().wrapping_sub(value % 64),
            _ => old.wrapping_add(value % 64).wrapping_sub(32),
        };
        self.put(place, new);
        (place, old)
    }

    fn read_all(&self, table: &ReadOnly<M>) -> [u64; 3] {
        let mut answers = [0; 3];
        for number in 0..KEYS + 50 {
            let key = key(number);
            let hash = table.hash(&key);
            table.prefetch_bucket(hash);
            for answer in reads(table, hash, &key) {
                answers[answer] += 1;
            }
        }
        answers
    }
}

/// The answers of each way to read a key.
fn reads<M: Mode>(table: &ReadOnly<M>, hash: KeyHash, key: &[u8]) -> [usize; 4] {
    let begin = Instant::now();
    let get = Get { hash, key };
    let micro_shard = hash.0 as u32 % MICRO_SHARDS;
    let look = |item: &ItemView<'_>| {
        black_box(table.is_noteworthy(hash, item));
        look(item);
    };
    let answers = [
        table.read(hash, key, 5, look),
        table.read_owned(micro_shard, hash, key, 5, look),
        table.read_staged(&table.stage(hash), &get, 5, look),
        table.read_staged_owned(&table.stage_owned(micro_shard, hash), &get, 5, look),
    ];
    assert!(begin.elapsed() < READ_TIME_MAX, "a read did not end");
    answers.map(|answer| match answer {
        Answer::Found(()) => 0,
        Answer::Missing => 1,
        Answer::AskOwner => 2,
    })
}

fn look(item: &ItemView<'_>) {
    let mut value = Vec::new();
    item.copy_value_to(&mut value);
    assert!(value.len() as u64 <= MEMORY_BYTES);
    black_box((item.value_u64(), item.last_access(), item.expiry(), item.is_access_due()));
}

fn key_of(named: Named<'_>) -> Vec<u8> {
    let Named::Key(key) = named else { panic!("nothing is on flash") };
    key.to_vec()
}

/// The keys that a walk visits, up to the first chain that is not settled.
fn walk<M: Mode>(table: &ReadOnly<M>) -> Vec<Vec<u8>> {
    let mut keys = Vec::new();
    for partition in 0..table.partitions() {
        let mut cursor = Some(0);
        while let Some(from) = cursor {
            let next = table.visit(partition, from, 16, 5, |named| keys.push(key_of(named)));
            let Ok(next) = next else { return keys };
            cursor = next;
        }
    }
    keys
}

fn a_walk_visits_every_key<M: Mode>() {
    let victim = Victim::<M>::new();
    let mut visited = walk(&victim.table);
    visited.sort();
    let is_there = |number: &u64| {
        let key = key(*number);
        victim.engine.read(victim.engine.hash(&key), &key, 5, |_| ()).is_some()
    };
    let mut expected: Vec<_> = (0..KEYS).filter(is_there).map(|number| key(number).to_vec()).collect();
    expected.sort();
    assert!(visited == expected && visited.len() > KEYS as usize / 2, "{} keys", visited.len());
    for key in &expected {
        let (hash, mut found) = (victim.table.hash(key), Vec::new());
        victim.table.keys_with(hash, 5, |named| found.push(key_of(named))).unwrap();
        assert_eq!(found, std::slice::from_ref(key));
        victim.engine.keys_with(hash, 5, |key| found.push(key.to_vec()));
        assert_eq!(found, [key.clone(), key.clone()]);
    }
    victim.table.keys_with(KeyHash(1), 5, |_| panic!("no key has this hash")).unwrap();
}

#[test]
fn walks_visit_every_key() {
    a_walk_visits_every_key::<StoreMode>();
    a_walk_visits_every_key::<CacheMode>();
}

#[test]
fn a_walk_visits_every_key_while_the_index_grows() {
    let config = StoreConfig {
        backing: Backing::Memfd,
        partitions: Some(1),
        value_bytes_max: 1 << 19,
        ..StoreConfig::new(MEMORY_BYTES)
    };
    let engine = Engine::<StoreMode, Crcw>::create(&config).unwrap();
    let put = |number| {
        let key = key(number);
        engine.entry(engine.hash(&key), &key, 5).insert(&[b"value"], ItemMeta::default()).unwrap();
    };
    (0..KEYS / 4).for_each(put);
    let table = ReadOnly::<StoreMode>::from_descriptor(engine.descriptor_to_read().unwrap()).unwrap();
    let (mut visited, mut more) = (BTreeSet::new(), KEYS / 4..KEYS * 4);
    let mut cursor = Some(0);
    while let Some(from) = cursor {
        // One slice is to have all the buckets, and the index grows within it.
        let next = table.visit(0, from, usize::MAX, 5, |named| {
            more.by_ref().for_each(put);
            visited.insert(key_of(named));
        });
        cursor = next.unwrap();
    }
    let missed: Vec<_> = (0..KEYS / 4).filter(|number| !visited.contains(&key(*number)[..])).collect();
    assert_eq!(missed, []);
    // Nor does a walk go on for ever where the number of buckets cannot be trusted.
    assert_eq!(table.visit(0, u64::MAX, 16, 5, |_| panic!("there is no such bucket")), Ok(None));
}

#[test]
fn a_table_gives_no_unique_up_to_a_floor() {
    let engine = Engine::<StoreMode, Crcw>::create(&StoreConfig::new(MEMORY_BYTES)).unwrap();
    let put = |number| {
        let key = key(number);
        engine.entry(engine.hash(&key), &key, 5).insert(&[b"value"], ItemMeta::default()).unwrap()
    };
    let floor = 3 << 56;
    assert!(put(1) < floor);
    engine.raise_cas(floor);
    let mut uniques: Vec<_> = (0..100).map(put).collect();
    engine.raise_cas(1);
    uniques.extend((100..200).map(put));
    assert!(uniques.iter().all(|unique| *unique > floor && *unique < 4 << 56));
    uniques.sort_unstable();
    uniques.dedup();
    assert_eq!(uniques.len(), 200);
}

fn any_damage_is_survived<M: Mode>(damages: Vec<(u8, u64, u64)>) {
    let victim = Victim::<M>::new();
    let [found, ..] = victim.read_all(&victim.table);
    assert!(found > KEYS, "{found} of {KEYS} keys");
    damages.into_iter().for_each(|damage| _ = victim.damage(damage));
    victim.read_all(&victim.table);
    black_box(walk(&victim.table));
    if let Ok(table) = ReadOnly::from_descriptor(victim.engine.descriptor_to_read().unwrap()) {
        victim.read_all(&table);
    }
}

fn damages() -> impl Strategy<Value = Vec<(u8, u64, u64)>> {
    vec((0..64u8, any::<u64>(), any::<u64>()), 1..2000)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 32, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_reader_survives_any_damage_to_a_store(damages in damages()) {
        any_damage_is_survived::<StoreMode>(damages);
    }

    #[test]
    fn a_reader_survives_any_damage_to_a_cache(damages in damages()) {
        any_damage_is_survived::<CacheMode>(damages);
    }
}

fn damage_beside_reads_is_survived<M: Mode>() {
    const PASSES: u64 = 100;
    const PASSES_MAX: u64 = 100 * PASSES;
    let (victim, done) = (Victim::<M>::new(), AtomicBool::new(false));
    let answers = thread::scope(|scope| {
        scope.spawn(|| {
            let mut random = seeded_stream(31, 0);
            while !done.load(Relaxed) {
                let damage = |_| (random.random_range(0..64), random.next_u64(), random.next_u64());
                let damages: Vec<_> = (0..64).map(damage).map(|damage| victim.damage(damage)).collect();
                // Otherwise nothing would be left to read soon.
                damages.into_iter().rev().for_each(|(place, old)| victim.put(place, old));
            }
        });
        let _done = Over(&done);
        let mut sum = [0; 3];
        for pass in 0..PASSES_MAX {
            // On a busy machine the other thread may not have run yet.
            if pass >= PASSES && sum[2] > 0 {
                break;
            }
            let answers = victim.read_all(&victim.table);
            sum = std::array::from_fn(|at| sum[at] + answers[at]);
        }
        sum
    });
    println!("{answers:?} found, missing, asked");
    assert!(answers[0] > PASSES * KEYS && answers[2] > 0, "{answers:?}");
}

#[test]
fn a_reader_survives_damage_beside_it() {
    damage_beside_reads_is_survived::<StoreMode>();
    damage_beside_reads_is_survived::<CacheMode>();
}

fn any_header_is_survived<M: Mode>() {
    let victim = Victim::<M>::new();
    let region = victim.engine.memory().region();
    let saved = victim.engine.saved();
    let header = (0..14).map(Offset::from_words);
    let shape = (0..4).map(|at| saved.place(at));
    let (mut refused, mut opened) = (0, 0);
    for place in header.chain(shape) {
        let old = region.word(place).load(Relaxed);
        let flips = (0..64).map(|bit| old ^ 1 << bit);
        let small = (0..4).flat_map(|less| [less, old.wrapping_sub(less + 1), old.wrapping_add(less + 1)]);
        for value in flips.chain(small).chain([u64::MAX, u64::MAX / 8, old << 1]) {
            victim.put(place, value);
            match ReadOnly::<M>::from_descriptor(victim.engine.descriptor_to_read().unwrap()) {
                Ok(table) => {
                    opened += 1;
                    reads(&table, table.hash(&key(1)), &key(1));
                }
                Err(_) => refused += 1,
            }
        }
        victim.put(place, old);
    }
    assert!(refused > 500 && opened > 100, "{refused} refused, {opened} opened");
}

#[test]
fn a_reader_survives_any_header() {
    any_header_is_survived::<StoreMode>();
    any_header_is_survived::<CacheMode>();
}

#[test]
fn threads_share_a_reader() {
    fn shared_with_threads<T: Send + Sync>() {}
    shared_with_threads::<ReadOnly<StoreMode>>();
    shared_with_threads::<ReadOnly<CacheMode>>();
}
