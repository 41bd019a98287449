//! The record that counts for each key.

use crate::{
    format::Life,
    log::{Found, Log, Place},
};
use minos_base::{KeyHash, Seconds};
use std::{
    collections::{HashMap, HashSet},
    hash::{BuildHasherDefault, Hasher},
};

/// Collects what recovery finds; of each hash the highest sequence counts, of equal ones a tombstone.
///
/// A table of its own, because a slot of the memory index has no sequence.
#[derive(Debug, Default)]
pub struct Newest {
    winners: HashMap<u64, Winner, BuildHasherDefault<Mixed>>,
    /// Records in segments that were being emptied.
    leaving: HashSet<(u64, u64)>,
    /// Copies of those elsewhere.
    copies: Vec<(KeyHash, u64, Life)>,
}

#[derive(Clone, Copy, Debug)]
struct Winner {
    sequence: u64,
    place: Option<Place>,
    expiry: Seconds,
}

impl Newest {
    /// Room for so many records.
    pub fn with_capacity(records: usize) -> Self {
        let winners = HashMap::with_capacity_and_hasher(records, BuildHasherDefault::default());
        Self { winners, ..Self::default() }
    }

    /// Adds a record.
    #[inline]
    pub fn add(&mut self, found: &Found) {
        let place = found.length.map(|length| Place { page: found.page, length });
        let winner = Winner { sequence: found.sequence, place, expiry: found.expiry };
        let held = self.winners.entry(found.hash.0).or_insert(winner);
        // Of equal items the later one: a copy rather than the record that was being moved.
        let is_equal = found.sequence == held.sequence && (place.is_none() || held.place.is_some());
        if found.sequence > held.sequence || is_equal {
            *held = winner;
        }
        if found.is_leaving {
            self.leaving.insert((found.hash.0, found.sequence));
        } else if !self.leaving.is_empty() && self.leaving.contains(&(found.hash.0, found.sequence)) {
            self.copies.push((found.hash, found.sequence, found.life));
        }
    }

    /// Tells a resumed log what is live. The index names the same records.
    pub fn settle(&self, log: &mut Log) {
        self.live().for_each(|(_, _, _, place)| log.credit(place));
        for &(hash, sequence, life) in &self.copies {
            let winner = self.winners.get(&hash.0);
            if winner.is_some_and(|winner| winner.sequence > sequence) {
                // Superseded between its copy and the crash: what superseded it does not know of the copy.
                log.bury(hash, sequence, life);
            }
        }
    }

    /// The live records: hash, sequence, expiry, place.
    pub fn live(&self) -> impl Iterator<Item = (KeyHash, u64, Seconds, Place)> + '_ {
        let live = |(&hash, winner): (&u64, &Winner)| {
            Some((KeyHash(hash), winner.sequence, winner.expiry, winner.place?))
        };
        self.winners.iter().filter_map(live)
    }

    /// The highest sequence of all records, dead ones too.
    pub fn sequence_max(&self) -> u64 {
        self.winners.values().map(|winner| winner.sequence).max().unwrap_or(0)
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
