//! Tombstones on their way from the engine to the log.

use super::{Keeper, Now};
use crate::index::forget_pages;
use minos_base::KeyHash;
use minos_flash::{Tombstone, format::Layout};
use std::{
    collections::{BTreeMap, VecDeque, btree_map::IntoValues},
    iter::Chain,
    vec::IntoIter,
};

/// Most tombstones that are taken from a partition in a turn.
const TAKEN_MAX: usize = 256;
/// More than these are not taken: the engine keeps them, and refuses stores when it has too many.
const WAITING_MAX: usize = 1 << 16;

/// Bytes of a tombstone in the log, with its share of a page's head.
const TOMBSTONE_BYTES: usize = 64;

/// Tombstones wait longer than items for others to be written with: a page for each would fill the device.
const LINGER_US: u64 = 100_000;

/// Tombstones of a table that may lose nothing, until a group is durable.
#[derive(Debug, Default)]
pub(super) struct Held {
    /// By hash, of a record that the index forgot: the copy of the item that superseded it may take its place.
    forgotten: BTreeMap<u64, Tombstone>,
    others: Vec<Tombstone>,
}

impl IntoIterator for Held {
    type Item = Tombstone;
    type IntoIter = Chain<IntoValues<u64, Tombstone>, IntoIter<Tombstone>>;

    fn into_iter(self) -> Self::IntoIter {
        self.forgotten.into_values().chain(self.others)
    }
}

impl Held {
    pub(super) fn len(&self) -> usize {
        self.forgotten.len() + self.others.len()
    }

    pub(super) fn push(&mut self, tombstone: Tombstone) {
        let older = if tombstone.is_forgotten && tombstone.sequence != 0 {
            self.forgotten.insert(tombstone.hash.0, tombstone)
        } else {
            Some(tombstone)
        };
        self.others.extend(older);
    }

    /// The tombstone that is not needed if an item of this hash and sequence is appended in place of its record.
    pub(super) fn superseded(&self, hash: KeyHash, sequence: u64) -> Option<Tombstone> {
        self.forgotten.get(&hash.0).filter(|tombstone| tombstone.sequence < sequence).copied()
    }

    pub(super) fn remove(&mut self, tombstone: &Tombstone) {
        if self.forgotten.get(&tombstone.hash.0) == Some(tombstone) {
            self.forgotten.remove(&tombstone.hash.0);
        }
    }
}

/// Tombstones that wait.
#[derive(Debug)]
pub(crate) struct Graves {
    /// For the next group.
    pub(super) held: Held,
    held_max: usize,
    /// To be appended.
    due: VecDeque<Tombstone>,
}

impl Graves {
    pub(crate) fn of(layout: &Layout) -> Self {
        let held_max = (WAITING_MAX / 2).min(layout.segment_bytes() as usize / TOMBSTONE_BYTES);
        Self { held: Held::default(), held_max, due: VecDeque::new() }
    }

    pub(crate) fn len(&self) -> usize {
        self.held.len() + self.due.len()
    }

    pub(crate) fn has_due(&self) -> bool {
        !self.due.is_empty()
    }

    /// True if a group should take them soon: they must find room in the segments kept for one, or the group never
    /// ends, and compaction waits for it.
    pub(crate) fn is_full(&self) -> bool {
        self.held.len() >= self.held_max
    }

    pub(crate) fn clear(&mut self) {
        self.held = Held::default();
        self.due.clear();
    }

    /// The tombstones of a group, to be released when its copies are durable.
    pub(super) fn take_held(&mut self) -> Held {
        std::mem::take(&mut self.held)
    }

    pub(crate) fn release(&mut self, tombstones: impl IntoIterator<Item = Tombstone>) {
        self.due.extend(tombstones);
    }
}

impl Keeper {
    /// Takes tombstones that have become due.
    pub(super) fn take_deaths(&mut self) -> bool {
        let mut did = false;
        for partition in 0..self.tier.engine.partitions() {
            if self.graves.len() >= WAITING_MAX {
                break;
            }
            did |= self.take_deaths_of(partition, TAKEN_MAX);
        }
        did
    }

    /// Takes all tombstones that are due.
    pub(super) fn take_all_deaths(&mut self) {
        for partition in 0..self.tier.engine.partitions() {
            self.take_deaths_of(partition, usize::MAX);
        }
    }

    fn take_deaths_of(&mut self, partition: usize, max: usize) -> bool {
        let tombstones = self.tier.engine.take_tombstones(partition, max);
        let did = !tombstones.list.is_empty();
        if self.holds_deaths() {
            tombstones.list.into_iter().for_each(|tombstone| self.graves.held.push(tombstone));
        } else {
            self.graves.due.extend(tombstones.list);
        }
        let areas = tombstones.areas;
        if !areas.is_empty() {
            forget_pages(&self.tier.engine, |page| areas.iter().any(|area| area.contains(&page)));
        }
        for area in areas {
            self.log.give_up(area);
            self.counts.given_up += 1;
        }
        did
    }

    /// Appends tombstones that are due.
    pub(super) fn bury(&mut self, now: Now) -> bool {
        let mut did = false;
        for _ in 0..TAKEN_MAX {
            let Some(tombstone) = self.graves.due.front().copied() else { break };
            if !self.bury_one(&tombstone) {
                break;
            }
            self.graves.due.pop_front();
            self.buffered_us.get_or_insert(now.us + LINGER_US);
            did = true;
        }
        did
    }
}
