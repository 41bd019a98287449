//! Clients beside the thread that brings items to flash.

use minos_base::{FlashPlace, FlashSlot, KeyHash, RoughLength, seeded_stream};
use minos_engine::{
    Choice, Cold, ItemMeta, Lookup, Need, Promotion, StoreConfig, Ticket, TierConfig, Tiered, Written,
};
use rand::{RngExt, rngs::StdRng};
use std::{
    collections::{HashMap, VecDeque},
    sync::{
        Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    thread,
};

const CLIENTS: u32 = 2;
/// About four times as many as memory holds.
const KEYS: u32 = 6000;
const OPERATIONS: u32 = 30_000;
/// So that neither the clients nor the other thread is far ahead.
const OPERATIONS_A_TURN: u32 = 16;

/// A record, one in each page.
#[derive(Clone)]
struct Record {
    key: u32,
    version: u32,
    sequence: u64,
    meta: ItemMeta,
}

struct World {
    table: Tiered,
    flash: Mutex<HashMap<u32, Record>>,
    done: AtomicBool,
    /// Turns of the thread that brings items to flash.
    turns: AtomicU64,
}

fn value(key: u32, version: u32) -> Vec<u8> {
    let mut value = vec![(key ^ version) as u8; 500];
    value[..4].copy_from_slice(&key.to_le_bytes());
    value[4..8].copy_from_slice(&version.to_le_bytes());
    value
}

/// Key and version of a value, if it is one.
fn parse(value: &[u8]) -> Option<(u32, u32)> {
    let key = u32::from_le_bytes(*value.first_chunk()?);
    let version = u32::from_le_bytes(*value.get(4..)?.first_chunk()?);
    let is_whole = value.len() == 500 && value[8..].iter().all(|&byte| byte == (key ^ version) as u8);
    is_whole.then_some((key, version))
}

impl World {
    fn new(is_lossless: bool) -> Self {
        let tier = TierConfig { is_lossless, ..TierConfig::default() };
        let config = StoreConfig { partitions: Some(2), tier, ..StoreConfig::new(1 << 20) };
        Self {
            table: Tiered::create(&config).unwrap(),
            flash: Mutex::default(),
            done: AtomicBool::new(false),
            turns: AtomicU64::new(0),
        }
    }

    fn hash(&self, key: u32) -> KeyHash {
        self.table.hash(&key.to_le_bytes())
    }

    /// The version of a key, from memory or from flash, whence it comes back.
    fn get(&self, key: u32) -> Option<u32> {
        let (hash, bytes) = (self.hash(key), key.to_le_bytes());
        loop {
            match self.table.find_cold(hash, &bytes, 5) {
                Lookup::Missing => return None,
                Lookup::Hot => {
                    let mut copy = Vec::new();
                    let found = self.table.read(hash, &bytes, 5, |item| {
                        copy.clear();
                        item.copy_value_to(&mut copy);
                    });
                    if found.is_some() {
                        let (own, version) = parse(&copy).expect("a whole value");
                        assert_eq!(own, key);
                        return Some(version);
                    }
                }
                Lookup::Cold(seen) => {
                    let (slot, record) = self.winner(key, &seen)?;
                    let (value, meta) = (value(key, record.version), record.meta);
                    let cold = Cold { slot, seen: &seen, sequence: record.sequence, value: &value, meta };
                    let promoted = self.table.promote(hash, &bytes, &cold, 5);
                    assert_ne!(promoted, Ok(Promotion::Dead));
                    return Some(record.version);
                }
            }
        }
    }

    fn winner(&self, key: u32, seen: &[FlashSlot]) -> Option<(FlashSlot, Record)> {
        let flash = self.flash.lock().unwrap();
        let own = seen.iter().filter_map(|slot| Some((*slot, flash.get(&slot.page)?.clone())));
        own.filter(|(_, record)| record.key == key).max_by_key(|(_, record)| record.sequence)
    }

    /// Writes, reads and deletes its own keys; reads those of others.
    fn client(&self, number: u32, is_lossless: bool, random: &mut StdRng) {
        let mut own: HashMap<u32, u32> = HashMap::new();
        let mut seen: HashMap<u32, u32> = HashMap::new();
        for version in 1..=OPERATIONS {
            if version.is_multiple_of(OPERATIONS_A_TURN) {
                self.wait_for_a_turn();
            }
            let key = random.random_range(0..KEYS);
            if key % CLIENTS != number {
                let newest = self.get(key).unwrap_or(0);
                let last = seen.entry(key).or_default();
                assert!(newest == 0 || newest >= *last, "key {key}: {newest} after {last}");
                *last = newest.max(*last);
                continue;
            }
            let (hash, bytes) = (self.hash(key), key.to_le_bytes());
            match random.random_range(0..10u32) {
                0..4 => {
                    let value = value(key, version);
                    let stored = self.table.entry(hash, &bytes, 5).insert(&[&value], ItemMeta::default());
                    if stored.is_ok() {
                        own.insert(key, version);
                    }
                }
                4 => {
                    // What needs the old item brings it to memory first. It may have left again.
                    self.get(key);
                    let mut entry = self.table.entry(hash, &bytes, 5);
                    if entry.candidates().is_empty() {
                        entry.remove();
                        own.remove(&key);
                    }
                }
                _ => {
                    let (got, expected) = (self.get(key), own.get(&key).copied());
                    assert!(got == expected || got.is_none() && !is_lossless, "{key}: {got:?}, {expected:?}");
                }
            }
        }
    }

    fn wait_for_a_turn(&self) {
        let turns = self.turns.load(Relaxed);
        while self.turns.load(Relaxed) == turns {
            thread::yield_now();
        }
    }

    /// Brings items to flash, until all clients are done.
    fn maintain(&self, random: &mut StdRng) {
        let (mut page, mut flights) = (0, VecDeque::new());
        while !self.done.load(Relaxed) {
            for partition in 0..self.table.partitions() {
                let mut flash = self.flash.lock().unwrap();
                let mut doubts = None;
                self.table.walk_ahead(partition, 32, 5, |due| {
                    if due.need != Need::Copy {
                        let key = u32::from_le_bytes(*due.key.first_chunk().expect("a key"));
                        doubts = Some((key, due.doubts.clone()));
                        return Choice::Later;
                    }
                    let (key, version) = parse(due.value).expect("a whole value");
                    page += 1;
                    let meta = ItemMeta { cas: Some(due.state.cas()), ..ItemMeta::default() };
                    flash.insert(page, Record { key, version, sequence: due.sequence, meta });
                    flights.push_back((due.ticket, page));
                    Choice::Write(FlashPlace { page, length: RoughLength::of(556, 1) })
                });
                drop(flash);
                if let Some((key, seen)) = doubts {
                    self.thin_out(key, &seen);
                    self.table.resolve(self.hash(key), &key.to_le_bytes(), &seen, 5);
                }
                self.table.take_tombstones(partition, usize::MAX);
            }
            for _ in 0..random.random_range(0..64usize).min(flights.len()) {
                let at = random.random_range(0..flights.len());
                let Some((ticket, page)) = flights.swap_remove_back(at) else { continue };
                self.land(ticket, page, &mut flights);
            }
            self.turns.fetch_add(1, Relaxed);
            thread::yield_now();
        }
    }

    fn land(&self, ticket: Ticket, page: u32, flights: &mut VecDeque<(Ticket, u32)>) {
        let place = FlashPlace { page, length: RoughLength::of(556, 1) };
        if self.table.written(&ticket, place) == Written::Crowded {
            let key = self.flash.lock().unwrap()[&page].key;
            if let Lookup::Cold(seen) = self.table.find_cold(self.hash(key), b"another", 5) {
                self.thin_out(key, &seen);
            }
            flights.push_back((ticket, page));
        }
    }

    /// Drops all records of a key, which is in memory.
    fn thin_out(&self, key: u32, seen: &[FlashSlot]) {
        let flash = self.flash.lock().unwrap();
        for slot in seen.iter().filter(|slot| flash[&slot.page].key == key) {
            self.table.drop_cold(self.hash(key), *slot, Some(flash[&slot.page].sequence));
        }
    }
}

fn runs(is_lossless: bool) {
    let world = World::new(is_lossless);
    thread::scope(|scope| {
        let world = &world;
        let clients: Vec<_> = (0..CLIENTS)
            .map(|number| {
                let mut random = seeded_stream(7, u64::from(number));
                scope.spawn(move || world.client(number, is_lossless, &mut random))
            })
            .collect();
        let maintenance = scope.spawn(move || world.maintain(&mut seeded_stream(7, 99)));
        let results: Vec<_> = clients.into_iter().map(|client| client.join()).collect();
        world.done.store(true, Relaxed);
        maintenance.join().unwrap();
        results.into_iter().for_each(|result| result.unwrap());
    });
    let tier = world.table.tier_stats();
    assert!(tier.written > 1000 && tier.promoted > 1000 && tier.put_back > 10, "{tier:?}");
    assert!(!is_lossless || tier.unwritten == 0, "{tier:?}");
    world.table.check().unwrap();
}

#[test]
fn a_cache_answers_right_while_items_come_and_go() {
    runs(false);
}

#[test]
fn a_table_that_may_lose_nothing_answers_right_while_items_come_and_go() {
    runs(true);
}
