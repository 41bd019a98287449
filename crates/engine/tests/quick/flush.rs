//! The cost of a flush does not depend on earlier flushes.

use crate::common::sweep_all;
use minos_engine::{Cache, Engine, ItemMeta, Mode, Store, StoreConfig};

const ITEMS: u32 = 20_000;
const PARTITIONS: u32 = 2;

/// A bound above the items in the chains that one flush sweeps.
const RECLAIMED_MAX: u64 = 100;

fn config() -> StoreConfig {
    StoreConfig { partitions: Some(PARTITIONS), ..StoreConfig::new(16 << 20) }
}

fn set<M: Mode>(table: &Engine<M>, key: u32) {
    let key = key.to_le_bytes();
    table.entry(table.hash(&key), &key, 5).insert(&[b"value"], ItemMeta::default()).unwrap();
}

fn has<M: Mode>(table: &Engine<M>, key: u32) -> bool {
    let key = key.to_le_bytes();
    table.read(table.hash(&key), &key, 6, |_| ()).is_some()
}

/// Flushes repeatedly, with stores in between, and counts the items that each call reclaims.
fn flush_often<M: Mode>(table: &Engine<M>) {
    (0..ITEMS).for_each(|key| set(table, key));
    for round in 0..1000 {
        set(table, ITEMS + round);
        set(table, 7);
        let before = table.stats().flushed_reclaimed;
        table.flush();
        let reclaimed = table.stats().flushed_reclaimed - before;
        assert!(reclaimed <= RECLAIMED_MAX, "flush {round} reclaimed {reclaimed} items");
        assert!(!has(table, ITEMS + round) && !has(table, 7), "{round}");
    }
    assert!((0..ITEMS + 1000).all(|key| !has(table, key)));
    set(table, 1);
    sweep_all(table, 6);
    assert!(has(table, 1) && table.stats().items == 1);
    for _ in 0..5 {
        set(table, 2);
        table.flush();
        assert!(!has(table, 1) && !has(table, 2));
    }
    sweep_all(table, 6);
    assert_eq!(table.stats().items, 0);
    table.check().unwrap();
}

#[test]
fn flushes_of_a_full_store_are_short() {
    flush_often(&Store::create(&config()).unwrap());
}

#[test]
fn flushes_of_a_full_cache_are_short() {
    flush_often(&Cache::create(&config()).unwrap());
}

#[test]
fn dead_items_are_gone_before_the_numbers_of_flushes_come_round() {
    let store = Store::create(&StoreConfig { partitions: Some(1), ..StoreConfig::new(1 << 20) }).unwrap();
    (0..1000).for_each(|key| set(&store, key));
    for flush in 0..(2 << 20) + 10 {
        if flush % 4096 == 0 {
            set(&store, 1000 + flush);
        }
        store.flush();
        // Dead items mistaken for new ones could be read.
        assert!(!has(&store, flush % 1000), "{flush}");
    }
    sweep_all(&store, 6);
    assert_eq!(store.stats().items, 0);
}
