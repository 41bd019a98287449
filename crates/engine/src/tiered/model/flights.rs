//! Copies on their way to flash.

use super::{
    super::{
        room::Tombstone,
        walk::{Choice, Due, Need},
        written::Written,
    },
    flash::{Flight, Record},
    world::{FILL_KEYS, World, key_bytes},
};
use crate::mode::Lookup;
use minos_base::FlashSlot;
use rand::RngExt;

impl World {
    /// Walks ahead, copies what is due, and resolves doubts.
    pub(super) fn walk(&mut self) {
        let entries = self.rng.random_range(1..60);
        self.walk_some(entries, false);
    }

    pub(super) fn walk_some(&mut self, entries: usize, is_all: bool) -> bool {
        let Self { engine, flash, flights, rng, now, .. } = self;
        let mut doubts = Vec::new();
        let evicts = !is_all && rng.random_range(0..8u32) == 0;
        let choose = |due: &Due<'_>| {
            if due.need != Need::Copy {
                doubts.push((due.hash, due.key.to_vec(), due.doubts.clone()));
                return Choice::Later;
            }
            if evicts {
                return Choice::Evict;
            }
            let key = u16::from_be_bytes(*due.key.last_chunk().expect("a key"));
            let meta = due.state.meta_with(due.state.cas());
            let (hash, value, sequence) = (due.hash, due.value.to_vec(), due.sequence);
            let place = flash.append(Record { hash, key, value, meta, sequence, is_durable: false });
            flights.push(Flight { ticket: due.ticket, place });
            Choice::Write(place)
        };
        let is_copying = rng.random_range(0..3u32) == 0;
        let walked = if is_copying {
            engine.copy_new(0, entries, *now, choose)
        } else if is_all {
            engine.walk_all(0, entries, *now, choose)
        } else {
            engine.walk_ahead(0, entries, *now, choose)
        };
        for (hash, key, seen) in doubts {
            let number = u16::from_be_bytes(*key.last_chunk().expect("a key"));
            self.drop_own(number, &seen);
            self.engine.resolve(hash, &key, &seen, self.now);
        }
        walked.is_done
    }

    /// One of the copies on their way arrives, or fails.
    pub(super) fn complete(&mut self) {
        for _ in 0..self.rng.random_range(1..20u32) {
            if self.flights.is_empty() {
                return;
            }
            let at = self.rng.random_range(0..self.flights.len());
            let fails = !self.is_lossless() && self.rng.random_range(0..20u32) == 0;
            self.land(at, fails);
        }
    }

    pub(super) fn land(&mut self, at: usize, fails: bool) {
        let Flight { ticket, place } = self.flights.swap_remove(at);
        if fails {
            self.flash.records.remove(&place.page);
            self.engine.failed(&ticket, place);
            return;
        }
        if let Some(record) = self.flash.records.get_mut(&place.page) {
            record.is_durable = true;
        }
        if self.engine.written(&ticket, place) == Written::Crowded {
            // Too many records have the hash bits of its key.
            let key = self.flash.records[&place.page].key;
            if let Lookup::Cold(seen) = self.engine.find_cold(self.hash(key), b"another", self.now) {
                self.drop_own(key, &seen);
            }
            self.flights.push(Flight { ticket, place });
        }
    }

    /// Drops the records of a key among these; it is in memory, and newer.
    fn drop_own(&self, key: u16, seen: &[FlashSlot]) {
        for slot in seen {
            let record = self.flash.records.get(&slot.page);
            if record.is_none_or(|record| record.key == key) {
                self.engine.drop_cold(self.hash(key), *slot, record.map(|record| record.sequence));
            }
        }
    }

    /// Writes a tombstone; in a table that may lose nothing, not while what is newer is in memory alone.
    pub(super) fn bury(&mut self, tombstone: Tombstone) {
        let is_hot = |key: u16| {
            let hash = self.hash(key);
            hash == tombstone.hash && self.engine.find_cold(hash, &key_bytes(key), self.now) == Lookup::Hot
        };
        if self.is_lossless() && (0..FILL_KEYS).any(is_hot) {
            self.held.push(tombstone);
        } else {
            self.flash.tombstones.push(tombstone);
        }
    }

    pub(super) fn drain(&mut self) {
        let mut tombstones = std::mem::take(&mut self.held);
        tombstones.extend(self.engine.take_tombstones(0, usize::MAX).list);
        tombstones.into_iter().for_each(|tombstone| self.bury(tombstone));
    }

    /// Flash gives up some of the oldest pages, in a cache.
    pub(super) fn free_pages(&mut self) {
        if self.is_lossless() {
            return;
        }
        let Some((&oldest, _)) = self.flash.records.first_key_value() else { return };
        let end = oldest + self.rng.random_range(1..30);
        let on_their_way = self.flights.iter().map(|flight| flight.place.page).min().unwrap_or(u32::MAX);
        let end = end.min(on_their_way);
        self.flash.records.retain(|&page, _| page >= end);
        while self.engine.forget_pages(0, 0, usize::MAX, |page| page < end).1.is_some() {}
    }
}
