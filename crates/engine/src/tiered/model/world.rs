//! A table above a fake flash, and what a client expects of it.

use super::{
    super::{
        Tiered,
        promote::{Cold, Promotion},
        room::Tombstone,
    },
    flash::{Flash, Flight, Record},
};
use crate::{config::StoreConfig, item::ItemMeta, mode::Lookup, partition::OutOfMemory};
use minos_base::{FlashSlot, KeyHash, seeded};
use minos_region::Backing;
use rand::{RngExt, rngs::StdRng};
use std::collections::BTreeMap;

const KEYS: u16 = 48;
pub(super) const FILL_KEYS: u16 = 400;

/// An item as a client stored it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Expected {
    pub(super) value: Vec<u8>,
    pub(super) expiry: u32,
    pub(super) flags: u32,
}

/// A table above a fake flash, and what a client expects of it.
pub(super) struct World {
    pub(super) config: StoreConfig,
    pub(super) engine: Tiered,
    /// Of all keys, which is faster than to hash them again for each tombstone.
    pub(super) hashes: Vec<KeyHash>,
    pub(super) flash: Flash,
    pub(super) flights: Vec<Flight>,
    /// Tombstones of a table that may lose nothing, whose keys have newer items in memory alone.
    pub(super) held: Vec<Tombstone>,
    pub(super) model: BTreeMap<u16, Expected>,
    /// The values that a key may have after a power loss; those of other keys are in the model.
    pub(super) history: BTreeMap<u16, Vec<Option<Expected>>>,
    pub(super) now: u32,
    pub(super) step: u32,
    pub(super) rng: StdRng,
    _folder: tempfile::TempDir,
}

pub(super) fn key_bytes(key: u16) -> Vec<u8> {
    let long = if key % 16 == 15 { 300 } else { 0 };
    vec![b'k'; usize::from(key) * 5 % 60 + long].into_iter().chain(key.to_be_bytes()).collect()
}

impl World {
    pub(super) fn new(config: StoreConfig, seed: u64) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let config = StoreConfig { backing: Backing::File(folder.path().join("region")), ..config };
        let engine = Tiered::open(&config).expect("a small table").0;
        Self {
            hashes: (0..FILL_KEYS).map(|key| engine.hash(&key_bytes(key))).collect(),
            engine,
            config,
            flash: Flash::default(),
            flights: Vec::new(),
            held: Vec::new(),
            model: BTreeMap::new(),
            history: BTreeMap::new(),
            now: 5,
            step: 0,
            rng: seeded(seed),
            _folder: folder,
        }
    }

    pub(super) fn run(&mut self, steps: usize) -> Result<(), String> {
        for _ in 0..steps {
            self.step += 1;
            self.act()?;
            if self.step.is_multiple_of(16) {
                self.engine.check()?;
            }
        }
        (0..FILL_KEYS).try_for_each(|key| self.read(key, false))?;
        self.engine.check()
    }

    fn act(&mut self) -> Result<(), String> {
        let key = self.rng.random_range(0..KEYS);
        match self.rng.random_range(0..100u32) {
            0..25 => self.set(key),
            25..31 => return self.delete(key),
            31..36 => return self.touch(key),
            36..52 => return self.read(key, true),
            52..58 => return self.read(key, false),
            58..68 => self.fill(),
            68..78 => self.walk(),
            78..90 => self.complete(),
            90..92 => self.drain(),
            92..94 => self.free_pages(),
            94..95 => self.flush(),
            95..97 => self.now += self.rng.random_range(1..4),
            97 => drop(self.engine.sweep(0, 20, self.now)),
            98 => self.sync(),
            _ if self.rng.random_range(0..2u32) == 0 => return self.lose_power(),
            _ => return self.kill(),
        }
        Ok(())
    }

    pub(super) fn hash(&self, key: u16) -> KeyHash {
        self.hashes[usize::from(key)]
    }

    pub(super) fn is_lossless(&self) -> bool {
        self.config.tier.is_lossless
    }

    /// What the key has now is another value.
    fn put(&mut self, key: u16, expected: Option<Expected>) {
        let before = self.model.get(&key).cloned();
        let history = self.history.entry(key).or_insert_with(|| vec![before]);
        history.push(expected.clone());
        if !self.config.tier.is_lossless {
            history.push(None);
        }
        match expected {
            Some(expected) => self.model.insert(key, expected),
            None => self.model.remove(&key),
        };
    }

    pub(super) fn set(&mut self, key: u16) {
        let len = match self.rng.random_range(0..10u32) {
            0..7 => self.rng.random_range(0..300usize),
            7..9 => self.rng.random_range(1000..4000),
            _ => self.rng.random_range(5000..9000),
        };
        let expiry =
            if self.rng.random_range(0..4u32) == 0 { self.now + self.rng.random_range(1..12) } else { 0 };
        let value: Vec<u8> = (0..len).map(|at| (self.step as usize * 31 + at) as u8).collect();
        let meta = ItemMeta { expiry, flags: self.step, ..ItemMeta::default() };
        let bytes = key_bytes(key);
        let stored = self.engine.entry(self.hash(key), &bytes, self.now).insert(&[&value], meta).is_ok();
        if stored {
            self.put(key, Some(Expected { value, expiry, flags: self.step }));
        }
    }

    pub(super) fn fill(&mut self) {
        let from = self.rng.random_range(KEYS..FILL_KEYS);
        for key in from..FILL_KEYS.min(from + 40) {
            self.step += 1;
            let value = vec![self.step as u8; 1500];
            let meta = ItemMeta { flags: self.step, ..ItemMeta::default() };
            let stored = self.engine.entry(self.hash(key), &key_bytes(key), self.now).insert(&[&value], meta);
            if stored.is_ok() {
                self.put(key, Some(Expected { value, expiry: 0, flags: self.step }));
            }
        }
    }

    /// Brings the item of a key to memory, as commands do that need the old one; false if there is no room.
    fn fetch(&mut self, key: u16) -> Result<bool, String> {
        for _ in 0..8 {
            let Lookup::Cold(slots) = self.engine.find_cold(self.hash(key), &key_bytes(key), self.now) else {
                return Ok(true);
            };
            let Some((slot, record)) = self.winner(key, &slots) else { return Ok(true) };
            match self.promote(key, slot, &slots, &record) {
                Ok(Promotion::Changed) => {}
                Ok(_) => return Ok(true),
                Err(_) => return Ok(false),
            }
        }
        Err(format!("key {key} never comes to memory"))
    }

    fn promote(
        &self,
        key: u16,
        slot: FlashSlot,
        seen: &[FlashSlot],
        record: &Record,
    ) -> Result<Promotion, OutOfMemory> {
        let (value, meta, sequence) = (&record.value, record.meta, record.sequence);
        let cold = Cold { slot, seen, sequence, value, meta };
        self.engine.promote(self.hash(key), &key_bytes(key), &cold, self.now)
    }

    /// The newest record of a key; older ones are dropped.
    fn winner(&self, key: u16, slots: &[FlashSlot]) -> Option<(FlashSlot, Record)> {
        let mut own: Vec<_> = slots
            .iter()
            .filter_map(|slot| Some((*slot, self.flash.records.get(&slot.page)?.clone())))
            .filter(|(_, record)| record.key == key)
            .collect();
        own.sort_by_key(|(_, record)| record.sequence);
        let newest = own.pop();
        for (slot, record) in own {
            self.engine.drop_cold(self.hash(key), slot, Some(record.sequence));
        }
        newest
    }

    /// What a client gets for a key.
    pub(super) fn get(&mut self, key: u16, promotes: bool) -> Option<Expected> {
        let (hash, bytes, now) = (self.hash(key), key_bytes(key), self.now);
        match self.engine.find_cold(hash, &bytes, now) {
            Lookup::Missing => None,
            Lookup::Hot => self.engine.read(hash, &bytes, now, |item| {
                let mut value = Vec::new();
                item.copy_value_to(&mut value);
                Expected { value, expiry: item.expiry(), flags: item.flags() }
            }),
            Lookup::Cold(slots) => {
                let (slot, record) = self.winner(key, &slots)?;
                let is_dead = record.sequence <= self.engine.flushed_up_to(0)
                    || record.meta.expiry != 0 && record.meta.expiry <= now;
                if promotes {
                    // The world goes on while the device reads.
                    self.meanwhile(key);
                    let _ = self.promote(key, slot, &slots, &record);
                }
                let ItemMeta { expiry, flags, .. } = record.meta;
                (!is_dead).then_some(Expected { value: record.value, expiry, flags })
            }
        }
    }

    /// Changes of any keys, or of the one that is being read.
    fn meanwhile(&mut self, key: u16) {
        match self.rng.random_range(0..6u32) {
            0 => {
                let key = self.rng.random_range(0..KEYS);
                self.set(key);
            }
            4 => {
                self.set(key);
                self.walk_some(usize::MAX, true);
                (0..self.flights.len()).rev().for_each(|at| self.land(at, false));
            }
            1 => self.fill(),
            2 => self.walk(),
            3 => self.complete(),
            _ => {}
        }
    }

    fn expected(&self, key: u16) -> Option<&Expected> {
        self.model.get(&key).filter(|item| item.expiry == 0 || item.expiry > self.now)
    }

    pub(super) fn read(&mut self, key: u16, promotes: bool) -> Result<(), String> {
        let expected = self.expected(key).cloned();
        let got = self.get(key, promotes);
        let may_miss = got.is_none() && !self.is_lossless();
        if got == expected || may_miss {
            return Ok(());
        }
        let brief = |item: Option<Expected>| item.map(|item| (item.value.len(), item.expiry, item.flags));
        let place = self.engine.find_cold(self.hash(key), &key_bytes(key), self.now);
        Err(format!(
            "step {}: key {key} at {place:?} is {:?}, not {:?}",
            self.step,
            brief(got),
            brief(expected)
        ))
    }

    fn delete(&mut self, key: u16) -> Result<(), String> {
        if !self.fetch(key)? {
            return Ok(());
        }
        let removed = self.engine.entry(self.hash(key), &key_bytes(key), self.now).remove();
        let expected = self.expected(key).is_some();
        self.put(key, None);
        if removed == expected || !removed && !self.is_lossless() {
            return Ok(());
        }
        Err(format!("step {}: key {key} was removed: {removed}, not {expected}", self.step))
    }

    fn touch(&mut self, key: u16) -> Result<(), String> {
        if !self.fetch(key)? {
            return Ok(());
        }
        let expiry = self.now + self.rng.random_range(1..20);
        let (hash, bytes) = (self.hash(key), key_bytes(key));
        let mut entry = self.engine.entry(hash, &bytes, self.now);
        let is_there = entry.item().is_some();
        entry.set_expiry(expiry);
        drop(entry);
        match self.expected(key).cloned() {
            Some(item) if is_there => self.put(key, Some(Expected { expiry, ..item })),
            None if is_there => return Err(format!("key {key} was touched, and is not there")),
            Some(_) if self.is_lossless() => return Err(format!("key {key} is lost")),
            _ => {}
        }
        Ok(())
    }

    fn flush(&mut self) {
        self.engine.flush();
        self.flash.flushed = self.engine.flushed_up_to(0);
        let keys: Vec<_> = self.model.keys().copied().collect();
        keys.into_iter().for_each(|key| self.put(key, None));
        for history in self.history.values_mut() {
            *history = vec![None];
        }
    }
}
