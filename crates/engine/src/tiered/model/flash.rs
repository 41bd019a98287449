//! A fake flash: records and tombstones in maps, of which a power loss takes what is not durable.

use super::super::{room::Tombstone, walk::Ticket};
use crate::item::ItemMeta;
use minos_base::{FlashPlace, KeyHash, RoughLength};
use std::collections::{BTreeMap, BTreeSet};

/// A record, one in each page.
#[derive(Clone, Debug)]
pub(super) struct Record {
    pub(super) hash: KeyHash,
    pub(super) key: u16,
    pub(super) value: Vec<u8>,
    pub(super) meta: ItemMeta,
    pub(super) sequence: u64,
    /// It is complete.
    pub(super) is_durable: bool,
}

pub(super) struct Flight {
    pub(super) ticket: Ticket,
    pub(super) place: FlashPlace,
}

#[derive(Debug, Default)]
pub(super) struct Flash {
    pub(super) records: BTreeMap<u32, Record>,
    pub(super) tombstones: Vec<Tombstone>,
    /// Records up to this sequence were flushed.
    pub(super) flushed: u64,
    next_page: u32,
}

impl Flash {
    /// Takes a record; its place.
    pub(super) fn append(&mut self, record: Record) -> FlashPlace {
        self.next_page += 1;
        let length = RoughLength::of(record.value.len() as u64 + 56, 1);
        self.records.insert(self.next_page, record);
        FlashPlace { page: self.next_page, length }
    }

    /// The records that a recovery finds: of each hash the one with the highest sequence.
    pub(super) fn live(&self) -> Vec<(u32, Record)> {
        let (mut buried, mut forgotten) = (BTreeMap::new(), BTreeSet::new());
        for &Tombstone { hash, sequence, place, is_forgotten } in &self.tombstones {
            let up_to = buried.entry(hash).or_insert(sequence);
            *up_to = sequence.max(*up_to);
            if is_forgotten {
                forgotten.insert(place.page);
            }
        }
        let is_dead = |page: u32, record: &Record| {
            let up_to = buried.get(&record.hash).copied().unwrap_or(0).max(self.flushed);
            record.sequence <= up_to || forgotten.contains(&page)
        };
        let mut newest: BTreeMap<KeyHash, (u32, &Record)> = BTreeMap::new();
        for (&page, record) in self.records.iter().filter(|(_, record)| record.is_durable) {
            let held = newest.entry(record.hash).or_insert((page, record));
            if record.sequence > held.1.sequence {
                *held = (page, record);
            }
        }
        let live = newest.into_values().filter(|(page, record)| !is_dead(*page, record));
        live.map(|(page, record)| (page, record.clone())).collect()
    }

    pub(super) fn sequence_max(&self) -> u64 {
        let records = self.records.values().map(|record| record.sequence);
        let tombstones = self.tombstones.iter().map(|tombstone| tombstone.sequence);
        records.chain(tombstones).max().unwrap_or(0).max(self.flushed)
    }
}
