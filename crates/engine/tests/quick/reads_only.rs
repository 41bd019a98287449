//! A cache that is only read still moves and evicts items, until the positions of its logs wrap around.

use crate::common::value;
use minos_engine::{
    Access, CacheMode, Crcw, Engine, Erew, Eviction, ItemMeta, StoreConfig, position::Narrow,
};

/// Twice the keys that fit into memory.
const KEYS: u64 = 10_000;
const HOT_KEYS: usize = 1000;
const VALUE_WORDS: u64 = 16;
/// Positions have 20 bits; this many words wrap them around several times.
const MOVED_WORDS_MIN: u64 = 4 << 20;

fn value_of(key: u64) -> Vec<u8> {
    key.to_le_bytes().repeat(VALUE_WORDS as usize)
}

fn reads_alone_keep_the_index_in_order<A: Access>() {
    let config = StoreConfig {
        eviction: Eviction::Lru,
        partitions: Some(1),
        large_bytes_min: Some(0),
        ..StoreConfig::new(1 << 20)
    };
    let cache = Engine::<CacheMode<Narrow>, A>::create(&config).unwrap();
    for number in 0..KEYS {
        let (key, value) = (number.to_le_bytes(), value_of(number));
        cache.entry(cache.hash(&key), &key, 2).insert(&[&value], ItemMeta::default()).unwrap();
    }
    // The hot items fill several segments, so that each read finds its item outside the newest segment, and
    // not yet evicted.
    let is_there = |key: &u64| {
        let key = key.to_le_bytes();
        cache.read(cache.hash(&key), &key, 2, |_| ()).is_some()
    };
    let hot: Vec<_> = (0..KEYS).filter(is_there).take(HOT_KEYS).collect();
    assert!(hot.len() == HOT_KEYS, "{} items", hot.len());
    let rounds = MOVED_WORDS_MIN / (HOT_KEYS as u64 * VALUE_WORDS);
    for round in 0..rounds {
        for &number in &hot {
            let key = number.to_le_bytes();
            assert!(value(&cache, &key, 2).is_some_and(|value| value == value_of(number)), "key {number}");
        }
        if round % 8 == 0 {
            cache.check().unwrap();
        }
    }
    let stats = cache.stats();
    assert!(stats.reinserted >= (rounds - 1) * HOT_KEYS as u64, "{stats:?}");
}

#[test]
fn reads_alone_keep_the_index_in_order_in_crcw() {
    reads_alone_keep_the_index_in_order::<Crcw>();
}

#[test]
fn reads_alone_keep_the_index_in_order_in_erew() {
    reads_alone_keep_the_index_in_order::<Erew>();
}
