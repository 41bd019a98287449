//! A candidate found in an early stage of a burst is confirmed before use, even in access modes without
//! versions that would show a change.

use minos_base::{KeyHash, seeded_stream};
use minos_engine::{
    Access, Cache, Crcw, Crew, Engine, Erew, Eviction, Get, ItemMeta, Mode, Put, Store, StoreConfig,
};
use rand::RngExt;
use std::thread;

/// More keys than fit into memory.
const KEYS: u64 = 4000;

/// Deletes or replaces keys between the stages of their lookup.
fn changes_between_the_stages_show<M: Mode, A: Access>() {
    let table = Engine::<M, A>::create(&StoreConfig::new(1 << 20)).unwrap();
    let key = b"key".as_slice();
    let hash = table.hash(key);
    let get = Get { hash, key };
    let set = |value: &[u8]| table.entry(hash, key, 2).insert(&[value], ItemMeta::default()).unwrap();
    let read = |staged| {
        table.read_staged(&staged, &get, 2, |item| {
            let mut value = Vec::new();
            item.copy_value_to(&mut value);
            value
        })
    };
    set(b"short");
    let staged = table.stage(hash);
    assert_eq!(read(staged).as_deref(), Some(b"short".as_slice()));
    set(&[7; 2000]);
    assert_eq!(read(staged).as_deref(), Some([7; 2000].as_slice()));
    let staged = table.stage(hash);
    table.entry(hash, key, 2).remove();
    assert_eq!(read(staged), None);
}

#[test]
fn changes_between_the_stages_show_in_every_mode() {
    changes_between_the_stages_show::<minos_engine::StoreMode, Crcw>();
    changes_between_the_stages_show::<minos_engine::StoreMode, Erew>();
    changes_between_the_stages_show::<minos_engine::CacheMode, Crcw>();
    changes_between_the_stages_show::<minos_engine::CacheMode, Erew>();
}

/// Stores values at the places that a stage found for their keys, unless these are out of date. Each store
/// must replace the item's whole state.
fn a_staged_store_is_a_store<M: Mode, A: Access>() {
    let table = Engine::<M, A>::create(&StoreConfig::new(1 << 20)).unwrap();
    let key = b"key".as_slice();
    let hash = table.hash(key);
    let set = |value: &[u8], expiry| {
        table.entry(hash, key, 2).insert(&[value], ItemMeta { expiry, ..Default::default() }).unwrap();
    };
    let mut last = 0;
    let mut put = |change: &dyn Fn(), value: &[u8], now| {
        let staged = table.stage(hash);
        change();
        let stored = table.stats().items_stored;
        let meta = ItemMeta { flags: 5, ..Default::default() };
        let cas = table.put_staged(&staged, &Put { hash, key, value, meta }, now).unwrap();
        assert!(cas > last, "{cas} after {last}");
        last = cas;
        {
            let entry = table.entry(hash, key, now);
            let item = entry.item().unwrap();
            assert_eq!((item.value(), item.flags(), item.expiry(), item.cas()), (value, 5, 0, cas));
        }
        let stats = table.stats();
        assert_eq!((stats.items, stats.value_bytes), (1, value.len() as u64));
        assert_eq!(stats.items_stored, stored + 1);
    };
    put(&|| (), b"new", 2);
    put(&|| (), b"old", 2);
    put(&|| (), b"longer", 2);
    put(&|| set(b"as long", 0), b"a value", 2);
    put(&|| set(&[1; 2000], 0), b"a value", 2);
    put(&|| set(b"expired", 3), b"a value", 3);
    put(&|| assert!(table.entry(hash, key, 2).remove()), b"a value", 2);
    put(&|| table.flush(), b"a value", 2);
    table.check().unwrap();
}

#[test]
fn a_staged_store_is_a_store_in_every_mode() {
    a_staged_store_is_a_store::<minos_engine::StoreMode, Crcw>();
    a_staged_store_is_a_store::<minos_engine::StoreMode, Erew>();
    a_staged_store_is_a_store::<minos_engine::CacheMode, Crcw>();
    a_staged_store_is_a_store::<minos_engine::CacheMode, Erew>();
}

/// The flags of an item, derived from its key, so that another item's header is detected.
fn flags_of(key: u64) -> u32 {
    (key as u32).wrapping_mul(0x9e37_79b9) | 1
}

/// Reads in bursts move items to the tail, which evicts and overwrites others of the same burst.
#[test]
fn what_a_burst_evicts_is_not_read_by_it() {
    let config = StoreConfig {
        eviction: Eviction::Lru,
        partitions: Some(1),
        large_bytes_min: Some(0),
        ..StoreConfig::new(1 << 18)
    };
    let cache: Cache<Erew> = Cache::create(&config).unwrap();
    cache.take_up(0);
    let mut random = seeded_stream(31, 0);
    let mut hits = 0;
    for _ in 0..20_000 {
        let keys: [_; 32] = std::array::from_fn(|_| random.random_range(0..KEYS).to_le_bytes());
        let gets: Vec<_> = keys.iter().map(|key| Get { hash: cache.hash(key), key }).collect();
        let mut missing = Vec::new();
        cache.get_many(&gets, 3, |at, item| {
            let number = u64::from_le_bytes(keys[at]);
            let Some(item) = item else { return missing.push(number) };
            hits += 1;
            assert_eq!((item.flags(), item.expiry()), (flags_of(number), 0), "key {number}");
            assert_eq!(item.value_bytes() as u64, number % 40);
        });
        for number in missing {
            let meta = ItemMeta { flags: flags_of(number), ..Default::default() };
            let (key, value) = (number.to_le_bytes(), vec![number as u8; (number % 40) as usize]);
            cache.entry(cache.hash(&key), &key, 2).insert(&[&value], meta).unwrap();
        }
    }
    let stats = cache.stats();
    assert!(hits > 1000 && stats.reinserted > 100 && stats.evictions_log > 1000, "{hits} hits, {stats:?}");
    cache.check().unwrap();
}

/// A table of two owners, a key, and the hash of a key in the other one's partitions.
fn two_owners<A: Access>() -> (Store<A>, &'static [u8], KeyHash) {
    let table = Store::create(&StoreConfig { owners: 2, ..StoreConfig::new(64 << 20) }).unwrap();
    let key = b"key".as_slice();
    let owner = table.owner_of(table.hash(key));
    let mut hashes = (0..100u32).map(|number| table.hash(&number.to_le_bytes()));
    let other = hashes.find(|hash| table.owner_of(*hash) != owner).unwrap();
    drop(hashes);
    (table, key, other)
}

#[test]
fn what_is_staged_for_another_hash_is_not_written() {
    let (table, key, other) = two_owners::<Crcw>();
    let (hash, meta) = (table.hash(key), ItemMeta::default());
    table.entry(hash, key, 1).insert(&[b"value"], meta).unwrap();
    let staged = table.stage(hash);
    let entry = table.entry(hash, key, 1);
    let item = entry.item().unwrap();
    table.put_staged(&staged, &Put { hash: other, key, value: b"other", meta }, 1).unwrap();
    // It is lent.
    assert_eq!(item.value(), b"value");
}

#[test]
fn a_read_of_what_is_staged_for_another_hash_is_not_recorded() {
    let (table, key, other) = two_owners::<Crew>();
    let hash = table.hash(key);
    let store = || table.entry(hash, key, 1).insert(&[b"value"], ItemMeta::default()).unwrap();
    thread::scope(|scope| scope.spawn(store).join()).unwrap();
    // As the owner of that one, not of the item's partition.
    table.take_up(table.owner_of(other));
    table.read_staged(&table.stage(hash), &Get { hash: other, key }, 1, |_| ());
    assert_eq!(table.read(hash, key, 1, |item| item.was_fetched()), Some(false));
}
