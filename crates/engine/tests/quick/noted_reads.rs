//! Reads by other processes count for eviction once the owner is told of them.

use minos_base::{KeyHash, seeded_stream};
use minos_engine::{
    Access, Answer, Backing, Cache, CacheMode, Crcw, Crew, Engine, ItemMeta, Mode, ReadOnly, StoreConfig,
    StoreMode,
};
use rand::Rng;
use std::thread;

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

/// The same with a cache whose partitions are this thread's.
fn stays<A: Access>(tell: impl Fn(&Cache<A>, &[(KeyHash, u64)])) -> Option<usize> {
    let cache = Cache::<A>::create(&config()).unwrap();
    let table = ReadOnly::from_descriptor(cache.descriptor_to_read().unwrap()).unwrap();
    let store = |key: &[u8], len| {
        cache.entry(cache.hash(key), key, NOW).insert(&[&vec![7; len]], ItemMeta::default()).unwrap();
    };
    let told = stores_beside_remote_reads(&table, 300, store, |noted| tell(&cache, noted));
    cache.check().unwrap();
    told
}

#[test]
fn what_only_others_read_stays_if_its_owner_is_told() {
    let is_told = [
        stays::<Crcw>(|cache, noted| cache.note_reads(noted, NOW)),
        stays::<Crew>(|cache, noted| cache.note_reads(noted, NOW)),
    ];
    // A copy now and then is enough: most reads need not be told.
    assert!(is_told.iter().all(|told| told.is_some_and(|told| told < 700)), "{is_told:?}");
    assert_eq!(stays::<Crcw>(|_, _| ()), None, "the control is lost");
}

#[test]
fn telling_another_than_the_owner_changes_nothing() {
    let tell = |cache: &Cache<Crew>, noted: &[_]| {
        thread::scope(|scope| scope.spawn(|| cache.note_reads(noted, NOW)).join().unwrap());
    };
    assert_eq!(stays(tell), None);
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
