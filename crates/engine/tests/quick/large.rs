//! Large values of a cache: what a store of one may cost others.

use crate::common::{pattern, value};
use minos_engine::{Cache, ItemMeta, OutOfMemory, StoreConfig};
use std::{ops::Range, sync::Arc};

const NOW: u32 = 5;

/// Bytes of most of the large values.
const LARGE_BYTES: usize = 50_000;

fn cache(memory_bytes: u64, reserve_bytes: Option<u64>) -> Arc<Cache> {
    let config = StoreConfig {
        partitions: Some(2),
        large_bytes_min: reserve_bytes,
        value_bytes_max: 4 << 20,
        ..StoreConfig::new(memory_bytes)
    };
    Arc::new(Cache::create(&config).unwrap())
}

fn put(cache: &Cache, key: &[u8], value_bytes: usize) -> Result<u64, OutOfMemory> {
    let value = pattern(value_bytes as u64, value_bytes);
    cache.entry(cache.hash(key), key, NOW).insert(&[&value], ItemMeta::default())
}

fn large_key(number: usize) -> Vec<u8> {
    format!("large{number}").into_bytes()
}

fn put_large(cache: &Cache, numbers: Range<usize>) {
    numbers.for_each(|number| _ = put(cache, &large_key(number), LARGE_BYTES).unwrap());
}

/// How many of these large values are there.
fn large_there(cache: &Cache, numbers: Range<usize>) -> usize {
    numbers.filter(|number| value(cache, &large_key(*number), NOW).is_some()).count()
}

/// Stores small items of so many bytes in all.
fn put_small(cache: &Cache, bytes: u64) {
    for number in 0..bytes / 1_000 {
        put(cache, &number.to_le_bytes(), 1_000).unwrap();
    }
}

fn sweep(cache: &Cache, slices: usize) {
    for _ in 0..slices {
        (0..cache.partitions()).for_each(|partition| _ = cache.sweep(partition, 16, NOW));
    }
}

fn used_bytes(cache: &Cache) -> u64 {
    cache.stats().used_bytes
}

#[test]
fn a_lower_limit_leaves_room_for_large_values() {
    let cache = cache(64 << 20, None);
    put_small(&cache, 100 << 20);
    put_large(&cache, 0..50);
    assert_eq!(large_there(&cache, 0..50), 50);
    assert!(cache.set_memory_limit(32 << 20));
    // The logs have more than the limit: evicting large values would not help.
    assert!(put(&cache, b"refused", LARGE_BYTES).is_err());
    assert_eq!(large_there(&cache, 0..50), 50);
    sweep(&cache, 500);
    assert!(used_bytes(&cache) <= 32 << 20, "{}", used_bytes(&cache));
    // Small values and large ones come and go, and neither takes the others' room.
    for round in 1..4 {
        put_small(&cache, 50 << 20);
        put_large(&cache, round * 100..round * 100 + 100);
        assert!(large_there(&cache, round * 100..round * 100 + 100) > 50);
        assert!(used_bytes(&cache) <= 32 << 20, "{}", used_bytes(&cache));
        assert!(cache.stats().items > 10_000, "{:?}", cache.stats());
    }
    cache.check().unwrap();
    assert!(cache.set_memory_limit(64 << 20));
    put_small(&cache, 100 << 20);
    assert!(cache.stats().items > 40_000, "{:?}", cache.stats());
    cache.check().unwrap();
}

#[test]
fn a_limit_that_was_low_before_leaves_room_for_large_values() {
    let cache = cache(64 << 20, None);
    assert!(cache.set_memory_limit(16 << 20));
    put_small(&cache, 50 << 20);
    put_large(&cache, 0..100);
    assert!(large_there(&cache, 0..100) > 50);
    cache.check().unwrap();
}

#[test]
fn large_values_give_way_below_a_lower_limit() {
    let cache = cache(64 << 20, None);
    put_large(&cache, 0..1_000);
    assert!(large_there(&cache, 0..1_000) > 900);
    assert!(cache.set_memory_limit(16 << 20));
    sweep(&cache, 2_000);
    // Those outside their reserve are gone, so that small items have a share.
    put_small(&cache, 50 << 20);
    assert!(cache.stats().items > 5_000, "{:?}", cache.stats());
    put_large(&cache, 1_000..1_010);
    assert_eq!(large_there(&cache, 1_000..1_010), 10);
    cache.check().unwrap();
}

#[test]
fn one_store_does_not_give_back_all_that_is_beyond_a_lower_limit() {
    let cache = cache(64 << 20, None);
    put_large(&cache, 0..1_000);
    assert!(cache.set_memory_limit(16 << 20));
    let mut evicted = 0;
    for number in 0..20_000u64 {
        put(&cache, &number.to_le_bytes(), 1_000).unwrap();
        let before = std::mem::replace(&mut evicted, cache.stats().evictions_large);
        assert!(evicted - before <= 50, "{} large values, for one small", evicted - before);
        if number % 20 == 0 {
            sweep(&cache, 1);
        }
    }
    assert!(used_bytes(&cache) <= 16 << 20, "{}", used_bytes(&cache));
    assert!(cache.stats().items > 5_000, "{:?}", cache.stats());
    cache.check().unwrap();
}

#[test]
fn a_value_that_no_eviction_makes_room_for_costs_nothing() {
    let cache = cache(64 << 20, Some(1 << 20));
    put_small(&cache, 100 << 20);
    put_large(&cache, 0..10);
    assert!(put(&cache, b"huge", 3 << 20).is_err());
    assert_eq!(large_there(&cache, 0..10), 10);
    cache.check().unwrap();
}

#[test]
fn a_value_that_pins_keep_out_costs_a_few_times_its_size() {
    let cache = cache(64 << 20, Some(16 << 20));
    put_small(&cache, 100 << 20);
    put_large(&cache, 0..400);
    let pinned = (0..400).step_by(10).map(large_key);
    let pins: Vec<_> = pinned.filter_map(|key| cache.pin(cache.hash(&key), &key, NOW)).collect();
    assert!(pins.len() > 25);
    let there = large_there(&cache, 0..400);
    assert!(put(&cache, b"kept out", 1 << 20).is_err());
    let lost = there - large_there(&cache, 0..400);
    assert!(lost * LARGE_BYTES <= 5 << 20, "{lost} values are lost");
    drop(pins);
    // Nothing is in its way now, however many values that takes.
    put(&cache, b"kept out", 1 << 20).unwrap();
    cache.check().unwrap();
}
