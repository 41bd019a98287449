//! Keys that all hash to one chain, as an attacker who knows the hash seed can compute them.

use crate::common::value as value_of;
use minos_base::KeyHash;
use minos_engine::{
    Access, Backing, Crew, Engine, Erew, ItemMeta, Opening, OutOfMemory, Store, StoreConfig, StoreMode,
};
use std::{path::Path, sync::Arc};

/// A multiple of seven, so that the last bucket of their chain is full.
const COMPUTED_KEYS: usize = 8_001;
/// Items that fit into a chain of the default length.
const CHAIN_SLOTS: usize = 64 * 7;
/// Larger than any value read without a lock.
const LARGE_BYTES: usize = 5_000;

/// Two chains for all keys, and one tag.
fn colliding() -> StoreConfig {
    StoreConfig { partitions: Some(1), hash_mask: 0x1_0000, ..StoreConfig::new(64 << 20) }
}

/// Chains longer than any default allows, as older builds have left them.
fn unbounded() -> StoreConfig {
    StoreConfig { chain_buckets_max: usize::MAX, ..colliding() }
}

/// Keys of one of the two chains.
fn keys<A: Access>(store: &Engine<StoreMode, A>, chain: u32) -> impl Iterator<Item = [u8; 8]> {
    (0u64..).map(u64::to_le_bytes).filter(move |key| store.hash(key).bucket_bits() == chain)
}

fn insert<A: Access>(store: &Engine<StoreMode, A>, key: &[u8], value: &[u8]) -> Result<u64, OutOfMemory> {
    store.entry(store.hash(key), key, 5).insert(&[value], ItemMeta::default())
}

/// True if all kinds of reads return this value for the key.
fn is_there(store: &Arc<Store>, key: &[u8], value: &[u8]) -> bool {
    let hash: KeyHash = store.hash(key);
    let copied = value_of(store, key, 5);
    let pinned = store.pin(hash, key, 5).map(|pinned| pinned.value().to_vec());
    let taken = store.entry(hash, key, 5).item().map(|item| item.value().to_vec());
    assert!(copied == pinned && pinned == taken);
    copied.is_some_and(|copied| copied == value)
}

#[test]
fn a_chain_has_a_longest_length() {
    let store = Arc::new(Store::create(&colliding()).unwrap());
    for (round, value) in [vec![1; 8], vec![2; LARGE_BYTES]].iter().enumerate() {
        let computed: Vec<_> = keys(&store, 0).take(COMPUTED_KEYS).collect();
        let stored = computed.iter().filter(|key| insert(&store, *key, value).is_ok()).count();
        assert_eq!(stored, CHAIN_SLOTS);
        let refused = (COMPUTED_KEYS - CHAIN_SLOTS) * (round + 1);
        let stats = store.stats();
        assert_eq!((stats.chain_refusals, stats.out_of_memory), (refused as u64, refused as u64));
        let there = computed.iter().filter(|key| is_there(&store, *key, value)).count();
        assert_eq!(there, stored);
        let mut shown = 0;
        store.visit(0, 0, usize::MAX, 5, |_, _| shown += 1);
        assert_eq!(shown, stored);
        store.check().unwrap();
    }
}

#[test]
fn a_full_chain_holds_up_nobody_else() {
    let store = Arc::new(Store::create(&colliding()).unwrap());
    let computed: Vec<_> = keys(&store, 0).take(COMPUTED_KEYS).collect();
    let refused = computed.iter().filter(|key| insert(&store, *key, b"first").is_err()).count();
    assert_eq!(refused, COMPUTED_KEYS - CHAIN_SLOTS);
    for key in keys(&store, 1).take(100) {
        insert(&store, &key, b"others").unwrap();
        assert!(is_there(&store, &key, b"others"));
    }
    // Items of a full chain can be replaced, by longer values too, and a deleted item makes room.
    insert(&store, &computed[0], &[7; 1_000]).unwrap();
    assert!(is_there(&store, &computed[0], &[7; 1_000]));
    let (hash, last) = (store.hash(&computed[1]), computed[COMPUTED_KEYS - 1]);
    assert!(store.entry(hash, &computed[1], 5).remove());
    insert(&store, &last, b"last").unwrap();
    assert!(is_there(&store, &last, b"last") && value_of(&store, &computed[1], 5).is_none());
    store.check().unwrap();
}

/// As [`unbounded`], with all keys in it.
fn fill_unbounded(backing: Backing) -> Arc<Store> {
    let store = Store::create(&StoreConfig { backing, ..unbounded() }).unwrap();
    for key in keys(&store, 0).take(COMPUTED_KEYS) {
        insert(&store, &key, &key).unwrap();
    }
    Arc::new(store)
}

#[test]
fn a_longer_chain_is_walked_to_its_end() {
    let store = fill_unbounded(Backing::Auto);
    let computed: Vec<_> = keys(&store, 0).take(COMPUTED_KEYS).collect();
    assert!(some_of(&computed).all(|key| is_there(&store, key, key)));
    assert!(keys(&store, 0).skip(COMPUTED_KEYS).take(10).all(|key| !is_there(&store, &key, &key)));
    let mut shown = 0;
    store.visit(0, 0, usize::MAX, 5, |_, _| shown += 1);
    assert_eq!((shown, store.stats().read_fallbacks), (COMPUTED_KEYS, 0));
}

fn an_owner_walks_a_longer_chain_to_its_end<A: Access>() {
    let store = Store::<A>::create(&unbounded()).unwrap();
    let computed: Vec<_> = keys(&store, 0).take(COMPUTED_KEYS).collect();
    for key in &computed {
        insert(&store, key, key).unwrap();
    }
    assert!(some_of(&computed).all(|key| value_of(&store, key, 5).is_some()));
}

#[test]
fn a_longer_chain_is_walked_to_its_end_in_every_access_mode() {
    an_owner_walks_a_longer_chain_to_its_end::<Erew>();
    an_owner_walks_a_longer_chain_to_its_end::<Crew>();
}

/// The first and the last ones of a long chain, and some between.
fn some_of(computed: &[[u8; 8]]) -> impl Iterator<Item = &[u8; 8]> {
    computed.iter().take(COMPUTED_KEYS).step_by(COMPUTED_KEYS / 63)
}

fn reopened(path: &Path) -> (Arc<Store>, Opening) {
    let config = StoreConfig { backing: Backing::File(path.to_owned()), ..colliding() };
    let (store, opening) = Store::open(&config).unwrap();
    (Arc::new(store), opening)
}

/// A longer chain left by an older build is still served, and grows no further.
fn goes_on_with_a_longer_chain(store: &Arc<Store>) {
    let computed: Vec<_> = keys(store, 0).take(COMPUTED_KEYS + 1).collect();
    assert!(some_of(&computed).all(|key| is_there(store, key, key)));
    let [first, .., next] = computed[..] else { panic!("many keys") };
    assert!(insert(store, &next, b"one more").is_err() && value_of(store, &next, 5).is_none());
    insert(store, &first, &first).unwrap();
    assert!(is_there(store, &first, &first));
}

#[test]
fn a_region_with_a_longer_chain_is_opened_and_read() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("table");
    fill_unbounded(Backing::File(path.clone())).close_shared().unwrap();
    let items = COMPUTED_KEYS as u64;
    let (store, opening) = reopened(&path);
    assert_eq!(opening, Opening::Warm { items });
    goes_on_with_a_longer_chain(&store);
    // As after a kill.
    drop(store);
    let (store, opening) = reopened(&path);
    assert_eq!(opening, Opening::Repaired { items, dropped: 0 });
    goes_on_with_a_longer_chain(&store);
}
