//! Compares random sequences of all operations with a map.

use crate::common::{key_bytes, pattern, sweep_all};
use minos_engine::{Concat, ConcatError, Entry, ItemMeta, Pinned, Reservation, Side, Store, StoreConfig};
use proptest::{collection::vec, prelude::*};
use std::{collections::HashMap, sync::Arc};

/// Keys of the operations on one key; those of [`Op::Fill`] lie above.
const KEYS: u16 = 48;
const FILL_KEYS: u16 = 1500;

#[derive(Clone, Debug)]
enum Op {
    Set { key: u16, len: usize, ttl: u32 },
    Delete { key: u16 },
    Touch { key: u16, ttl: u32 },
    Overwrite { key: u16, at: usize, len: usize },
    Concat { key: u16, len: usize, side: Side },
    Pin { key: u16 },
    Unpin { at: usize },
    Reserve { key: u16, len: usize },
    Commit { at: usize },
    Abandon { at: usize },
    Fill { from: u16, count: u16 },
    Sweep { buckets: usize },
    Flush,
    Pass { seconds: u32 },
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    let key = 0..KEYS;
    // Small, about an arena's largest chunk, and large.
    let len =
        prop_oneof![6 => 0usize..200, 2 => 3900usize..4300, 2 => 7000usize..10_000, 1 => 10_000usize..60_000];
    let ttl = prop_oneof![3 => Just(0u32), 1 => 1u32..20];
    let side = prop_oneof![Just(Side::Back), Just(Side::Front)];
    let op = prop_oneof![
        12 => (key.clone(), len.clone(), ttl.clone()).prop_map(|(key, len, ttl)| Op::Set { key, len, ttl }),
        4 => key.clone().prop_map(|key| Op::Delete { key }),
        2 => (key.clone(), ttl).prop_map(|(key, ttl)| Op::Touch { key, ttl }),
        2 => (key.clone(), 0usize..100, 0usize..30).prop_map(|(key, at, len)| Op::Overwrite { key, at, len }),
        2 => (key.clone(), 0usize..5000, side).prop_map(|(key, len, side)| Op::Concat { key, len, side }),
        3 => key.clone().prop_map(|key| Op::Pin { key }),
        3 => any::<usize>().prop_map(|at| Op::Unpin { at }),
        2 => (key, len).prop_map(|(key, len)| Op::Reserve { key, len }),
        2 => any::<usize>().prop_map(|at| Op::Commit { at }),
        1 => any::<usize>().prop_map(|at| Op::Abandon { at }),
        1 => (KEYS..FILL_KEYS, 1u16..400).prop_map(|(from, count)| Op::Fill { from, count }),
        2 => (1usize..80).prop_map(|buckets| Op::Sweep { buckets }),
        1 => Just(Op::Flush),
        2 => (1u32..5).prop_map(|seconds| Op::Pass { seconds }),
    ];
    vec(op, 1..250)
}

#[derive(Clone)]
struct Expected {
    value: Vec<u8>,
    meta: ItemMeta,
    cas: u64,
}

struct Pair {
    store: Arc<Store>,
    model: HashMap<u16, Expected>,
    pins: Vec<(Pinned, Vec<u8>)>,
    reservations: Vec<(u16, Reservation, Vec<u8>)>,
    now: u32,
    step: u64,
    refused: u64,
}

impl Pair {
    fn new(config: &StoreConfig) -> Self {
        let store = Arc::new(Store::create(config).unwrap());
        Self { store, model: HashMap::new(), pins: vec![], reservations: vec![], now: 5, step: 0, refused: 0 }
    }

    fn expire(&mut self) {
        let now = self.now;
        self.model.retain(|_, item| item.meta.expiry == 0 || item.meta.expiry > now);
    }

    fn meta(&self, ttl: u32) -> ItemMeta {
        let expiry = if ttl == 0 { 0 } else { self.now + ttl };
        ItemMeta { flags: self.step as u32, expiry, ..ItemMeta::default() }
    }

    fn apply(&mut self, op: &Op) {
        self.step += 1;
        match *op {
            Op::Set { key, len, ttl } => self.set(key, len, ttl),
            Op::Delete { key } => {
                let removed = self.entry(&key_bytes(key), |entry| entry.remove());
                assert_eq!(removed, self.model.remove(&key).is_some());
            }
            Op::Touch { key, ttl } => {
                let expiry = self.meta(ttl).expiry;
                self.entry(&key_bytes(key), |entry| entry.set_expiry(expiry));
                if let Some(item) = self.model.get_mut(&key) {
                    item.meta.expiry = expiry;
                }
            }
            Op::Overwrite { key, at, len } => self.overwrite(key, at, len),
            Op::Concat { key, len, side } => self.concat(key, len, side),
            Op::Fill { from, count } => {
                for key in from..from.saturating_add(count).min(FILL_KEYS) {
                    self.set(key, 9, 0);
                }
            }
            Op::Pass { seconds } => self.now += seconds,
            Op::Sweep { buckets } => {
                for partition in 0..self.store.partitions() {
                    self.store.sweep(partition, buckets, self.now);
                }
            }
            Op::Flush => {
                self.store.flush();
                self.model.clear();
            }
            Op::Pin { .. } | Op::Unpin { .. } => self.apply_pin(op),
            Op::Reserve { .. } | Op::Commit { .. } | Op::Abandon { .. } => self.apply_reservation(op),
        }
    }

    fn apply_pin(&mut self, op: &Op) {
        match *op {
            Op::Pin { key } => {
                let bytes = key_bytes(key);
                let pinned = self.store.pin(self.store.hash(&bytes), &bytes, self.now);
                assert_eq!(pinned.is_some(), self.model.contains_key(&key));
                self.pins.extend(pinned.map(|pinned| (pinned, self.model[&key].value.clone())));
            }
            Op::Unpin { at } if !self.pins.is_empty() => drop(self.pins.swap_remove(at % self.pins.len())),
            _ => {}
        }
    }

    fn apply_reservation(&mut self, op: &Op) {
        let held = self.reservations.len();
        match *op {
            Op::Reserve { key, len } => {
                let (bytes, value) = (key_bytes(key), pattern(self.step, len));
                match self.store.reserve(self.store.hash(&bytes), &bytes, len as u64) {
                    Ok(mut reservation) => {
                        reservation.value_mut().copy_from_slice(&value);
                        self.reservations.push((key, reservation, value));
                    }
                    Err(_) => self.refused += 1,
                }
            }
            Op::Commit { at } if held > 0 => {
                let (key, reservation, value) = self.reservations.swap_remove(at % held);
                let meta = self.meta(0);
                let stored = self.entry(&key_bytes(key), |entry| entry.commit(reservation, meta));
                self.stored(key, value, meta, stored.ok());
            }
            Op::Abandon { at } if held > 0 => drop(self.reservations.swap_remove(at % held)),
            _ => {}
        }
    }

    fn entry<R>(&self, key: &[u8], f: impl FnOnce(&mut Entry<'_>) -> R) -> R {
        f(&mut self.store.entry(self.store.hash(key), key, self.now))
    }

    fn set(&mut self, key: u16, len: usize, ttl: u32) {
        let (value, meta) = (pattern(self.step ^ u64::from(key) << 32, len), self.meta(ttl));
        let (first, second) = value.split_at(len / 3);
        let stored = self.entry(&key_bytes(key), |entry| entry.insert(&[first, second], meta));
        self.stored(key, value, meta, stored.ok());
    }

    fn stored(&mut self, key: u16, value: Vec<u8>, meta: ItemMeta, cas: Option<u64>) {
        match cas {
            Some(cas) => drop(self.model.insert(key, Expected { value, meta, cas })),
            None => self.refused += 1,
        }
    }

    fn overwrite(&mut self, key: u16, at: usize, len: usize) {
        let new = pattern(self.step, len);
        let result = self.entry(&key_bytes(key), |entry| entry.overwrite_value(at, &new));
        match (self.model.get_mut(&key).filter(|item| at + len <= item.value.len()), result) {
            (Some(item), Ok(cas)) => {
                item.value[at..at + len].copy_from_slice(&new);
                item.cas = cas;
            }
            (_, Err(_)) => {}
            (None, Ok(_)) => panic!("wrote where there is nothing"),
        }
    }

    fn concat(&mut self, key: u16, len: usize, side: Side) {
        let (bytes, extra) = (key_bytes(key), pattern(self.step, len));
        let concat = Concat { side, extra: &extra, compare: None, cas: None };
        let result = self.store.concat(self.store.hash(&bytes), &bytes, self.now, &concat);
        match (self.model.get_mut(&key), result) {
            (Some(item), Ok(cas)) => {
                let old = std::mem::take(&mut item.value);
                item.value = if side == Side::Back { [old, extra].concat() } else { [extra, old].concat() };
                item.cas = cas;
            }
            (None, result) => assert_eq!(result, Err(ConcatError::Missing)),
            (Some(_), result) => assert!(matches!(result, Err(ConcatError::OutOfMemory(_))), "{result:?}"),
        }
    }

    fn compare(&self) {
        let mut value = Vec::new();
        for key in 0..FILL_KEYS {
            let bytes = key_bytes(key);
            let state = self.store.read(self.store.hash(&bytes), &bytes, self.now, |item| {
                value.clear();
                item.copy_value_to(&mut value);
                **item
            });
            let expected = self.model.get(&key);
            assert_eq!(state.is_some(), expected.is_some(), "key {key}");
            if let (Some(state), Some(expected)) = (state, expected) {
                assert!(value == expected.value, "key {key}");
                let meta = (state.flags(), state.expiry(), state.cas());
                assert_eq!(meta, (expected.meta.flags, expected.meta.expiry, expected.cas), "key {key}");
            }
        }
        for (pinned, value) in &self.pins {
            assert!(pinned.value() == value);
        }
        self.store.check().unwrap();
    }
}

fn run(config: &StoreConfig, ops: &[Op]) -> Pair {
    let mut pair = Pair::new(config);
    pair.run(ops);
    pair
}

impl Pair {
    /// Applies all operations, compares now and then, and empties the store. Returns the bytes still in use.
    fn run(&mut self, ops: &[Op]) -> u64 {
        for op in ops {
            self.apply(op);
            self.expire();
            if self.step.is_multiple_of(16) {
                self.compare();
            }
        }
        self.compare();
        self.pins.clear();
        self.reservations.clear();
        self.apply(&Op::Flush);
        sweep_all(&self.store, self.now);
        self.store.check().unwrap();
        let stats = self.store.stats();
        assert_eq!((stats.items, stats.pinned, stats.item_bytes()), (0, 0, 0));
        stats.used_bytes
    }

    /// Checks for leaks: a second run on the emptied store must not use more memory than the first.
    fn loses_nothing(&mut self, ops: &[Op]) {
        // The index never frees a bucket, and a run needs more of them if the sweeper runs later. Storing all
        // keys at once allocates all buckets that a run can need.
        self.run(&[Op::Fill { from: 0, count: FILL_KEYS }]);
        let before = self.run(ops);
        let after = self.run(ops);
        assert!(after <= before, "memory was lost: {before} {after}");
    }
}

/// One tag and four buckets for all keys.
fn colliding() -> StoreConfig {
    StoreConfig { partitions: Some(1), hash_mask: 0x3_0000, ..StoreConfig::new(16 << 20) }
}

/// On the second run more flushed items await the sweeper, and chains need more spare buckets.
#[test]
fn spare_buckets_are_no_loss() {
    let ops = [
        Op::Sweep { buckets: 32 },
        Op::Sweep { buckets: 32 },
        Op::Fill { from: 385, count: 245 },
        Op::Fill { from: 48, count: 139 },
        Op::Flush,
        Op::Sweep { buckets: 59 },
        Op::Fill { from: 610, count: 243 },
        Op::Sweep { buckets: 1 },
        Op::Fill { from: 858, count: 311 },
    ];
    run(&colliding(), &ops).loses_nothing(&ops);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    #[test]
    fn with_enough_memory_it_is_a_map(ops in ops()) {
        let config = StoreConfig { partitions: Some(4), ..StoreConfig::new(32 << 20) };
        let mut pair = run(&config, &ops);
        prop_assert_eq!(pair.refused, 0);
        pair.loses_nothing(&ops);
    }

    #[test]
    fn in_a_tiny_store_old_values_survive_refusals(ops in ops()) {
        run(&StoreConfig { partitions: Some(1), ..StoreConfig::new(256 << 10) }, &ops);
    }

    #[test]
    fn colliding_hashes_are_told_apart_by_their_keys(ops in ops()) {
        let mut pair = run(&colliding(), &ops);
        prop_assert_eq!(pair.refused, 0);
        pair.loses_nothing(&ops);
    }
}
