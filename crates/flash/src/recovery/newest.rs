//! The record that counts for each key.

use crate::log::{Found, Place};
use minos_base::{KeyHash, Seconds};
use std::{
    collections::HashMap,
    hash::{BuildHasherDefault, Hasher},
};

/// Collects what recovery finds; of each hash the highest sequence counts, of equal ones a tombstone.
///
/// A table of its own, because a slot of the memory index has no sequence.
#[derive(Debug, Default)]
pub struct Newest(HashMap<u64, Winner, BuildHasherDefault<Mixed>>);

#[derive(Clone, Copy, Debug)]
struct Winner {
    sequence: u64,
    place: Option<Place>,
    expiry: Seconds,
}

impl Newest {
    /// Room for so many records.
    pub fn with_capacity(records: usize) -> Self {
        Self(HashMap::with_capacity_and_hasher(records, BuildHasherDefault::default()))
    }

    /// Adds a record.
    #[inline]
    pub fn add(&mut self, found: &Found) {
        let place = found.length.map(|length| Place { page: found.page, length });
        let winner = Winner { sequence: found.sequence, place, expiry: found.expiry };
        let held = self.0.entry(found.hash.0).or_insert(winner);
        if found.sequence > held.sequence || (found.sequence == held.sequence && place.is_none()) {
            *held = winner;
        }
    }

    /// The live records: hash, sequence, expiry, place.
    pub fn live(&self) -> impl Iterator<Item = (KeyHash, u64, Seconds, Place)> + '_ {
        let live = |(&hash, winner): (&u64, &Winner)| {
            Some((KeyHash(hash), winner.sequence, winner.expiry, winner.place?))
        };
        self.0.iter().filter_map(live)
    }

    /// The highest sequence of all records, dead ones too.
    pub fn sequence_max(&self) -> u64 {
        self.0.values().map(|winner| winner.sequence).max().unwrap_or(0)
    }
}

/// The hash of a key is a hash already.
#[derive(Debug, Default)]
struct Mixed(u64);

impl Hasher for Mixed {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|&byte| self.0 = self.0.rotate_left(8) ^ u64::from(byte));
    }

    fn write_u64(&mut self, value: u64) {
        self.0 = value;
    }
}
