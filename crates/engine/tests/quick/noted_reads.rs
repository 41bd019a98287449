//! Reads by other processes count for eviction once the owner is told of them.

use minos_base::{KeyHash, seeded_stream};
use minos_engine::{
    Answer, Backing, Cache, CacheMode, Crcw, Crew, Engine, ItemMeta, Mode, Owner, ReadOnly, StoreConfig,
    StoreMode,
};
use rand::Rng;

const NOW: u32 = 5;
const HOT: &[u8] = b"hot";

fn config() -> StoreConfig {
    StoreConfig { backing: Backing::Memfd, partitions: Some(4), ..StoreConfig::new(4 << 20) }
}

/// The value of a key in a foreign table, and what its owner is to be told of the read.
fn read<M: Mode>(table: &ReadOnly<M>, key: &[u8], noted: &mut Vec<(KeyHash, u64)>) -> Option<usize> {
    let hash = table.hash(key);
    let answer = table.read(hash, key, NOW, |item| {
        (item.value_bytes(), table.is_noteworthy(hash, item).then_some((hash, item.slot_word())))
    });
    match answer {
        Answer::Found((len, note)) => {
            noted.extend(note);
            Some(len)
        }
        Answer::Missing => None,
        Answer::AskOwner => panic!("nobody interferes"),
    }
}

/// Stores others until an unread item would be gone several times, and reads one that only another process reads.
/// Returns how many reads its owner was told of, or nothing if it was lost.
fn stores_beside_remote_reads(
    table: &ReadOnly<CacheMode>,
    hot_len: usize,
    mut store: impl FnMut(&[u8], usize),
    mut tell: impl FnMut(&[(KeyHash, u64)]),
) -> Option<usize> {
    const STORES: u32 = 117_000;
    store(HOT, hot_len);
    let (mut noted, mut told) = (Vec::new(), 0);
    for number in 0..STORES {
        store(&number.to_le_bytes(), 100);
        if number % 100 == 0 {
            assert_eq!(read(table, HOT, &mut noted)?, hot_len);
        }
        if number % 500 == 0 {
            tell(&noted);
            told += noted.len();
            noted.clear();
        }
    }
    Some(told)
}

#[test]
fn what_only_others_read_stays_if_its_owner_is_told() {
    for tells in [true, false] {
        let cache = Cache::<Crcw>::create(&config()).unwrap();
        let table = ReadOnly::from_descriptor(cache.descriptor_to_read().unwrap()).unwrap();
        let store = |key: &[u8], len| {
            cache.entry(cache.hash(key), key, NOW).insert(&[&vec![7; len]], ItemMeta::default()).unwrap();
        };
        let tell = |noted: &[_]| {
            if tells {
                cache.note_reads(noted, NOW);
            }
        };
        let told = stores_beside_remote_reads(&table, 300, store, tell);
        assert_eq!(told.is_some(), tells, "the control is lost, and it alone");
        // A copy now and then is enough: most reads need not be told.
        assert!(told.is_none_or(|told| told < 700), "{told:?}");
        cache.check().unwrap();
    }
}

#[test]
fn owners_are_told_too() {
    let (engine, mut owners) = Cache::<Crew>::create_owned(&config(), 2).unwrap();
    let table = ReadOnly::from_descriptor(engine.descriptor_to_read().unwrap()).unwrap();
    let owners = std::cell::RefCell::new(&mut owners);
    let store = |key: &[u8], len| {
        let (hash, mut owners) = (engine.hash(key), owners.borrow_mut());
        let owner = owners.iter_mut().find(|owner| owner.owns(hash)).unwrap();
        owner.entry(hash, key, NOW).insert(&[&vec![7; len]], ItemMeta::default()).unwrap();
    };
    let tell = |noted: &[_]| owners.borrow_mut().iter_mut().for_each(|owner| owner.note_reads(noted, NOW));
    assert!(stores_beside_remote_reads(&table, 300, store, tell).is_some());
    Owner::check(&mut owners.borrow_mut()).unwrap();
}

fn a_read_is_noted_once<M: Mode>() {
    let engine = Engine::<M, Crcw>::create(&config()).unwrap();
    let table = ReadOnly::<M>::from_descriptor(engine.descriptor_to_read().unwrap()).unwrap();
    let set = |value: &[u8]| {
        engine.entry(engine.hash(HOT), HOT, NOW).insert(&[value], ItemMeta::default()).unwrap();
    };
    let was_fetched = || engine.entry(engine.hash(HOT), HOT, NOW).item().unwrap().was_fetched();
    let mut noted = Vec::new();
    set(b"value");
    read(&table, HOT, &mut noted);
    assert!(noted.len() == 1 && !was_fetched());
    // The item has another size by now: another slot.
    set(b"another value");
    engine.note_reads(&noted, NOW);
    assert!(!was_fetched());
    noted.clear();
    read(&table, HOT, &mut noted);
    engine.note_reads(&noted, NOW);
    assert!(was_fetched());
    read(&table, HOT, &mut noted);
    assert_eq!(noted.len(), 1, "it was noted already");
}

#[test]
fn a_read_of_an_item_is_noted_once() {
    a_read_is_noted_once::<StoreMode>();
    a_read_is_noted_once::<CacheMode>();
}

#[test]
fn any_note_is_harmless() {
    let cache = Cache::<Crcw>::create(&config()).unwrap();
    let key = |number: u32| number.to_le_bytes();
    for number in 0..60_000 {
        let key = key(number);
        cache.entry(cache.hash(&key), &key, NOW).insert(&[&[7; 60]], ItemMeta::default()).unwrap();
    }
    let mut random = seeded_stream(41, 0);
    let notes: Vec<_> = (0..20_000)
        .map(|_| match random.next_u32() % 3 {
            0 => (KeyHash(random.next_u64()), random.next_u64()),
            1 => (cache.hash(&key(random.next_u32() % 60_000)), random.next_u64()),
            _ => (KeyHash(random.next_u64()), 0),
        })
        .collect();
    cache.note_reads(&notes, NOW);
    cache.check().unwrap();
}
