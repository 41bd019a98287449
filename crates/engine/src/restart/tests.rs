//! One thing at a time is wrong in a table that is opened again.

use super::{OpenError, Opening};
use crate::{
    cache_mode::CacheMode,
    chain::{self, Place},
    config::StoreConfig,
    index::FREE_SPARE,
    item::{ItemMeta, SHAPE},
    mode::Mode,
    slot::Slot,
    store::Engine,
    store_mode::StoreMode,
};
use minos_region::{Backing, Offset};
use minos_sync::{Crcw, version};
use std::sync::atomic::Ordering::Relaxed;

const KEYS: u64 = 600;

fn key(number: u64) -> [u8; 8] {
    number.to_le_bytes()
}

/// Every seventh value is large enough to lie apart from its item.
fn value(number: u64) -> Vec<u8> {
    vec![number as u8; if number.is_multiple_of(7) { 5000 } else { 20 }]
}

fn config(folder: &tempfile::TempDir) -> StoreConfig {
    StoreConfig {
        backing: Backing::File(folder.path().join("region")),
        partitions: Some(2),
        value_bytes_max: 1 << 20,
        ..StoreConfig::new(8 << 20)
    }
}

/// A chain of one partition, and its items.
struct Victim<'a, M: Mode> {
    engine: &'a Engine<M, Crcw>,
    place: Place,
    slot: Slot,
    item: Offset,
    slots: u64,
}

impl<'a, M: Mode> Victim<'a, M> {
    fn of(engine: &'a Engine<M, Crcw>, number: u64) -> Self {
        let hash = engine.hash(&key(number));
        let writing = engine.writing(hash);
        let found = writing.find(hash, &key(number)).unwrap();
        let slots = chain::places(engine.memory().region(), found.place.head).count() as u64;
        Self { engine, place: found.place, slot: found.slot, item: found.item, slots }
    }

    fn word(&self, offset: Offset) -> &std::sync::atomic::AtomicU64 {
        self.engine.memory().region().word(offset)
    }

    /// Puts another slot into the place of the item, which it costs.
    fn put_slot(&self, slot: Slot) -> u64 {
        self.place.cell(self.engine.memory().region()).store(slot.0, Relaxed);
        1
    }

    /// Flips bits of the item, which it costs.
    fn flip(&self, word: u64, bits: u64) -> u64 {
        self.word(self.item.plus(word)).fetch_xor(bits, Relaxed);
        1
    }
}

/// A named damage, with the function that does it and returns how many items it costs.
type Wrong<M> = (&'static str, fn(&Victim<'_, M>) -> u64);

fn wrongs<M: Mode>() -> Vec<Wrong<M>> {
    let mut wrongs = wrongs_of_the_index();
    wrongs.extend(wrongs_of_an_item());
    wrongs
}

fn wrongs_of_the_index<M: Mode>() -> Vec<Wrong<M>> {
    vec![
        ("nothing", |_| 0),
        ("a chain that was being written", |victim| {
            version::begin_write(victim.word(victim.place.head));
            victim.slots
        }),
        ("a chain that was being split", |victim| {
            let (engine, region) = (victim.engine, victim.engine.memory().region());
            let index = engine.partition(engine.hash(&key(1))).index;
            let old = index.split_source(region);
            let slots = chain::places(region, old).count() as u64;
            version::begin_write(region.word(old));
            index.prepare(engine.memory()).unwrap();
            index.publish(region);
            slots
        }),
        ("a chain that leads outside", |victim| {
            victim.word(victim.place.head).fetch_or(0xffff_fff0 << 32, Relaxed);
            victim.slots
        }),
        ("a slot that refers outside", |victim| victim.put_slot(victim.slot.with_link((1 << 37) - 5))),
        ("a slot that refers into an item", |victim| {
            victim.put_slot(victim.slot.with_link(victim.slot.link() + 1))
        }),
        ("a slot with the tag of another key", |victim| victim.put_slot(Slot(victim.slot.0 ^ 1 << 50))),
        ("a slot with the size of another item", |victim| victim.put_slot(Slot(victim.slot.0 ^ 1 << 40))),
        ("a slot of another chain", |victim| {
            let other = (0..KEYS).map(|number| Victim::of(victim.engine, number));
            let other = other.filter(|other| other.place.head != victim.place.head).last().unwrap();
            victim.put_slot(other.slot)
        }),
        ("a slot of the same chain", |victim| {
            let region = victim.engine.memory().region();
            let places: Vec<_> = chain::places(region, victim.place.head).collect();
            let other = places.iter().find(|place| **place != victim.place).unwrap();
            victim.put_slot(other.slot(region))
        }),
        ("free buckets that lie outside", |victim| {
            let index = victim.engine.partition(victim.engine.hash(&key(1))).index;
            index.word(victim.engine.memory().region(), FREE_SPARE).store(0xffff_fff0, Relaxed);
            0
        }),
    ]
}

fn wrongs_of_an_item<M: Mode>() -> Vec<Wrong<M>> {
    vec![
        ("a key that is too long", |victim| victim.flip(SHAPE, 0xff << 25)),
        ("a value that is too long", |victim| victim.flip(SHAPE, 1 << 62)),
        ("another key", |victim| victim.flip(3, 1 << 9)),
    ]
}

/// Behind a header of three words and a key of one come identity and offset of an extent.
fn wrongs_of_a_cache() -> Vec<Wrong<CacheMode>> {
    vec![
        ("an entry that is marked as dead", |victim| {
            victim.word(victim.item.minus(1)).fetch_xor(1 << 1, Relaxed);
            0
        }),
        ("a large value that belongs to nobody", |victim| {
            let other = Victim::of(victim.engine, 7);
            let chunk = Offset::from_words(other.word(other.item.plus(5)).load(Relaxed));
            other.word(chunk).store(0, Relaxed);
            // It counts as evicted.
            0
        }),
        ("a large value of two items", |victim| {
            let [one, two] = [7, 14].map(|number| Victim::of(victim.engine, number));
            for at in [4, 5] {
                two.word(two.item.plus(at)).store(one.word(one.item.plus(at)).load(Relaxed), Relaxed);
            }
            // It counts as evicted.
            0
        }),
    ]
}

/// Checks how a damaged table is opened, whether it was closed or not.
fn check<M: Mode>(wrongs: &[Wrong<M>], is_closed: bool) {
    for (name, wrong) in wrongs {
        let folder = tempfile::tempdir().unwrap();
        let (engine, _) = Engine::<M, Crcw>::open(&config(&folder)).unwrap();
        for number in 0..KEYS {
            let (key, value) = (key(number), value(number));
            engine.entry(engine.hash(&key), &key, 5).insert(&[&value], ItemMeta::default()).unwrap();
        }
        let cost = wrong(&Victim::of(&engine, 1));
        if is_closed {
            engine.close().unwrap();
        } else {
            drop(engine);
        }
        if is_closed && *name != "nothing" && !M::LOSES_SILENTLY {
            is_refused::<M>(name, &config(&folder));
            continue;
        }
        let (engine, opening) = Engine::<M, Crcw>::open(&config(&folder)).unwrap();
        let left = engine.stats().items;
        match &opening {
            Opening::Warm { items } => assert!(is_closed && *name == "nothing" && *items == KEYS, "{name}"),
            Opening::StartedEmpty { .. } => {
                assert!(is_closed && M::LOSES_SILENTLY && left == 0, "{name}: {opening}");
            }
            Opening::Repaired { items, dropped } => {
                assert!(!is_closed && *dropped == cost && *items == left, "{name}: {opening}, not {cost}");
                assert!(left + cost.max(1) >= KEYS, "{name}: {opening}");
            }
            Opening::Created => panic!("{name}"),
        }
        engine.check().unwrap_or_else(|error| panic!("{name}: {error}"));
        for number in 0..KEYS {
            let key = key(number);
            let entry = engine.entry(engine.hash(&key), &key, 5);
            let there = entry.item().map(|item| item.value().to_vec());
            assert!(there.is_none_or(|there| there == value(number)), "{name}: {number}");
        }
    }
}

/// The table is refused, and refused again at a second attempt.
fn is_refused<M: Mode>(name: &str, config: &StoreConfig) {
    for _ in 0..2 {
        let error = Engine::<M, Crcw>::open(config).unwrap_err();
        assert!(matches!(error, OpenError::Unreliable { .. }), "{name}: {error}");
    }
}

/// The damages under which a table can still be closed.
fn wrongs_at_closing<M: Mode>() -> Vec<Wrong<M>> {
    wrongs().into_iter().filter(|(name, _)| *name != "free buckets that lie outside").collect()
}

#[test]
fn what_is_wrong_is_dropped_when_a_table_is_repaired() {
    check::<StoreMode>(&wrongs(), false);
    check::<CacheMode>(&wrongs(), false);
    check::<CacheMode>(&wrongs_of_a_cache(), false);
}

#[test]
fn a_closed_table_that_contradicts_itself_is_no_table() {
    check::<StoreMode>(&wrongs_at_closing(), true);
    check::<CacheMode>(&wrongs_at_closing(), true);
    check::<CacheMode>(&wrongs_of_a_cache(), true);
}
