//! Tables on a file that are closed and opened again.

use minos_engine::{
    Access, Backing, Cache, CacheMode, CloseError, Crcw, CreateError, Crew, Engine, Erew, Eviction, ItemMeta,
    Mode, OpenError, Opening, Store, StoreConfig, StoreMode,
};
use std::{
    collections::BTreeMap,
    fs::OpenOptions,
    ops::Range,
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
    sync::Arc,
    thread,
};
use tempfile::TempDir;

/// Values of every kind: empty, in place, beside the key, in memory of their own.
const LENGTHS: [usize; 8] = [0, 1, 8, 100, 700, 4096, 5000, 60_000];

/// A folder for a region, in memory where that is possible.
struct Place(TempDir);

impl Place {
    fn new() -> Self {
        let shared = Path::new("/dev/shm");
        let folder = if shared.is_dir() { tempfile::tempdir_in(shared) } else { tempfile::tempdir() };
        Self(folder.unwrap())
    }

    fn path(&self) -> PathBuf {
        self.0.path().join("region")
    }

    fn config(&self, memory_bytes: u64) -> StoreConfig {
        StoreConfig {
            backing: Backing::File(self.path()),
            partitions: Some(2),
            owners: 2,
            hash_seed: 7,
            // The same, so that every access mode finds what another has stored.
            direction_seed: 7,
            value_bytes_max: 1 << 20,
            ..StoreConfig::new(memory_bytes)
        }
    }
}

fn key(number: u64) -> Vec<u8> {
    format!("key {number}").into_bytes()
}

fn bytes(number: u64, version: u64) -> Vec<u8> {
    let len = LENGTHS[(number + version) as usize % LENGTHS.len()];
    (0..len as u64).map(|at| (number * 31 + version * 7 + at) as u8).collect()
}

fn meta(number: u64) -> ItemMeta {
    let expiry = if number.is_multiple_of(5) { 1000 + number as u32 } else { 0 };
    ItemMeta { flags: number as u32, expiry, ..ItemMeta::default() }
}

fn set<M: Mode, A: Access>(engine: &Engine<M, A>, number: u64, version: u64) -> u64 {
    let key = key(number);
    engine.entry(engine.hash(&key), &key, 5).insert(&[&bytes(number, version)], meta(number)).unwrap()
}

/// Value, flags, expiry and CAS unique.
type Seen = (Vec<u8>, u32, u32, u64);

fn get<M: Mode, A: minos_engine::Access>(engine: &Engine<M, A>, number: u64, now: u32) -> Option<Seen> {
    let key = key(number);
    engine.read(engine.hash(&key), &key, now, |item| {
        let mut value = Vec::new();
        item.copy_value_to(&mut value);
        (value, item.flags(), item.expiry(), item.cas())
    })
}

/// CAS uniques of the live items, read without moving them.
fn uniques<M: Mode, A: minos_engine::Access>(engine: &Engine<M, A>) -> BTreeMap<Vec<u8>, u64> {
    let mut found = BTreeMap::new();
    for partition in 0..engine.partitions() {
        engine.visit(partition, 0, usize::MAX, 6, |key, state| {
            found.insert(key.to_vec(), state.cas());
        });
    }
    found
}

fn all<M: Mode, A: minos_engine::Access>(engine: &Engine<M, A>, keys: u64) -> Vec<Option<Seen>> {
    (0..keys).map(|number| get(engine, number, 6)).collect()
}

fn items<M: Mode, A: minos_engine::Access>(engine: &Engine<M, A>) -> u64 {
    engine.stats().items
}

/// A table on a file, for this thread alone.
fn opened<M: Mode, A: Access>(config: &StoreConfig) -> (Engine<M, A>, Opening) {
    let (engine, opening) = Engine::open(config).unwrap();
    (0..engine.owners()).for_each(|owner| engine.take_up(owner));
    (engine, opening)
}

/// Fills a table, closes it, reopens it, and continues to use it.
fn goes_on<M: Mode, A: Access>(is_lossy: bool) {
    let place = Place::new();
    let config = place.config(16 << 20);
    let (engine, opening) = opened::<M, A>(&config);
    assert_eq!(opening, Opening::Created);
    engine.set_clock_base(1_700_000_000);
    assert_eq!([5, 3].map(|number| engine.number_process(number)), [5, 6]);
    let cas_max = (0..1000).map(|number| set(&engine, number, 0)).max().unwrap();
    for number in (0..1000).step_by(3) {
        set(&engine, number, 1);
    }
    for number in (0..1000).step_by(7) {
        engine.entry(engine.hash(&key(number)), &key(number), 5).remove();
    }
    let (before, stats) = (all(&engine, 1000), engine.stats());
    assert!(is_lossy || before.iter().filter(|seen| seen.is_none()).count() == 1000usize.div_ceil(7));
    engine.check().unwrap();
    engine.close().unwrap();

    // The configured seed differs; the file's is used.
    let (engine, opening) = opened::<M, A>(&StoreConfig { hash_seed: 8, ..config.clone() });
    assert_eq!(opening, Opening::Warm { items: stats.items });
    engine.check().unwrap();
    assert!(all(&engine, 1000) == before);
    assert_eq!(engine.clock_base(), 1_700_000_000);
    assert_eq!([2, 20].map(|number| engine.number_process(number)), [7, 20]);
    let now = engine.stats();
    assert_eq!(
        (now.items, now.key_bytes, now.value_bytes),
        (stats.items, stats.key_bytes, stats.value_bytes)
    );
    assert_eq!(
        (now.buckets, now.extents, now.extent_bytes),
        (stats.buckets, stats.extents, stats.extent_bytes)
    );
    assert!(get(&engine, 5, 1004).is_some() == before[5].is_some() && get(&engine, 5, 1005).is_none());
    assert!(set(&engine, 0, 0) > cas_max, "a CAS unique was used again");

    // Growth and evictions continue.
    for number in 1000..20_000 {
        let key = key(number);
        let stored = engine.entry(engine.hash(&key), &key, 5).insert(&[&bytes(number, 0)], meta(number));
        assert!(stored.is_ok() || !is_lossy);
    }
    let stats = engine.stats();
    assert!(stats.splits > 0 && (stats.evictions_log > 0) == is_lossy, "{stats:?}");
    engine.check().unwrap();
    for number in 0..20_000 {
        let Some((value, ..)) = get(&engine, number, 6) else { continue };
        assert!((0..2).any(|version| value == bytes(number, version)), "{number}");
    }
    let before = all(&engine, 20_000);
    engine.close().unwrap();
    let (engine, opening) = opened::<M, A>(&config);
    assert!(matches!(opening, Opening::Warm { .. }), "{opening}");
    assert!(all(&engine, 20_000) == before);
    engine.check().unwrap();
}

#[test]
fn a_store_goes_on() {
    goes_on::<StoreMode, Crcw>(false);
    goes_on::<StoreMode, Erew>(false);
}

#[test]
fn a_cache_goes_on() {
    goes_on::<CacheMode, Crcw>(true);
    goes_on::<CacheMode, Erew>(true);
}

/// Calls `f` as each owner, in a thread of its own.
fn as_owners<M: Mode, A: Access>(engine: &Engine<M, A>, f: impl Fn(usize) + Sync) {
    thread::scope(|scope| {
        for owner in 0..engine.owners() {
            let f = &f;
            scope.spawn(move || {
                engine.take_up(owner);
                f(owner);
                engine.give_up(owner);
            });
        }
    });
}

fn owned_goes_on<M: Mode>() {
    let place = Place::new();
    let config = place.config(8 << 20);
    let (engine, _) = Engine::<M, Crew>::open(&config).unwrap();
    as_owners(&engine, |owner| {
        let is_own = |number: &u64| engine.owner_of(engine.hash(&key(*number))) == owner;
        (0..500).filter(is_own).for_each(|number| _ = set(&engine, number, 0));
    });
    let before = all(&engine, 500);
    engine.check().unwrap();
    engine.close().unwrap();
    // Opening has left the partitions to whoever takes them up.
    let (engine, opening) = Engine::<M, Crew>::open(&config).unwrap();
    assert_eq!(opening, Opening::Warm { items: items(&engine) });
    as_owners(&engine, |_| ());
    assert!(all(&engine, 500) == before);
    engine.check().unwrap();
    // A reference to the table prevents its closing.
    let engine = Arc::new(engine);
    assert!(matches!(Arc::clone(&engine).close_shared(), Err(CloseError::InUse)));
    drop(engine);
    let (engine, opening) = Engine::<M, Crcw>::open(&config).unwrap();
    assert!(matches!(opening, Opening::Repaired { dropped: 0, .. }), "{opening}");
    assert!(all(&engine, 500) == before);
}

#[test]
fn owners_go_on() {
    owned_goes_on::<StoreMode>();
    owned_goes_on::<CacheMode>();
}

#[test]
fn evictions_go_on_with_every_policy() {
    for eviction in [Eviction::Fifo, Eviction::ApproxLru, Eviction::Lru] {
        let place = Place::new();
        let config = StoreConfig { eviction, ..place.config(4 << 20) };
        let mut last = Opening::Created;
        for start in 0..6 {
            let (cache, opening) = Cache::<Crcw>::open(&config).unwrap();
            assert_eq!(opening, last, "{eviction:?}");
            for number in 0..2000 {
                set(&cache, number + start * 1500, start);
                get(&cache, (number * number) % 2000, 6);
            }
            cache.check().unwrap();
            cache.close().unwrap();
            let (cache, opening) = Cache::<Crcw>::open(&config).unwrap();
            cache.check().unwrap();
            let (found, stats) = (uniques(&cache), cache.stats());
            assert!(found.len() as u64 == stats.items && stats.extents > 0 && stats.items > 200, "{stats:?}");
            for number in 0..10_000 {
                let Some((value, _, _, cas)) = get(&cache, number, 6) else { continue };
                assert_eq!(found[&key(number)], cas);
                assert!((0..=start).any(|version| value == bytes(number, version)), "{number}");
            }
            cache.close().unwrap();
            let (cache, opening_again) = Cache::<Crcw>::open(&config).unwrap();
            assert!(matches!(opening_again, Opening::Warm { .. }) && matches!(opening, Opening::Warm { .. }));
            let (before, opening) = (uniques(&cache), opening_again);
            cache.close().unwrap();
            let (cache, _) = Cache::<Crcw>::open(&config).unwrap();
            assert!(uniques(&cache) == before);
            last = opening;
            cache.close().unwrap();
        }
    }
}

#[test]
fn a_flush_and_a_sweep_go_on() {
    let place = Place::new();
    let config = place.config(4 << 20);
    for round in 0..9 {
        let (store, _) = Store::<Crcw>::open(&config).unwrap();
        for number in 0..200 {
            set(&store, number, round);
        }
        store.sweep(0, 13, 6);
        store.flush();
        for number in 0..10 {
            set(&store, number, round);
        }
        store.close().unwrap();
        let (store, _) = Store::<Crcw>::open(&config).unwrap();
        let alive = all(&store, 200).iter().flatten().count();
        assert_eq!(alive, 10, "round {round}");
        store.check().unwrap();
        store.close().unwrap();
    }
}

#[test]
fn another_table_is_refused_and_kept() {
    let place = Place::new();
    let config = place.config(8 << 20);
    let (store, _) = Store::<Crcw>::open(&config).unwrap();
    set(&store, 1, 0);
    let busy = Store::<Crcw>::open(&config).unwrap_err().to_string();
    assert!(busy.contains("use"), "{busy}");
    store.close().unwrap();
    let others = [
        (StoreConfig { memory_bytes: 16 << 20, ..config.clone() }, ["8388608", "16777216"]),
        (StoreConfig { partitions: Some(4), ..config.clone() }, ["partitions 2", "4"]),
        (
            StoreConfig { item_optimistic_bytes_max: 100, ..config.clone() },
            ["value beside its key", "is asked for"],
        ),
        (StoreConfig { hash_mask: 0xff, ..config.clone() }, ["bits of the key hash", "255"]),
    ];
    for (other, words) in others {
        let error = Store::<Crcw>::open(&other).unwrap_err().to_string();
        assert!(words.iter().all(|word| error.contains(word)), "{error}");
    }
    let error = Cache::<Crcw>::open(&config).unwrap_err();
    assert!(matches!(&error, OpenError::Layout { .. } | OpenError::Region(_)), "{error:?}");
    assert!(error.to_string().contains("store 2") && error.to_string().contains("cache 2"), "{error}");
    let error = Store::<Crcw>::open(&StoreConfig { partitions: Some(3), ..config.clone() }).unwrap_err();
    assert!(matches!(error, OpenError::Create(CreateError::Partitions { partitions: 3 })));
    let (store, opening) = Store::<Crcw>::open(&config).unwrap();
    assert_eq!((opening, get(&store, 1, 6).unwrap().0), (Opening::Warm { items: 1 }, bytes(1, 0)));
}

#[test]
fn who_is_in_the_way_of_closing_is_noticed() {
    let place = Place::new();
    let config = place.config(8 << 20);
    let (store, _) = Store::<Crcw>::open(&config).unwrap();
    let store = Arc::new(store);
    set(&store, 7, 0);
    let pinned = store.pin(store.hash(&key(7)), &key(7), 6).unwrap();
    assert!(matches!(Arc::clone(&store).close_shared(), Err(CloseError::InUse)));
    drop(pinned);
    let reserved = store.reserve(store.hash(b"x"), b"x", 100_000).unwrap();
    assert!(matches!(Arc::clone(&store).close_shared(), Err(CloseError::InUse)));
    drop(reserved);
    store.close_shared().unwrap();
    assert_eq!(Store::<Crcw>::open(&config).unwrap().1, Opening::Warm { items: 1 });
}

#[test]
fn one_who_writes_alone_must_close() {
    let place = Place::new();
    let config = place.config(8 << 20);
    let (cache, _) = Cache::<Erew>::open(&config).unwrap();
    set(&cache, 1, 0);
    drop(cache);
    let (cache, opening) = Cache::<Crcw>::open(&config).unwrap();
    assert!(matches!(&opening, Opening::StartedEmpty { reason } if reason.contains("alone")), "{opening}");
    assert_eq!(get(&cache, 1, 6), None);
    set(&cache, 1, 0);
    drop(cache);
    let (cache, opening) = Cache::<Erew>::open(&config).unwrap();
    assert_eq!(opening, Opening::Repaired { items: 1, dropped: 0 });
    cache.close().unwrap();
    std::fs::remove_file(place.path()).unwrap();
    let (store, _) = Store::<Erew>::open(&config).unwrap();
    set(&store, 1, 0);
    drop(store);
    is_refused_and_kept(&place, "alone");
}

#[test]
fn what_the_machine_may_have_lost_is_not_relied_on() {
    let place = Place::new();
    let config = place.config(8 << 20);
    let (cache, _) = Cache::<Crcw>::open(&config).unwrap();
    set(&cache, 1, 0);
    drop(cache);
    // The header's words for the boot in which the region was put into use.
    let start_machine = || {
        let file = OpenOptions::new().write(true).open(place.path()).unwrap();
        file.write_all_at(&[1; 16], 80).unwrap();
    };
    start_machine();
    let (cache, opening) = Cache::<Crcw>::open(&config).unwrap();
    assert!(matches!(&opening, Opening::StartedEmpty { reason } if reason.contains("machine")), "{opening}");
    assert_eq!(get(&cache, 1, 6), None);
    drop(cache);
    std::fs::remove_file(place.path()).unwrap();
    let (store, _) = Store::<Crcw>::open(&config).unwrap();
    set(&store, 1, 0);
    drop(store);
    start_machine();
    is_refused_and_kept(&place, "machine");
}

/// Checks that an unreliable store is refused, and never emptied.
fn is_refused_and_kept(place: &Place, reason: &str) {
    let before = std::fs::read(place.path()).unwrap();
    for _ in 0..2 {
        let error = Store::<Crcw>::open(&place.config(8 << 20)).unwrap_err();
        assert!(matches!(&error, OpenError::Unreliable { .. }), "{error:?}");
        assert!(error.to_string().contains(reason), "{error}");
        assert!(std::fs::read(place.path()).unwrap() == before);
    }
}

#[test]
fn a_table_that_is_only_created_leaves_a_file_alone() {
    let place = Place::new();
    let config = place.config(8 << 20);
    let (store, _) = Store::<Crcw>::open(&config).unwrap();
    set(&store, 1, 0);
    store.close().unwrap();
    let error = Store::<Crcw>::create(&config).unwrap_err();
    assert!(error.to_string().contains("there is a file already"), "{error}");
    assert_eq!(Store::<Crcw>::open(&config).unwrap().1, Opening::Warm { items: 1 });
}

/// Checks that a table not closed, but not being written either, is complete after reopening.
fn is_repaired<M: Mode>(is_lossy: bool) {
    let place = Place::new();
    let memory_bytes = if is_lossy { 16 << 20 } else { 64 << 20 };
    // With another eviction policy, reading all items moves them all, and items read early may be evicted.
    let config = StoreConfig { eviction: Eviction::Fifo, ..place.config(memory_bytes) };
    let mut cas_max = 0;
    for round in 0..4 {
        let (engine, opening) = Engine::<M, Crcw>::open(&config).unwrap();
        assert_eq!(matches!(opening, Opening::Repaired { dropped: 0, .. }), round > 0, "{opening}");
        engine.check().unwrap();
        for number in 0..3000 * (1 + u64::from(is_lossy)) {
            let cas = set(&engine, number, round);
            assert!(cas > cas_max, "a CAS unique was used again");
            if number.is_multiple_of(9) {
                engine.entry(engine.hash(&key(number)), &key(number), 5).remove();
            }
        }
        cas_max = set(&engine, 1, round);
        engine.check().unwrap();
        let before = all(&engine, 6000);
        drop(engine);
        let (engine, opening) = Engine::<M, Crcw>::open(&config).unwrap();
        assert!(
            matches!(opening, Opening::Repaired { dropped, .. } if is_lossy || dropped == 0),
            "{opening}"
        );
        assert!(all(&engine, 6000) == before);
        engine.check().unwrap();
        set(&engine, 2, round);
    }
}

/// Items of other tables have uniques of theirs. What is left out above its own would be above what a table gives that
/// begins soon after, with new memory.
#[test]
fn a_repaired_table_goes_on_among_its_own_uniques() {
    const OWN: Range<u64> = 1 << 57..2 << 57;
    let place = Place::new();
    let open = |from: u64| {
        let config = StoreConfig { uniques: Some(from..OWN.end), ..place.config(16 << 20) };
        Store::<Crcw>::open(&config).unwrap().0
    };
    let store = open(OWN.start);
    store.raise_cas(OWN.start);
    for number in 0..1000 {
        set(&store, number, 0);
        let (key, theirs) = (key(1000 + number), ItemMeta { cas: Some(OWN.end + number), ..meta(number) });
        store.entry(store.hash(&key), &key, 5).insert(&[b"value"], theirs).unwrap();
    }
    drop(store);
    let later = OWN.start + (1 << 40);
    let store = open(later);
    let given: Vec<u64> = (0..1000).map(|number| set(&store, number, 1)).collect();
    assert!(given.iter().all(|unique| (later..later + 10_000).contains(unique)));
    drop(store);
    // Before what it has given: a clock was set back.
    let store = open(OWN.start);
    let again: Vec<u64> = (0..1000).map(|number| set(&store, number, 2)).collect();
    assert!(again.iter().all(|unique| (later + (1 << 32)..later + (1 << 40)).contains(unique)));
}

#[test]
fn a_store_is_repaired() {
    is_repaired::<StoreMode>(false);
}

#[test]
fn a_cache_is_repaired() {
    is_repaired::<CacheMode>(true);
}

/// The results of reopening a file many times, with a different bit flipped each time.
#[derive(Debug, Default)]
struct Damages {
    refused: u64,
    started_empty: u64,
    /// Values that were never stored.
    wrong: u64,
}

/// Flips single bits of a file, opens it after each, and checks for wrong values.
fn damage<M: Mode>(is_closed: bool, bits: impl Iterator<Item = u64>) -> Damages {
    let place = Place::new();
    let config = place.config(1 << 20);
    let (engine, _) = Engine::<M, Crcw>::open(&config).unwrap();
    for number in 0..300 {
        engine_set_small(&engine, number);
    }
    for number in (0..300).step_by(5) {
        engine.entry(engine.hash(&key(number)), &key(number), 5).remove();
    }
    if is_closed {
        engine.close().unwrap();
    } else {
        drop(engine);
    }
    let whole = std::fs::read(place.path()).unwrap();
    let mut damages = Damages::default();
    for bit in bits {
        let (mut bytes, at) = (whole.clone(), (bit / 8 % whole.len() as u64) as usize);
        bytes[at] ^= 1 << (bit % 8);
        std::fs::write(place.path(), &bytes).unwrap();
        let opened = Engine::<M, Crcw>::open(&config);
        let Ok((engine, opening)) = opened else {
            damages.refused += 1;
            let is_kept = std::fs::read(place.path()).unwrap() == bytes;
            assert!(is_kept || !is_closed, "bit {bit}: a refusal changed the file");
            continue;
        };
        damages.started_empty +=
            u64::from(!matches!(opening, Opening::Warm { .. } | Opening::Repaired { .. }));
        engine.check().unwrap_or_else(|error| panic!("bit {bit}, {opening}: {error}"));
        for number in 0..300 {
            let Some((value, ..)) = get(&engine, number, 6) else { continue };
            let expected = small(number);
            damages.wrong += u64::from(value != expected);
            // Only bytes of a value may differ, and only in a table that was not closed.
            let differing: u32 = value.iter().zip(&expected).map(|(a, b)| (a ^ b).count_ones()).sum();
            assert!(value.len() == expected.len() && differing <= 1, "bit {bit}: {number}");
        }
        for number in 0..300 {
            engine_set_small(&engine, number);
        }
        engine.check().unwrap_or_else(|error| panic!("bit {bit}, {opening}, later: {error}"));
    }
    damages
}

fn small(number: u64) -> Vec<u8> {
    let len = [0, 1, 8, 100, 700][number as usize % 5];
    (0..len).map(|at| (number * 31 + at) as u8).collect()
}

fn engine_set_small<M: Mode>(engine: &Engine<M, Crcw>, number: u64) -> bool {
    let key = key(number);
    engine.entry(engine.hash(&key), &key, 5).insert(&[&small(number)], ItemMeta::default()).is_ok()
}

/// Pseudorandom bit positions in a file of `bytes` bytes.
fn bits(bytes: u64, count: u64) -> impl Iterator<Item = u64> {
    (1..=count).map(move |number| number.wrapping_mul(0x9e37_79b9_7f4a_7c15) % (bytes * 8))
}

#[test]
fn a_closed_store_is_refused_or_whole_whatever_bit_is_wrong() {
    let tables = damage::<StoreMode>(true, bits(16 << 10, 200));
    assert!(tables.refused == 200 && tables.wrong == 0, "{tables:?}");
    let anywhere = damage::<StoreMode>(true, bits(2 << 20, 400));
    assert!(anywhere.refused > 0 && anywhere.started_empty == 0 && anywhere.wrong == 0, "{anywhere:?}");
}

#[test]
fn a_closed_cache_serves_nothing_wrong_whatever_bit_is_wrong() {
    let tables = damage::<CacheMode>(true, bits(16 << 10, 200));
    assert!(tables.refused + tables.started_empty == 200 && tables.wrong == 0, "{tables:?}");
    let anywhere = damage::<CacheMode>(true, bits(2 << 20, 400));
    assert!(anywhere.started_empty > 0 && anywhere.wrong == 0, "{anywhere:?}");
}

#[test]
fn damage_to_what_was_not_closed_changes_bytes_of_a_value_at_most() {
    damage::<StoreMode>(false, bits(1 << 20, 400));
    damage::<CacheMode>(false, bits(1 << 20, 400));
}
