//! The record that counts for each key.

use super::machine::Found;
use crate::{
    format::{Life, RoughLength},
    log::{Log, Place},
    switches::{Safeguard, is_on},
};
use minos_base::{KeyHash, Seconds, may_look_alike};
use std::{
    collections::HashMap,
    hash::{BuildHasherDefault, Hasher},
};

/// Bits of a hash that choose a part, from the highest.
const PART_BITS: u32 = 10;
/// Records of a part that are collected before any is dropped.
const PART_LEN_MIN: usize = 64;

/// Collects what recovery finds; of each hash the highest sequence counts, of equal ones a tombstone.
///
/// A table of its own, because a slot of the memory index has no sequence. Parts that are sorted, because a hash map
/// of this size costs a cache miss for each record, and another in each pass.
#[derive(Debug)]
pub struct Newest {
    parts: Vec<Part>,
    sequence_max: u64,
    /// Pages of the records, by hash and sequence, in segments that were being emptied.
    leaving: Leaving,
    /// Copies of those elsewhere.
    copies: Vec<(KeyHash, u64, Life)>,
    /// Pages in which records are dead if they look alike.
    buried: Buried,
    losers: Losers,
}

/// Places, by hash and sequence.
type Leaving = HashMap<(u64, u64), Vec<(u32, Life)>, BuildHasherDefault<Mixed>>;
/// Hashes, by place.
type Buried = HashMap<(u32, Life), Vec<KeyHash>, BuildHasherDefault<Mixed>>;

/// The record of each hash that counts.
#[derive(Debug)]
pub struct Winners(Newest);

/// Records whose hashes begin with the same bits.
#[derive(Debug, Default)]
struct Part {
    records: Vec<Winner>,
    /// At this length records that do not count are dropped.
    full: usize,
}

/// Records that newer ones of their hashes have dropped.
///
/// What is to stay dead must be named, by the life of its segment, in a record of its hash: when that leaves, it leaves a
/// tombstone. A crash may come when the newer record is durable, and the tombstone of the older one is not.
#[derive(Debug, Default)]
struct Losers {
    /// Items that the record which dropped them does not name.
    unnamed: Vec<Loser>,
    /// The lives that dropped records name, and the highest sequence that each keeps dead.
    named: Vec<(KeyHash, Life, u64)>,
    /// Further copies of a record.
    copies: Vec<Loser>,
}

#[derive(Clone, Copy, Debug)]
struct Loser {
    hash: KeyHash,
    sequence: u64,
    place: (u32, Life),
}

impl Losers {
    fn add(&mut self, loser: &Winner, winner: &Winner) {
        let is_item = loser.length.is_some();
        if loser.replaces != Life::NONE {
            self.named.push((loser.hash, loser.replaces, loser.sequence.saturating_sub(is_item.into())));
        }
        // What lies in one segment ends with it.
        if is_item && !winner.names(loser.life) {
            let Winner { hash, sequence, page, life, .. } = *loser;
            let is_copy = sequence == winner.sequence;
            let list = if is_copy { &mut self.copies } else { &mut self.unnamed };
            list.push(Loser { hash, sequence, place: (page, life) });
        }
    }
}

#[derive(Clone, Copy, Debug)]
struct Winner {
    hash: KeyHash,
    sequence: u64,
    page: u32,
    life: Life,
    replaces: Life,
    expiry: Seconds,
    /// `None` for a tombstone.
    length: Option<RoughLength>,
    /// It is dead at its place, or where a copy of it was left.
    is_buried: bool,
}

impl Part {
    fn push(&mut self, winner: Winner, losers: &mut Losers) {
        if self.records.len() >= self.full {
            self.decide(losers);
            self.full = (2 * self.records.len()).max(PART_LEN_MIN);
        }
        self.records.push(winner);
    }

    /// Keeps one record of each hash, in the order of the hashes.
    fn decide(&mut self, losers: &mut Losers) {
        // Stable: of equal hashes, those found first stay first.
        self.records.sort_by_key(|winner| winner.hash.0);
        self.records.dedup_by(|next, held| {
            let is_same = next.hash == held.hash;
            if is_same {
                if next.beats(held) {
                    std::mem::swap(next, held);
                }
                losers.add(next, held);
            }
            is_same
        });
    }
}

impl Winner {
    /// True if it counts, found after `held`.
    fn beats(&self, held: &Self) -> bool {
        // Of equal items the later one: a copy rather than the record that was being moved.
        let is_equal = self.sequence == held.sequence && (self.length.is_none() || held.length.is_some());
        self.sequence > held.sequence || is_equal
    }

    /// True if it keeps records of its hash in segments of this life dead, or ends with them.
    fn names(&self, life: Life) -> bool {
        self.replaces == life || self.life == life
    }

    fn bury_if_named(&mut self, buried: &Buried, leaving: &Leaving) {
        let alike = |at: &(u32, Life)| {
            buried.get(at).is_some_and(|hashes| hashes.iter().any(|&other| may_look_alike(self.hash, other)))
        };
        let own = self.length.map(|_| (self.page, self.life));
        let left = || leaving.get(&(self.hash.0, self.sequence)).into_iter().flatten();
        self.is_buried = own.as_ref().is_some_and(alike) || left().any(alike);
    }

    fn place(&self) -> Option<Place> {
        self.length.filter(|_| !self.is_buried).map(|length| Place { page: self.page, length })
    }
}

impl Default for Newest {
    fn default() -> Self {
        Self {
            parts: (0..1 << PART_BITS).map(|_| Part::default()).collect(),
            sequence_max: 0,
            leaving: HashMap::default(),
            copies: Vec::new(),
            buried: HashMap::default(),
            losers: Losers::default(),
        }
    }
}

impl Newest {
    /// Adds a record.
    #[inline]
    pub fn add(&mut self, found: &Found) {
        let Found { hash, sequence, expiry, page, length, life, replaces, .. } = *found;
        let winner = Winner { hash, sequence, page, life, replaces, expiry, length, is_buried: false };
        self.parts[part_of(hash)].push(winner, &mut self.losers);
        self.sequence_max = self.sequence_max.max(sequence);
        if found.is_leaving {
            self.leaving.entry((hash.0, sequence)).or_default().push((page, life));
        } else if !self.leaving.is_empty() && self.leaving.contains_key(&(hash.0, sequence)) {
            self.copies.push((hash, sequence, life));
        }
        if let Some(buried) = found.buries.filter(|_| is_on(Safeguard::Places)) {
            self.buried.entry(buried).or_default().push(hash);
        }
    }

    /// All is found.
    pub fn decide(mut self) -> Winners {
        let Self { parts, buried, leaving, losers, .. } = &mut self;
        for part in parts {
            part.decide(losers);
            if !buried.is_empty() {
                part.records.iter_mut().for_each(|winner| winner.bury_if_named(buried, leaving));
            }
        }
        Winners(self)
    }
}

fn part_of(hash: KeyHash) -> usize {
    hash.partition(PART_BITS)
}

impl Winners {
    /// Tells a resumed log what is live. The index names the same records.
    pub fn settle(&self, log: &mut Log) {
        self.live().for_each(|(_, _, _, place)| log.credit(place));
        for &(hash, sequence, life) in &self.0.copies {
            let winner = self.winner(hash);
            if winner.is_some_and(|winner| winner.sequence > sequence || winner.is_buried) {
                // It died between its copy and the crash: what killed it does not know of the copy.
                log.bury_copy(hash, sequence, life);
            }
        }
        self.bury_all_copies(log);
        self.dead_copies()
            .chain(self.unnamed())
            .for_each(|loser| log.bury_copy(loser.hash, loser.sequence, loser.place.1));
    }

    /// Dead copies that nothing keeps dead but the newest record of their hash, which does not know of them. Of an append that
    /// failed twice there are two, in segments that end soon, and that of the newest record may be the first of these.
    fn dead_copies(&self) -> impl Iterator<Item = &Loser> {
        self.0.losers.copies.iter().filter(|copy| {
            let is_dead = |winner: &Winner| winner.sequence > copy.sequence || winner.length.is_none();
            self.winner(copy.hash).is_some_and(|winner| is_dead(winner) && !winner.names(copy.place.1))
        })
    }

    /// Dead items that nothing keeps dead but the newest record of their hash, which does not know of them.
    fn unnamed(&self) -> impl Iterator<Item = &Loser> {
        let Losers { unnamed, named, .. } = &self.0.losers;
        let mut sought: HashMap<u64, Vec<(Life, u64)>, BuildHasherDefault<Mixed>> =
            unnamed.iter().map(|loser| (loser.hash.0, Vec::new())).collect();
        if !sought.is_empty() {
            for &(hash, life, sequence) in named {
                sought.entry(hash.0).and_modify(|names| names.push((life, sequence)));
            }
        }
        unnamed.iter().filter(move |loser| {
            let life = loser.place.1;
            let by_winner = || self.winner(loser.hash).is_some_and(|winner| winner.names(life));
            let is_name = |name: &(Life, u64)| name.0 == life && name.1 >= loser.sequence;
            let by_other = || sought.get(&loser.hash.0).is_some_and(|names| names.iter().any(is_name));
            let is_alike = |hashes: &Vec<KeyHash>| hashes.iter().any(|&it| may_look_alike(loser.hash, it));
            let by_place = || self.0.buried.get(&loser.place).is_some_and(is_alike);
            !by_other() && !by_winner() && !by_place()
        })
    }

    fn winner(&self, hash: KeyHash) -> Option<&Winner> {
        let records = &self.0.parts[part_of(hash)].records;
        records.binary_search_by_key(&hash.0, |winner| winner.hash.0).ok().map(|at| &records[at])
    }

    /// Keeps dead all copies of what is dead at one of their places, which may end first.
    fn bury_all_copies(&self, log: &mut Log) {
        for (&(hash, sequence), places) in self.0.leaving.iter().filter(|_| !self.0.buried.is_empty()) {
            let hash = KeyHash(hash);
            let winner = self.winner(hash).filter(|winner| winner.sequence == sequence);
            if winner.is_some_and(|winner| winner.is_buried) {
                places.iter().for_each(|&(_, life)| log.bury_copy(hash, sequence, life));
            }
        }
    }

    /// The live records: hash, sequence, expiry, place.
    pub fn live(&self) -> impl Iterator<Item = (KeyHash, u64, Seconds, Place)> + '_ {
        let live = |winner: &Winner| {
            let place = winner.place()?;
            Some((winner.hash, winner.sequence, winner.expiry, place))
        };
        self.0.parts.iter().flat_map(|part| &part.records).filter_map(live)
    }

    /// The pages from which a record was being moved.
    pub fn left(&self, hash: KeyHash, sequence: u64) -> impl Iterator<Item = u32> + '_ {
        self.0.leaving.get(&(hash.0, sequence)).into_iter().flatten().map(|&(page, _)| page)
    }

    /// The highest sequence of all records, dead ones too.
    pub fn sequence_max(&self) -> u64 {
        self.0.sequence_max
    }
}

/// Mixes numbers, most of which are hashes already.
#[derive(Debug, Default)]
struct Mixed(u64);

impl Hasher for Mixed {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|&byte| self.write_u64(byte.into()));
    }

    fn write_u32(&mut self, value: u32) {
        self.write_u64(value.into());
    }

    fn write_u64(&mut self, value: u64) {
        // The golden ratio, as in Fibonacci hashing.
        self.0 = (self.0.rotate_left(32) ^ value).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_no_record_of_its_hash_names_is_found_in_any_order() {
        let item = |life: u32, replaces: u32| Found {
            hash: KeyHash(0x77),
            sequence: life.into(),
            expiry: 0,
            buries: None,
            page: life,
            length: Some(RoughLength::of(100, 1)),
            life: Life(life),
            replaces: Life(replaces),
            is_leaving: false,
        };
        let tombstone = Found { length: None, ..item(9, 2) };
        // The unnamed ones are those of the lives at the end.
        // A record keeps dead what is older than itself, also of its own segment.
        let within = |sequence| Found { sequence, ..item(5, 5) };
        let cases: [(&[Found], &[u32]); 6] = [
            (&[within(4), within(5), item(6, 6)], &[5]),
            (&[item(1, 0), item(2, 1), item(3, 2), item(4, 3)], &[]),
            (&[item(1, 0), item(2, 0), item(3, 2), item(4, 3)], &[1]),
            (&[item(1, 0), item(2, 1), item(3, 0), item(4, 0)], &[2, 3]),
            (&[item(1, 0), item(2, 1), item(3, 0), tombstone], &[3]),
            (&[item(1, 0), item(2, 1), item(3, 0), Found { sequence: 3, ..item(4, 0) }], &[2]),
        ];
        for (found, expected) in cases {
            for shift in 0..found.len() {
                for is_backward in [false, true] {
                    let (mut newest, mut found) = (Newest::default(), Vec::from(found));
                    found.rotate_left(shift);
                    if is_backward {
                        found.reverse();
                    }
                    // Parts that are decided early and late.
                    for (at, one) in found.iter().enumerate() {
                        newest.add(one);
                        if at == 1 {
                            newest.parts[part_of(one.hash)].decide(&mut newest.losers);
                        }
                    }
                    let winners = newest.decide();
                    let mut lives: Vec<u32> = winners.unnamed().map(|loser| loser.place.1.0).collect();
                    lives.sort_unstable();
                    assert_eq!(lives, expected, "{found:?}");
                }
            }
        }
    }

    #[test]
    fn a_copy_of_which_what_killed_it_does_not_know_is_found() {
        let item = |sequence, life: u32| Found {
            hash: KeyHash(0x77),
            sequence,
            expiry: 0,
            buries: None,
            page: life,
            length: Some(RoughLength::of(100, 1)),
            life: Life(life),
            replaces: Life(life),
            is_leaving: true,
        };
        let unknown = |found: &[Found]| {
            let mut newest = Newest::default();
            found.iter().for_each(|found| newest.add(found));
            let winners = newest.decide();
            let losers = winners.dead_copies().chain(winners.unnamed());
            losers.map(|loser| loser.place.1.0).collect::<Vec<_>>()
        };
        let (one, other, newer) = (item(5, 1), item(5, 2), item(6, 2));
        assert_eq!(unknown(&[one, other]), [], "it lives");
        for found in [[one, other, newer], [other, one, newer], [other, newer, one], [newer, one, other]] {
            assert_eq!(unknown(&found), [1], "{found:?}");
        }
    }

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
            replaces: Life::NONE,
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
            newest.decide().live().count()
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
