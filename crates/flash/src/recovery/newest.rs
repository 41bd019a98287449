//! The record that counts for each key.

use crate::{
    format::Life,
    log::{Found, Log, Place},
    switches::{Safeguard, is_on},
};
use minos_base::{KeyHash, Seconds, may_look_alike};
use std::{
    collections::HashMap,
    hash::{BuildHasherDefault, Hasher},
};

/// Collects what recovery finds; of each hash the highest sequence counts, of equal ones a tombstone.
///
/// A table of its own, because a slot of the memory index has no sequence.
#[derive(Debug, Default)]
pub struct Newest {
    winners: HashMap<u64, Winner, BuildHasherDefault<Mixed>>,
    /// Pages of the records, by hash and sequence, in segments that were being emptied.
    leaving: HashMap<(u64, u64), Vec<(u32, Life)>>,
    /// Copies of those elsewhere.
    copies: Vec<(KeyHash, u64, Life)>,
    /// Pages in which records are dead if they look alike.
    buried: HashMap<(u32, Life), Vec<KeyHash>>,
}

#[derive(Clone, Copy, Debug)]
struct Winner {
    sequence: u64,
    place: Option<Place>,
    expiry: Seconds,
    life: Life,
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
        let winner = Winner { sequence: found.sequence, place, expiry: found.expiry, life: found.life };
        let held = self.winners.entry(found.hash.0).or_insert(winner);
        // Of equal items the later one: a copy rather than the record that was being moved.
        let is_equal = found.sequence == held.sequence && (place.is_none() || held.place.is_some());
        if found.sequence > held.sequence || is_equal {
            *held = winner;
        }
        if found.is_leaving {
            let places = self.leaving.entry((found.hash.0, found.sequence)).or_default();
            places.push((found.page, found.life));
        } else if !self.leaving.is_empty() && self.leaving.contains_key(&(found.hash.0, found.sequence)) {
            self.copies.push((found.hash, found.sequence, found.life));
        }
        if let Some(buried) = found.buries.filter(|_| is_on(Safeguard::Places)) {
            self.buried.entry(buried).or_default().push(found.hash);
        }
    }

    /// Tells a resumed log what is live. The index names the same records.
    pub fn settle(&self, log: &mut Log) {
        self.live().for_each(|(_, _, _, place)| log.credit(place));
        for &(hash, sequence, life) in &self.copies {
            let winner = self.winners.get(&hash.0);
            if winner.is_some_and(|winner| winner.sequence > sequence || self.is_buried(hash, winner)) {
                // It died between its copy and the crash: what killed it does not know of the copy.
                log.bury_copy(hash, sequence, life);
            }
        }
        self.bury_all_copies(log);
    }

    /// Keeps dead all copies of what is dead at one of their places, which may end first.
    fn bury_all_copies(&self, log: &mut Log) {
        for (&(hash, sequence), places) in self.leaving.iter().filter(|_| !self.buried.is_empty()) {
            let winner = self.winners.get(&hash).filter(|winner| winner.sequence == sequence);
            if winner.is_some_and(|winner| self.is_buried(KeyHash(hash), winner)) {
                places.iter().for_each(|&(_, life)| log.bury_copy(KeyHash(hash), sequence, life));
            }
        }
    }

    /// The live records: hash, sequence, expiry, place.
    pub fn live(&self) -> impl Iterator<Item = (KeyHash, u64, Seconds, Place)> + '_ {
        let live = |(&hash, winner): (&u64, &Winner)| {
            let place = winner.place.filter(|_| !self.is_buried(KeyHash(hash), winner))?;
            Some((KeyHash(hash), winner.sequence, winner.expiry, place))
        };
        self.winners.iter().filter_map(live)
    }

    /// True if the winner of a hash is dead at its place, or where a copy of it was left.
    fn is_buried(&self, hash: KeyHash, winner: &Winner) -> bool {
        let alike = |at: &(u32, Life)| {
            self.buried.get(at).is_some_and(|hashes| hashes.iter().any(|&other| may_look_alike(hash, other)))
        };
        let own = winner.place.map(|place| (place.page, winner.life));
        let left = || self.leaving.get(&(hash.0, winner.sequence)).into_iter().flatten();
        !self.buried.is_empty() && (own.as_ref().is_some_and(alike) || left().any(alike))
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::RoughLength;

    #[test]
    fn a_record_that_is_dead_at_one_place_is_dead_at_all_whatever_is_found_first() {
        let (hash, other) = (KeyHash(0x77), KeyHash(1 << 40 | 0x77));
        let item = |page, life, is_leaving| Found {
            hash,
            sequence: 5,
            expiry: 0,
            buries: None,
            page,
            length: Some(RoughLength::of(100, 1)),
            life: Life(life),
            is_leaving,
        };
        let tombstone = |page, life| Found {
            hash: other,
            sequence: 0,
            buries: Some((page, Life(life))),
            length: None,
            ..item(9, 3, false)
        };
        let live = |found: &[Found]| {
            let mut newest = Newest::default();
            found.iter().for_each(|found| newest.add(found));
            newest.live().count()
        };
        // Moved out of a leaving segment, into one that fails or does not.
        for is_failing in [true, false] {
            let copies = [item(1, 1, true), item(2, 2, is_failing)];
            for (page, life) in [(1, 1), (2, 2)] {
                let [first, second] = copies;
                assert_eq!(live(&[first, second, tombstone(page, life)]), 0, "{page}");
                assert_eq!(live(&[tombstone(page, life), first, second]), 0, "{page}");
                if is_failing {
                    assert_eq!(live(&[second, first, tombstone(page, life)]), 0, "{page}");
                }
            }
            assert_eq!(live(&[copies[0], copies[1], tombstone(1, 2)]), 1);
        }
    }
}
