//! Compares random operations on a cache with a model that allows only losses explained by evictions.

mod driver;
mod model;
mod ops;

use driver::Driver;
use model::{Model, Order, Written};
use ops::{KEYS, KEYS_END, Op, key_bytes, ops, pattern};

use minos_engine::position::Narrow;
use minos_engine::{
    Access, CacheMode, Crcw, Crew, Erew, Eviction, ItemMeta, Mode, Pinned, StoreConfig, StoreMode,
};
use proptest::prelude::*;

struct Held<M: Mode, A: Access> {
    pinned: Pinned<M, A>,
    value: Vec<u8>,
}

struct Pair<M: Mode, A: Access> {
    cache: Driver<M, A>,
    model: Model,
    held: Vec<Held<M, A>>,
    now: u32,
    step: u64,
}

/// Fills a tiny cache several times over with keys outside the model, because a log that has never evicted
/// moves no items.
fn evict_once<M: Mode, A: Access>(cache: &Driver<M, A>) {
    for key in KEYS_END..KEYS_END + 8000 {
        cache.set(&key_bytes(key), &[&[0; 400]], ItemMeta::default(), 1);
    }
}

impl<M: Mode, A: Access> Pair<M, A> {
    fn new(config: &StoreConfig, order: Order) -> Self {
        let cache = Driver::create(config);
        if order == Order::Used {
            evict_once(&cache);
        }
        Self { cache, model: Model::new(order), held: vec![], now: 5, step: 0 }
    }

    fn expiry(&self, ttl: u32) -> u32 {
        if ttl == 0 { 0 } else { self.now + ttl }
    }

    fn apply(&mut self, op: &Op) -> Result<(), String> {
        self.step += 1;
        match *op {
            Op::Get { key } => self.get(key)?,
            Op::Set { key, len, ttl } => self.set(key, len, ttl)?,
            Op::SetReserved { key, len } => self.set_reserved(key, len)?,
            Op::Delete { key } => {
                let was_there = self.cache.delete(&key_bytes(key), self.now);
                self.found(key, was_there)?;
                self.model.delete(key);
            }
            Op::Touch { key, ttl } => {
                let expiry = self.expiry(ttl);
                let was_there = self.cache.touch(&key_bytes(key), expiry, self.now);
                self.found(key, was_there)?;
                self.model.amend(key, |written| written.expiry = expiry);
            }
            Op::Overwrite { key, at, len } => self.overwrite(key, at, len)?,
            Op::Append { key, len } => self.append(key, len)?,
            Op::Pin { key } => self.pin(key)?,
            Op::Unpin { at } if !self.held.is_empty() => {
                drop(self.held.swap_remove(at % self.held.len()));
            }
            Op::Unpin { .. } => {}
            Op::Fill { from, count, len } => {
                for key in from..from.saturating_add(count).min(KEYS_END) {
                    self.set(key, len, 0)?;
                }
            }
            Op::Sweep { buckets } => self.cache.sweep(buckets, self.now),
            Op::Flush => {
                self.cache.flush();
                self.model.flush();
            }
            Op::Pass { seconds } => {
                self.now += seconds;
                self.model.expire(self.now);
            }
        }
        Ok(())
    }

    /// Checks an operation's report of an item under the key.
    fn found(&mut self, key: u16, was_there: bool) -> Result<(), String> {
        match (was_there, self.model.expected(key).is_some()) {
            (true, false) => Err(format!("key {key} must not be there")),
            (false, true) => {
                self.model.lose(key);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn get(&mut self, key: u16) -> Result<(), String> {
        let found = self.cache.get(&key_bytes(key), self.now);
        self.model.read(key, found.as_ref())
    }

    fn set(&mut self, key: u16, len: usize, ttl: u32) -> Result<(), String> {
        let value = pattern(self.step ^ u64::from(key) << 32, len);
        let (flags, expiry) = (self.step as u32, self.expiry(ttl));
        let meta = ItemMeta { flags, expiry, ..ItemMeta::default() };
        let (first, second) = value.split_at(len / 3);
        let is_stored = self.cache.set(&key_bytes(key), &[first, second], meta, self.now);
        self.stored(key, is_stored, Written { value, flags, expiry })
    }

    fn set_reserved(&mut self, key: u16, len: usize) -> Result<(), String> {
        let value = pattern(self.step ^ u64::from(key) << 32, len);
        let is_stored = self.cache.set_reserved(&key_bytes(key), &value, ItemMeta::default(), self.now);
        self.stored(key, is_stored, Written { value, flags: 0, expiry: 0 })
    }

    fn stored(&mut self, key: u16, is_stored: bool, written: Written) -> Result<(), String> {
        if !is_stored {
            // Refused: the old item is still there, or was evicted to make room.
            return self.get(key);
        }
        self.model.write(key, self.cache.partition(&key_bytes(key)), written);
        Ok(())
    }

    fn overwrite(&mut self, key: u16, at: usize, len: usize) -> Result<(), String> {
        let new = pattern(self.step, len);
        if !self.cache.overwrite(&key_bytes(key), at, &new, self.now) {
            return self.get(key);
        }
        let fits = self.model.expected(key).is_some_and(|written| at + len <= written.value.len());
        self.model.amend(key, |written| {
            if let Some(part) = written.value.get_mut(at..at + len) {
                part.copy_from_slice(&new);
            }
        });
        if fits { Ok(()) } else { Err(format!("key {key} was written where there is nothing")) }
    }

    fn append(&mut self, key: u16, len: usize) -> Result<(), String> {
        let extra = pattern(self.step, len);
        if !self.cache.append(&key_bytes(key), &extra, self.now) {
            return self.get(key);
        }
        self.found(key, true)?;
        self.model.amend(key, |written| written.value.extend_from_slice(&extra));
        Ok(())
    }

    fn pin(&mut self, key: u16) -> Result<(), String> {
        let pinned = self.cache.pin(&key_bytes(key), self.now);
        self.found(key, pinned.is_some())?;
        // A pin is an access, which may move the item.
        self.model.amend(key, |_| ());
        let value = self.model.expected(key).map(|written| written.value.clone());
        self.held.extend(pinned.zip(value).map(|(pinned, value)| Held { pinned, value }));
        Ok(())
    }

    /// Reads all keys and checks that evictions explain the losses.
    fn compare(&mut self) -> Result<(), String> {
        self.model.newest_first(KEYS_END).into_iter().try_for_each(|key| self.get(key))?;
        if self.held.iter().any(|held| held.pinned.value() != held.value) {
            return Err("a held value has changed".to_owned());
        }
        self.cache.check()?;
        self.model.settle(self.cache.evictions())
    }

    fn run(&mut self, ops: &[Op]) -> Result<(), String> {
        for op in ops {
            self.apply(op).map_err(|error| format!("{error}, by {op:?}"))?;
            if self.step.is_multiple_of(16) {
                self.compare()?;
            }
        }
        self.compare()
    }
}

fn run<M: Mode, A: Access>(
    config: &StoreConfig,
    order: Order,
    ops: &[Op],
) -> Result<Pair<M, A>, TestCaseError> {
    let mut pair = Pair::new(config, order);
    let case = || format!("{} {:?} {}", M::NAME, config.eviction, A::NAME);
    pair.run(ops).map_err(|error| TestCaseError::fail(format!("{}: {error}", case())))?;
    Ok(pair)
}

/// Runs all operations on a cache in each access mode.
fn run_all(config: &StoreConfig, order: Order, ops: &[Op]) -> Result<(), TestCaseError> {
    run::<CacheMode, Erew>(config, order, ops)?;
    run::<CacheMode, Crew>(config, order, ops)?;
    run::<CacheMode, Crcw>(config, order, ops)?;
    Ok(())
}

fn policies() -> [(Eviction, Order); 3] {
    [(Eviction::Fifo, Order::Appended), (Eviction::ApproxLru, Order::Any), (Eviction::Lru, Order::Used)]
}

/// A cache whose log wraps around many times.
fn tiny(eviction: Eviction, partitions: u32) -> StoreConfig {
    let large_bytes_min = Some(256 << 10);
    StoreConfig { partitions: Some(partitions), eviction, large_bytes_min, ..StoreConfig::new(1 << 20) }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 16, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn with_enough_memory_only_full_buckets_lose(ops in ops()) {
        let config = StoreConfig { partitions: Some(4), ..StoreConfig::new(64 << 20) };
        let evictions = [
            run::<CacheMode, Erew>(&config, Order::Any, &ops)?.cache.evictions().at_head,
            run::<CacheMode, Crew>(&config, Order::Any, &ops)?.cache.evictions().at_head,
            run::<CacheMode, Crcw>(&config, Order::Any, &ops)?.cache.evictions().at_head,
        ];
        prop_assert_eq!(evictions, [0; 3]);
    }

    #[test]
    fn a_tiny_cache_loses_the_oldest(ops in ops()) {
        for (eviction, order) in policies() {
            run_all(&tiny(eviction, 1), order, &ops)?;
        }
    }

    #[test]
    fn partitions_share_the_memory(ops in ops()) {
        for (eviction, order) in policies() {
            run_all(&tiny(eviction, 4), order, &ops)?;
        }
    }

    #[test]
    fn positions_come_round(ops in ops()) {
        for (eviction, order) in policies() {
            let mut pair = Pair::<CacheMode<Narrow>, Crcw>::new(&tiny(eviction, 1), order);
            // Each iteration appends more than the 8 MiB after which positions repeat.
            for _ in 0..3 {
                pair.run(&ops).map_err(|error| TestCaseError::fail(format!("{eviction:?}: {error}")))?;
                (0..3).for_each(|_| evict_once(&pair.cache));
            }
            pair.compare().map_err(TestCaseError::fail)?;
        }
    }

    #[test]
    fn colliding_hashes_are_told_apart_by_their_keys(ops in ops()) {
        // One tag, and four buckets for all keys: most of them evict each other.
        let config = StoreConfig { hash_mask: 0x3_0000, ..tiny(Eviction::Fifo, 1) };
        run_all(&config, Order::Appended, &ops)?;
    }

    #[test]
    fn a_store_loses_nothing_in_any_access_mode(ops in ops()) {
        for memory_bytes in [256 << 10, 16 << 20] {
            let config = StoreConfig { partitions: Some(1), ..StoreConfig::new(memory_bytes) };
            prop_assert_eq!(run::<StoreMode, Erew>(&config, Order::Any, &ops)?.model.lost, 0);
            prop_assert_eq!(run::<StoreMode, Crew>(&config, Order::Any, &ops)?.model.lost, 0);
        }
    }
}

/// Fills a cache several times over while one key is read repeatedly; returns true if that key is still there
/// at the end.
fn keeps_what_is_asked_for(eviction: Eviction, order: Order) -> Result<bool, String> {
    let mut pair = Pair::<CacheMode, Crcw>::new(&tiny(eviction, 1), order);
    evict_once(&pair.cache);
    pair.set(0, 100, 0)?;
    for (round, from) in (KEYS..KEYS_END).step_by(50).enumerate() {
        pair.apply(&Op::Fill { from, count: 50, len: 900 })?;
        pair.get(0)?;
        // Reading all keys moves half of the log at once, and may evict the key.
        if order != Order::Any && round.is_multiple_of(4) {
            pair.compare()?;
        }
    }
    Ok(pair.model.expected(0).is_some())
}

#[test]
fn what_is_asked_for_stays_unless_first_in_is_first_out() {
    assert_eq!(keeps_what_is_asked_for(Eviction::Fifo, Order::Appended), Ok(false));
    assert_eq!(keeps_what_is_asked_for(Eviction::ApproxLru, Order::Any), Ok(true));
    assert_eq!(keeps_what_is_asked_for(Eviction::Lru, Order::Used), Ok(true));
}

#[test]
fn control_another_order_is_found_out() {
    assert!(keeps_what_is_asked_for(Eviction::Fifo, Order::Used).is_err());
    assert!(keeps_what_is_asked_for(Eviction::Lru, Order::Appended).is_err());
}
