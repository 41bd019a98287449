//! Syncs, power losses and kills.

use super::{
    super::{Tiered, forget::Standing, room::Tombstone},
    flash::Record,
    world::{Expected, FILL_KEYS, World},
};
use crate::config::StoreConfig;
use minos_base::{FlashPlace, RoughLength};
use minos_region::Backing;
use rand::RngExt;
use std::collections::BTreeMap;

/// The place of a record that fills no more than a page.
pub(super) fn place_of(page: u32, record: &Record) -> FlashPlace {
    FlashPlace { page, length: RoughLength::of(record.value.len() as u64 + 56, 1) }
}

impl World {
    /// Everything reaches flash.
    pub(super) fn sync(&mut self) {
        let mut is_done = false;
        for _ in 0..200 {
            is_done = self.walk_some(usize::MAX, true) && self.flights.is_empty();
            if is_done {
                break;
            }
            while !self.flights.is_empty() {
                let before = self.flights.len();
                (0..before).rev().for_each(|at| self.land(at, false));
                if self.flights.len() == before {
                    break;
                }
            }
        }
        self.drain();
        if !self.is_lossless() {
            let either = |(&key, item): (&u16, &Expected)| (key, vec![Some(item.clone()), None]);
            self.history = self.model.iter().map(either).collect();
        } else if is_done {
            self.history = BTreeMap::new();
        }
    }

    /// Memory is lost, and what was on its way may be.
    pub(super) fn lose_power(&mut self) -> Result<(), String> {
        self.end_flights();
        if let Backing::File(path) = &self.config.backing {
            std::fs::remove_file(path).map_err(|error| error.to_string())?;
        }
        self.open_again()?;
        for (page, record) in self.flash.live() {
            if self.engine.adopt(record.hash, place_of(page, &record), record.sequence).is_err() {
                return Err("a record finds no room in an empty table".to_owned());
            }
        }
        (0..FILL_KEYS).try_for_each(|key| self.accept(key))?;
        self.engine.check()
    }

    /// The process is killed: memory stays, with all slots. Only the queue of tombstones is lost.
    pub(super) fn kill(&mut self) -> Result<(), String> {
        self.end_flights();
        self.open_again()?;
        for (page, record) in self.flash.live() {
            if self.engine.standing(record.hash, page) == Standing::Dead {
                let (hash, sequence) = (record.hash, record.sequence);
                let place = place_of(page, &record);
                self.bury(Tombstone { hash, sequence, place, is_forgotten: true });
            }
        }
        (0..FILL_KEYS).try_for_each(|key| self.read(key, false))?;
        self.engine.check()
    }

    /// Copies on their way arrive, or do not; nobody is told.
    fn end_flights(&mut self) {
        self.held.clear();
        for flight in std::mem::take(&mut self.flights) {
            if self.rng.random_range(0..2u32) == 0 {
                self.flash.records.remove(&flight.place.page);
            } else if let Some(record) = self.flash.records.get_mut(&flight.place.page) {
                record.is_durable = true;
            }
        }
    }

    /// Opens what the process has left.
    fn open_again(&mut self) -> Result<(), String> {
        let other = StoreConfig { backing: Backing::Auto, ..self.config.clone() };
        drop(std::mem::replace(&mut self.engine, Tiered::create(&other).map_err(|error| error.to_string())?));
        self.engine = Tiered::open(&self.config).map_err(|error| error.to_string())?.0;
        self.engine.pass_sequence(self.flash.sequence_max());
        Ok(())
    }

    /// After a power loss, a key has one of the values that it had since the last sync.
    fn accept(&mut self, key: u16) -> Result<(), String> {
        let got = self.get(key, false);
        let possible = self.history.get(&key).cloned().unwrap_or_else(|| vec![self.model.get(&key).cloned()]);
        let is_alive = |item: &Expected| item.expiry == 0 || item.expiry > self.now;
        let is_possible = possible.iter().any(|item| item.clone().filter(is_alive) == got);
        if !is_possible && (got.is_some() || self.is_lossless()) {
            let brief = got.map(|item| (item.value.len(), item.expiry, item.flags));
            return Err(format!("step {}: after a power loss key {key} is {brief:?}", self.step));
        }
        match got {
            Some(item) => drop((self.model.insert(key, item), self.history.remove(&key))),
            None if self.is_lossless() => drop((self.model.remove(&key), self.history.remove(&key))),
            // A cache that had no room for its slot may find the record again after the next power loss.
            None => drop(self.history.insert(key, possible)),
        }
        Ok(())
    }
}
