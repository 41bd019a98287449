//! A cache too small for its keys: logs evict and move, extents are evicted while they are read, and memory
//! moves back and forth between logs, index and large values.

use crate::{
    values::{Watch, copy, fill, len, random},
    writers::{NOW, WRITERS, Writer},
};
use minos_engine::{Access, Cache, Crcw, Crew, Erew, Eviction, Get, ItemMeta, Pinned, Put, StoreConfig};
use minos_testkit::Over;
use rand::{RngExt, rngs::StdRng};
use std::{
    collections::VecDeque,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    thread,
};

/// Keys that are read and written most; the values of every third are always large.
const HOT_KEYS: u64 = 36;
const KEYS: u64 = HOT_KEYS + 40_000;
const READS: u64 = 40_000;
/// Rounds of a writer, even if all readers are done before.
const ROUNDS_MIN: u64 = 5000;
const BURST: usize = 32;
const PINS_HELD: usize = 8;
const SEED: u64 = 2027;

fn config(eviction: Eviction) -> StoreConfig {
    StoreConfig {
        eviction,
        partitions: Some(4),
        owners: WRITERS,
        large_bytes_min: Some(512 << 10),
        ..StoreConfig::new(3 << 20)
    }
}

struct Keys {
    hot: Vec<u64>,
    cold: Vec<u64>,
    /// The last version of each key, and its length.
    last: Vec<(u64, usize)>,
    value: Vec<u8>,
}

impl Keys {
    fn of<A: Access>(writer: &Writer<A>) -> Self {
        let owns = |key: &u64| writer.owns(*key);
        Self {
            hot: (0..HOT_KEYS).filter(owns).collect(),
            cold: (HOT_KEYS..KEYS).filter(owns).collect(),
            last: vec![(0, 0); KEYS as usize],
            value: Vec::new(),
        }
    }

    /// Fills `value` with the next version of a key. With `in_place` it keeps the last length, so that it can
    /// be written in place.
    fn next(&mut self, key: u64, len: usize, in_place: bool) -> ItemMeta {
        let (version, last_len) = &mut self.last[key as usize];
        *version += 1;
        if !in_place {
            *last_len = len;
        }
        fill(&mut self.value, key, *version, *last_len);
        ItemMeta { cas: Some(*version), ..ItemMeta::default() }
    }
}

fn any(keys: &[u64], random: &mut StdRng) -> u64 {
    keys[random.random_range(0..keys.len())]
}

fn write<A: Access>(writer: &Writer<A>, done: &AtomicBool, random: &mut StdRng) {
    let mut keys = Keys::of(writer);
    let mut rounds = 0;
    while rounds < ROUNDS_MIN || !done.load(Relaxed) {
        rounds += 1;
        match random.random_range(0..64) {
            0..44 => set_hot(writer, &mut keys, random),
            44..46 => {
                let key = any(&keys.hot, random);
                writer.cache.entry(writer.hash(key), &key.to_le_bytes(), NOW).remove();
            }
            46..54 => {
                // Only to record the access.
                let key = any(&keys.cold, random);
                writer.cache.read(writer.hash(key), &key.to_le_bytes(), NOW, |_| ());
            }
            54..63 => put_cold(writer, &mut keys, random),
            _ => writer.tidy(random.random_range(0..500) == 0),
        }
    }
}

fn set_hot<A: Access>(writer: &Writer<A>, keys: &mut Keys, random: &mut StdRng) {
    let key = any(&keys.hot, random);
    let len = if key.is_multiple_of(3) { random.random_range(4000..120_000) } else { len(random) };
    let meta = keys.next(key, len, random.random_range(0..3) > 0);
    let key = key.to_le_bytes();
    let (hash, reserves) = (writer.cache.hash(&key), random.random_range(0..2) == 0);
    if !reserves {
        // It fails only if all large values are pinned.
        let _ = writer.cache.entry(hash, &key, NOW).insert(&[&keys.value], meta);
        return;
    }
    let Ok(mut reservation) = writer.cache.reserve(hash, &key, keys.value.len() as u64) else { return };
    reservation.value_mut().copy_from_slice(&keys.value);
    reservation.settle();
    let _ = writer.cache.entry(hash, &key, NOW).commit(reservation, meta);
}

/// A burst of small values, whose keys exceed the memory.
fn put_cold<A: Access>(writer: &Writer<A>, keys: &mut Keys, random: &mut StdRng) {
    let items: Vec<_> = (0..BURST)
        .map(|_| {
            let key = any(&keys.cold, random);
            let meta = keys.next(key, random.random_range(0..100), random.random_range(0..2) == 0);
            (key.to_le_bytes(), keys.value.clone(), meta)
        })
        .collect();
    let puts: Vec<_> = items
        .iter()
        .map(|(key, value, meta)| Put { hash: writer.cache.hash(key), key, value, meta: *meta })
        .collect();
    writer.cache.put_many(&puts, NOW, |_, _| {});
}

/// One of the readers' threads.
type Read<A> = fn(&Arc<Cache<A>>, &mut Watch, &mut StdRng);

fn any_key(random: &mut StdRng) -> u64 {
    let keys = if random.random_range(0..4) == 0 { HOT_KEYS..KEYS } else { 0..HOT_KEYS };
    random.random_range(keys)
}

fn read_each<A: Access>(cache: &Arc<Cache<A>>, watch: &mut Watch, random: &mut StdRng) {
    let mut value = Vec::new();
    for _ in 0..READS {
        let (key, sleeps) = (any_key(random), random.random_range(0..8) == 0);
        let bytes = key.to_le_bytes();
        let state = cache.read(cache.hash(&bytes), &bytes, NOW, |item| copy(item, sleeps, &mut value));
        if let Some(state) = state {
            watch.read(key, &state, &value);
        }
    }
}

fn read_bursts<A: Access>(cache: &Arc<Cache<A>>, watch: &mut Watch, random: &mut StdRng) {
    let mut results = [const { (None, Vec::new()) }; BURST];
    for burst in 0..READS / BURST as u64 {
        let keys: [_; BURST] = std::array::from_fn(|_| any_key(random).to_le_bytes());
        let gets = keys.each_ref().map(|key| Get { hash: cache.hash(key), key });
        cache.get_many(&gets, NOW, |at, item| {
            let (state, value) = &mut results[at];
            value.clear();
            *state = item.map(|item| {
                item.copy_value_to(value);
                **item
            });
        });
        for (key, (state, value)) in keys.iter().zip(&results) {
            if let Some(state) = state {
                watch.read(u64::from_le_bytes(*key), state, value);
            }
        }
        if burst % 64 == 0 {
            visit(cache, watch, random);
        }
    }
}

fn visit<A: Access>(cache: &Arc<Cache<A>>, watch: &mut Watch, random: &mut StdRng) {
    let partition = random.random_range(0..cache.partitions());
    let mut cursor = Some(0);
    while let Some(at) = cursor {
        cursor = cache.visit(partition, at, 64, NOW, |key, state| {
            let key = key.try_into().map_or(u64::MAX, u64::from_le_bytes);
            watch.header(key, state);
        });
    }
}

/// Keeps some items pinned while they are replaced or evicted, and checks them at the end.
fn pin<A: Access>(cache: &Arc<Cache<A>>, watch: &mut Watch, random: &mut StdRng) {
    let mut held: VecDeque<(u64, Pinned<_, A>)> = VecDeque::new();
    for _ in 0..READS / 4 {
        let key = random.random_range(0..HOT_KEYS);
        let bytes = key.to_le_bytes();
        if let Some(pinned) = cache.pin(cache.hash(&bytes), &bytes, NOW) {
            watch.header(key, &pinned);
            held.push_back((key, pinned));
        }
        if held.len() > PINS_HELD
            && let Some((key, pinned)) = held.pop_front()
        {
            watch.bytes(key, &pinned, pinned.value());
        }
    }
}

/// Runs readers with randomness of their own; in the control `version-check` garbage may also end one.
fn watched<A: Access>(cache: &Arc<Cache<A>>, read: Read<A>, stream: u64) -> Watch {
    let (mut watch, mut random) = (Watch::new(KEYS), random(SEED, stream));
    if catch_unwind(AssertUnwindSafe(|| read(cache, &mut watch, &mut random))).is_err() {
        watch.torn += 1;
    }
    watch
}

/// Items that are stored before the first read.
const STORED_MIN: u64 = 1000;

/// Lets all writers write until all readers have read.
fn run<A: Access>(eviction: Eviction) {
    let cache: Arc<Cache<A>> = Arc::new(Cache::create(&config(eviction)).unwrap());
    let (cache, done) = (&cache, &AtomicBool::new(false));
    let reads: [Read<A>; 3] = [read_each, read_bursts, pin];
    let watches = thread::scope(|scope| {
        for number in 0..cache.owners() {
            scope.spawn(move || {
                cache.take_up(number);
                write(&Writer { cache: Arc::clone(cache), number }, done, &mut random(SEED, number as u64));
                cache.give_up(number);
            });
        }
        let readers = [0, 1, 2].map(|at| {
            scope.spawn(move || {
                // Otherwise a reader may finish before any writer has run.
                while cache.stats().items_stored < STORED_MIN {
                    thread::yield_now();
                }
                watched(cache, reads[at], 10 + at as u64)
            })
        });
        let _over = Over(done);
        readers.map(|reader| reader.join().unwrap())
    });
    judge(cache, &watches);
    cache.check().unwrap();
}

fn judge<A: Access>(cache: &Cache<A>, watches: &[Watch]) {
    let stats = cache.stats();
    let sum = |count: fn(&Watch) -> u64| watches.iter().map(count).sum::<u64>();
    let (found, torn, stale) = (sum(|watch| watch.found), sum(|watch| watch.torn), sum(|watch| watch.stale));
    println!("{found} values read, {torn} torn, {stale} stale, {} retries; {stats:?}", stats.read_retries);
    assert_eq!((torn, stale), (0, 0), "torn and stale reads");
    assert!(found > READS / 4, "the test read too little");
    assert!(stats.evictions_log > 0 && stats.evictions_large > 10 && stats.reinserted > 0, "{stats:?}");
    assert!(stats.splits > 0 && stats.pinned == 0, "{stats:?}");
}

#[test]
fn crcw_readers_of_an_approximate_lru_cache_see_what_was_stored() {
    run::<Crcw>(Eviction::ApproxLru);
}

#[test]
fn crcw_readers_of_an_lru_cache_see_what_was_stored() {
    run::<Crcw>(Eviction::Lru);
}

#[test]
fn crew_readers_see_what_the_owners_stored() {
    run::<Crew>(Eviction::ApproxLru);
}

/// An owner beside another one: both take memory from the same heap. Returns what it finds of its own in the end.
fn erew_owner(cache: &Arc<Cache<Erew>>, number: usize) -> Watch {
    let writer = Writer { cache: Arc::clone(cache), number };
    cache.take_up(number);
    write(&writer, &AtomicBool::new(true), &mut random(SEED, number as u64));
    let (mut watch, mut value) = (Watch::new(KEYS), Vec::new());
    for key in (0..KEYS).filter(|&key| writer.owns(key)) {
        let bytes = key.to_le_bytes();
        let state = cache.read(writer.hash(key), &bytes, NOW, |item| copy(item, false, &mut value));
        if let Some(state) = state {
            watch.read(key, &state, &value);
        }
    }
    cache.give_up(number);
    watch
}

#[test]
fn erew_owners_see_what_they_stored() {
    let cache = &Arc::new(Cache::<Erew>::create(&config(Eviction::ApproxLru)).unwrap());
    let watches = thread::scope(|scope| {
        let owners = [0, 1].map(|number| scope.spawn(move || erew_owner(cache, number)));
        owners.map(|owner| owner.join().unwrap())
    });
    for Watch { found, torn, .. } in watches {
        assert!(found > 100 && torn == 0, "{found} found, {torn} torn");
    }
    let stats = cache.stats();
    assert!(stats.evictions_log > 0 && stats.evictions_large > 10 && stats.reinserted > 0, "{stats:?}");
    cache.check().unwrap();
}
