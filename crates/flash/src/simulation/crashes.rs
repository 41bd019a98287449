//! Crashes of a run, and what recovery finds.

use super::{
    disk::{Disk, recover},
    index::Table,
    world::{World, hash, key_name, options, value_of},
};
use crate::{
    format::{PAGE_BYTES, Pages, Seal},
    log::Log,
};
use rand::RngExt;

impl World {
    pub(super) fn crash(&mut self) -> Result<(), String> {
        self.tally.crashes += 1;
        self.take_counters();
        let has_lost_power = self.random.random_bool(0.7);
        if has_lost_power {
            self.disk.lose_power();
        } else {
            self.disk.kill();
        }
        let faults = std::mem::take(&mut self.disk.faults);
        let options = options(self.plan, &self.superblock.layout);
        let (log, newest) = recover(&mut self.disk, &self.superblock, options);
        (self.log, self.table) = (log, Table::default());
        self.lookups.clear();
        self.appends.clear();
        self.emptying.clear();
        self.retries.clear();
        self.twins.clear();
        self.unburied.clear();
        self.copy = None;
        newest.settle(&mut self.log);
        for (hash, sequence, _, place) in newest.live() {
            self.table.slots.insert(hash.0, (sequence, place));
        }
        self.sequence = self.sequence.max(newest.sequence_max());
        for key in self.model.keys() {
            let found = self.read_now(key)?;
            self.model.settle(key, found, has_lost_power, self.plan.is_cache())?;
        }
        self.disk.faults = faults;
        Ok(())
    }

    fn read_now(&mut self, key: u64) -> Result<Option<(u64, usize)>, String> {
        read_now(&mut self.disk, (&self.log, &self.table), self.superblock.seed, key)
    }
}

/// The sequence and size of a key that recovery found.
pub(super) fn read_now(
    disk: &mut Disk,
    (log, table): (&Log, &Table),
    seed: u64,
    key: u64,
) -> Result<Option<(u64, usize)>, String> {
    let Some(&(sequence, place)) = table.slots.get(&hash(key).0) else { return Ok(None) };
    let at = u64::from(place.page) * PAGE_BYTES as u64;
    let bytes = disk.read(at as usize, place.length.pages() as usize * PAGE_BYTES).unwrap_or_default();
    let pages = Pages::new(&bytes, at, log.life_of(place.page), Seal::new(seed));
    match pages.find(hash(key), &key_name(key)) {
        Ok(Some(record)) => {
            let held = (record.header.sequence, record.value.len());
            let is_right = record.value.to_vec() == value_of(key, held.0, held.1) && held.0 == sequence;
            if is_right { Ok(Some(held)) } else { Err(format!("key {key} is wrong after a crash")) }
        }
        other => Err(format!("key {key} cannot be read after a crash: {other:?}")),
    }
}
