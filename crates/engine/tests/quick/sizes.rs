//! Tables of all sizes: from 1 MiB up, for millions of tiny items or one
//! huge one, in one partition or 65 536.
//!
//! Tests that take gigabytes run with `cargo test -p minos-engine --test
//! quick sizes -- --ignored --test-threads=1`.

use minos_engine::{
    Access, Backing, Cache, CacheMode, Crcw, CreateError, Engine, Erew, Get, ItemMeta, Mode, OutOfMemory,
    Put, Store, StoreConfig, StoreMode,
};
use std::sync::Arc;

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;
const NOW: u32 = 2;
const BURST: u64 = 1 << 10;

fn table<M: Mode, A: Access>(config: StoreConfig) -> Result<Engine<M, A>, CreateError> {
    // Small pages, because these tables touch only a part of their memory.
    let table = Engine::create(&StoreConfig { backing: Backing::SmallPages, ..config })?;
    table.take_up(0);
    Ok(table)
}

fn value_of(key: u64, bytes: usize) -> Vec<u8> {
    vec![key.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes()[7]; bytes]
}

/// Stores items of `value_bytes` bytes under the keys below `keys`; returns how many the table took.
fn fill<M: Mode, A: Access>(table: &Engine<M, A>, keys: u64, value_bytes: usize) -> u64 {
    let mut stored = 0;
    for first in (0..keys).step_by(BURST as usize) {
        let items: Vec<_> = (first..keys.min(first + BURST))
            .map(|key| (key.to_le_bytes(), value_of(key, value_bytes)))
            .collect();
        let puts: Vec<_> = items
            .iter()
            .map(|(key, value)| Put { hash: table.hash(key), key, value, meta: ItemMeta::default() })
            .collect();
        table.put_many(&puts, NOW, |_, result| stored += u64::from(result.is_ok()));
    }
    stored
}

/// The number of these keys found, each with its value.
fn count<M: Mode, A: Access>(table: &Engine<M, A>, keys: u64, value_bytes: usize) -> u64 {
    let mut found = 0;
    let mut value = Vec::new();
    for first in (0..keys).step_by(BURST as usize) {
        let items: Vec<_> = (first..keys.min(first + BURST)).map(u64::to_le_bytes).collect();
        let gets: Vec<_> = items.iter().map(|key| Get { hash: table.hash(key), key }).collect();
        table.get_many(&gets, NOW, |at, item| {
            let Some(item) = item else { return };
            value.clear();
            item.copy_value_to(&mut value);
            assert_eq!(value, value_of(first + at as u64, value_bytes), "key {}", first + at as u64);
            found += 1;
        });
    }
    found
}

/// Writes twice as much as fits: a store refuses the rest, a cache evicts.
fn is_filled<M: Mode, A: Access>(memory_bytes: u64) {
    // Headers and index take most of a table of tiny items; small caches also have a reserve of one half.
    for (value_bytes, share_min) in [(1, 0.03), (100, 0.15), (3000, 0.2)] {
        let table =
            table::<M, A>(StoreConfig { value_bytes_max: MIB, ..StoreConfig::new(memory_bytes) }).unwrap();
        let keys = 2 * memory_bytes / (value_bytes as u64 + 40);
        let stored = fill(&table, keys, value_bytes);
        let found = count(&table, keys, value_bytes);
        let stats = table.stats();
        assert_eq!(found, stats.items, "{memory_bytes} bytes, values of {value_bytes}: {stats:?}");
        assert_eq!(stored, stats.items + stats.evictions(), "{stats:?}");
        let share = (stats.items * (8 + value_bytes as u64)) as f64 / memory_bytes as f64;
        assert!(share > share_min, "{share}: {memory_bytes} bytes, values of {value_bytes}, {stats:?}");
        table.check().unwrap();
    }
}

#[test]
fn stores_of_every_size_fill_their_memory() {
    for memory_bytes in [MIB, MIB + 12_345 * 8, 3 * MIB, 10 * MIB] {
        is_filled::<StoreMode, Crcw>(memory_bytes);
    }
    is_filled::<StoreMode, Erew>(2 * MIB);
}

#[test]
fn caches_of_every_size_fill_their_memory() {
    for memory_bytes in [MIB, MIB + 12_345 * 8, 3 * MIB, 10 * MIB] {
        is_filled::<CacheMode, Crcw>(memory_bytes);
    }
    is_filled::<CacheMode, Erew>(2 * MIB);
}

#[test]
fn a_million_tiny_items() {
    const ITEMS: u64 = 1_000_000;
    let store: Store = table(StoreConfig::new(96 * MIB)).unwrap();
    assert_eq!((fill(&store, ITEMS, 1), count(&store, ITEMS, 1)), (ITEMS, ITEMS));
    let config = StoreConfig { large_bytes_min: Some(0), ..StoreConfig::new(128 * MIB) };
    let cache: Cache = table(config).unwrap();
    assert_eq!((fill(&cache, ITEMS, 1), count(&cache, ITEMS, 1)), (ITEMS, ITEMS), "{:?}", cache.stats());
}

#[test]
fn a_store_of_65536_partitions() {
    const ITEMS: u64 = 100_000;
    let config = StoreConfig { partitions: Some(1 << 16), ..StoreConfig::new(GIB) };
    let store: Store = table(config).unwrap();
    assert_eq!(store.partitions(), 1 << 16);
    let stored = fill(&store, ITEMS, 50);
    assert_eq!(count(&store, ITEMS, 50), stored);
    assert_eq!(stored + store.stats().out_of_memory, ITEMS);
}

#[test]
#[ignore = "takes gigabytes"]
fn a_cache_of_65536_partitions() {
    const ITEMS: u64 = 1_000_000;
    let config = StoreConfig { partitions: Some(1 << 16), ..StoreConfig::new(12 * GIB) };
    let cache: Cache = table(config).unwrap();
    assert_eq!(cache.partitions(), 1 << 16);
    assert_eq!(fill(&cache, ITEMS, 50), ITEMS);
    assert_eq!(count(&cache, ITEMS, 50) + cache.stats().evictions(), ITEMS);
}

/// Stores and reads the largest possible value in place.
fn a_value_of_a_gibibyte<M: Mode>() {
    let table: Arc<Engine<M, Crcw>> = Arc::new(table(StoreConfig::new(5 * GIB / 2)).unwrap());
    let key = b"huge".as_slice();
    let hash = table.hash(key);
    assert_eq!(fill(&table, 100_000, 100), 100_000);
    let mut reservation = table.reserve(hash, key, GIB).unwrap();
    reservation.value_mut().fill(7);
    table.entry(hash, key, NOW).commit(reservation, ItemMeta::default()).unwrap();
    let pinned = table.pin(hash, key, NOW).unwrap();
    assert_eq!(pinned.value().len() as u64, GIB);
    assert!(pinned.value().iter().all(|&byte| byte == 7));
    assert_eq!(count(&table, 100_000, 100), 100_000);
    assert_eq!(table.reserve(hash, key, GIB + 1).err(), Some(OutOfMemory));
}

#[test]
#[ignore = "takes gigabytes"]
fn a_store_holds_a_value_of_a_gibibyte() {
    a_value_of_a_gibibyte::<StoreMode>();
}

#[test]
#[ignore = "takes gigabytes"]
fn a_cache_holds_a_value_of_a_gibibyte() {
    a_value_of_a_gibibyte::<CacheMode>();
}

#[test]
fn what_is_impossible_is_said() {
    let error = |config: StoreConfig| {
        let store = table::<StoreMode, Crcw>(config.clone()).err().map(|error| error.to_string());
        let cache = table::<CacheMode, Crcw>(config).err().map(|error| error.to_string());
        assert_eq!(store, cache);
        store.unwrap()
    };
    let with = |partitions, memory_bytes| StoreConfig {
        partitions: Some(partitions),
        ..StoreConfig::new(memory_bytes)
    };
    for bytes in [0, 1, 4096, 100_000] {
        assert_eq!(error(StoreConfig::new(bytes)), format!("{bytes} bytes are too few for 1 partitions"));
    }
    assert_eq!(error(with(1 << 16, MIB)), format!("{MIB} bytes are too few for 65536 partitions"));
    for partitions in [0, 3, 1 << 17] {
        assert!(error(with(partitions, GIB)).starts_with(&format!("{partitions} partitions are not")));
    }
    assert!(error(StoreConfig::new(257 * GIB)).contains("is not possible: at most 274877906944 are"));
    assert!(matches!(
        table::<StoreMode, Crcw>(StoreConfig::new(u64::MAX)),
        Err(CreateError::TooLarge { bytes: u64::MAX })
    ));
}

/// The number of simultaneous reservations of one MiB.
fn reservations(store: &Arc<Store>) -> usize {
    let reserved =
        (0..).map(u64::to_le_bytes).map_while(|key| store.reserve(store.hash(&key), &key, MIB).ok());
    reserved.collect::<Vec<_>>().len()
}

#[test]
fn buffers_beside_the_memory_are_a_sixteenth_of_it() {
    let config = StoreConfig { value_bytes_max: 2 * MIB, ..StoreConfig::new(64 * MIB) };
    let store: Arc<Store> = Arc::new(table(config).unwrap());
    // In unused memory values are received in place.
    let at_first = reservations(&store);
    assert!(at_first > 50, "{at_first}");
    let keys = 30_000;
    assert!(fill(&store, keys, 3000) < keys);
    for key in (0..keys).map(u64::to_le_bytes) {
        store.entry(store.hash(&key), &key, NOW).remove();
    }
    let before = store.stats();
    assert_eq!((before.buffer_bytes, before.buffer_refusals), (0, 0));
    for _ in 0..2 {
        let later = reservations(&store);
        assert!((4..10).contains(&later), "{later}");
    }
    let after = store.stats();
    assert_eq!((after.buffer_bytes, after.buffer_refusals), (0, 2));
    assert_eq!(after.out_of_memory, before.out_of_memory + 2);
}

#[test]
fn a_value_larger_than_its_table_is_refused() {
    let store: Store = table(StoreConfig::new(2 * MIB)).unwrap();
    let cache: Cache = table(StoreConfig::new(2 * MIB)).unwrap();
    fill(&cache, 1000, 100);
    let (key, value) = (b"key".as_slice(), vec![0; 3 << 20]);
    assert_eq!(
        store.entry(store.hash(key), key, NOW).insert(&[&value], ItemMeta::default()),
        Err(OutOfMemory)
    );
    assert_eq!(
        cache.entry(cache.hash(key), key, NOW).insert(&[&value], ItemMeta::default()),
        Err(OutOfMemory)
    );
    assert_eq!(count(&cache, 1000, 100), 1000);
}
