//! Items go to flash, come back, are replaced and deleted.

mod common;

use common::{NOW, Rig, device, format, key, value};
use minos_device::{Device, LaneOptions, Request};
use minos_engine::{Backing, ItemMeta, Lookup, Named, ReadOnly, StoreConfig, Tiered, TieredMode};
use minos_flash::format::{Fault, Life, Seal, Superblock};
use minos_tier::{Contents, Durability, Entry, Format, FormatError, Memory, OpenError, Options, Place};
use rand::{RngExt, SeedableRng, rngs::StdRng};
use std::{collections::BTreeSet, sync::Arc, time::Duration};

/// About three times what memory holds.
const KEYS: u32 = 4000;

fn both() -> [Options; 2] {
    [Options::cache(), Options::store(Durability::None)]
}

fn fill(rig: &mut Rig, keys: u32, version: u32) {
    for number in 0..keys {
        assert!(rig.put(&key(number), &value(number, version)), "{number}");
    }
    rig.drive();
}

#[test]
fn items_that_leave_memory_are_found_on_flash() {
    for options in both() {
        let mut rig = Rig::new(options);
        fill(&mut rig, KEYS, 0);
        assert!(rig.tier.stats().engine.cold > u64::from(KEYS / 3), "{:?}", rig.tier.stats());
        for number in 0..KEYS {
            assert_eq!(rig.get(&key(number)), Ok(Some(value(number, 0))), "{number}");
            rig.turn();
        }
        assert_eq!(rig.get(b"another"), Ok(None));
        let stats = rig.tier.stats();
        assert_eq!((stats.engine.unwritten, stats.reads.read_missed), (0, 0), "{stats:?}");
        assert!(stats.engine.promoted > 1000 && stats.engine.put_back > 0, "{stats:?}");
        rig.tier.engine().check().unwrap();
    }
}

#[test]
fn a_cache_keeps_a_burst_that_flash_takes_afterwards() {
    const MEMORY_BYTES: u64 = 8 << 20;
    const KEYS: u32 = 40_000;
    /// About a twelfth of the memory.
    const BURST: u32 = 1000;
    let device = device(64 << 20);
    minos_tier::format(&device, &format()).unwrap();
    let mut rig = Rig::open_with(&device, Options::cache(), |config| {
        let config = StoreConfig { memory_bytes: MEMORY_BYTES, ..config.clone() };
        Tiered::create(&config).map(|it| (Arc::new(it), Memory::Empty))
    })
    .unwrap();
    for number in 0..KEYS {
        let (key, value) = (key(number), value(number, 0));
        let entry = Entry { key: &key, value: &value, meta: ItemMeta::default() };
        rig.store.put_many(&[entry], NOW, |_, stored| stored.unwrap());
        if number % BURST == 0 {
            rig.drive();
        }
    }
    let stats = rig.tier.stats();
    assert!(stats.engine.cold > u64::from(KEYS / 2), "{stats:?}");
    // One in 4,000 may go when the index takes room that the log has counted on.
    assert!(stats.engine.unwritten <= u64::from(KEYS / 4000), "{stats:?}");
}

/// Before the fix, what was on its way was given up.
#[test]
fn a_cache_finds_what_had_to_leave_memory_on_its_way() {
    let mut rig = Rig::new(Options::cache());
    fill(&mut rig, KEYS, 0);
    rig.store = rig.store.promoting(false);
    let put = |rig: &mut Rig, number: u32| {
        let (key, value) = (key(number), value(number, 0));
        let entry = Entry { key: &key, value: &value, meta: ItemMeta::default() };
        rig.store.put_many(&[entry], NOW, |_, stored| stored.unwrap());
    };
    // Copies begin, and are not written while all that memory holds has to leave.
    (KEYS..KEYS + 200).for_each(|number| put(&mut rig, number));
    rig.turn();
    (KEYS + 200..2 * KEYS).for_each(|number| put(&mut rig, number));
    let missing = |rig: &mut Rig| (0..2 * KEYS).filter(|&it| rig.get(&key(it)) == Ok(None)).count() as u64;
    let before = missing(&mut rig);
    let unwritten_reads = rig.tier.stats().reads.read_unwritten;
    rig.drive();
    let (after, stats) = (missing(&mut rig), rig.tier.stats());
    assert!(unwritten_reads > 0 && before == after + unwritten_reads, "{before} {after}: {stats:?}");
    assert_eq!((stats.engine.superseded, stats.reads.read_rotten), (0, 0), "{stats:?}");
    assert!(after <= stats.engine.unwritten + stats.engine.dropped, "{after}: {stats:?}");
    rig.tier.engine().check().unwrap();
}

#[test]
fn one_vector_finds_keys_in_memory_on_flash_and_nowhere() {
    let mut rig = Rig::new(Options::cache());
    fill(&mut rig, KEYS, 0);
    rig.store = rig.store.promoting(false);
    let keys: Vec<Vec<u8>> =
        (0..400).map(|at| if at % 4 == 3 { key(KEYS + at) } else { key(at * 10) }).collect();
    let names: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
    let cold = keys.iter().enumerate().filter(|(at, key)| at % 4 != 3 && rig.is_cold(key)).count();
    assert!((50..290).contains(&cold), "{cold}");
    let mut seen = vec![0; keys.len()];
    rig.store
        .get_many(&names, NOW, |at, got| {
            seen[at] += 1;
            let expected = (at % 4 != 3).then(|| value(at as u32 * 10, 0));
            assert_eq!(got, Ok(expected.as_deref()), "{at}");
        })
        .unwrap();
    assert!(seen.iter().all(|&times| times == 1));
    let reads = rig.tier.stats().reads;
    assert_eq!((reads.read_keys, reads.read_found), (cold as u64, cold as u64), "{reads:?}");
    assert!(reads.read_vectors < 20, "{reads:?}");
}

#[test]
fn of_records_on_two_pages_only_a_part_is_read() {
    for options in both() {
        let mut rig = Rig::new(options);
        let of = |number: u32| number.to_le_bytes().repeat(250);
        for number in 0..KEYS {
            assert!(rig.put(&key(number), &of(number)), "{number}");
        }
        rig.drive();
        rig.store = rig.store.promoting(false);
        for number in 0..KEYS {
            assert_eq!(rig.get(&key(number)), Ok(Some(of(number))), "{number}");
        }
        let reads = rig.tier.stats().reads;
        let bytes = reads.read_bytes as f64 / reads.read_records as f64;
        // One in four crosses. 3 KiB of its two pages are read, 4 KiB of another one's.
        assert!((3700.0..4000.0).contains(&bytes), "{reads:?}");
        assert_eq!((reads.read_again, reads.read_rotten), (0, 0), "{reads:?}");
    }
}

#[test]
fn a_walk_names_what_is_in_memory_and_on_flash() {
    let device = device(8 << 20);
    minos_tier::format(&device, &format()).unwrap();
    let mut rig = Rig::open_with(&device, Options::cache(), |config| {
        let config = StoreConfig { backing: Backing::Memfd, ..config.clone() };
        Tiered::create(&config).map(|it| (Arc::new(it), Memory::Empty))
    })
    .unwrap();
    fill(&mut rig, KEYS, 0);
    let memory = rig.tier.engine().descriptor_to_read().unwrap();
    let table = ReadOnly::<TieredMode>::from_descriptor(memory).unwrap();
    let (mut reader, mut keys) = (rig.tier.reader().unwrap(), BTreeSet::new());
    for partition in 0..table.partitions() {
        let mut cursor = Some(0);
        while let Some(from) = cursor {
            let mut hot = Vec::new();
            let look = |cold: &mut dyn FnMut(_)| {
                table.visit(partition, from, 16, NOW, |named| match named {
                    Named::Key(key) => hot.push(key.to_vec()),
                    Named::Record(slot) => cold(slot),
                })
            };
            let named = reader.names(&|| false, look, |name| _ = keys.insert(name.unwrap().1.to_vec()));
            cursor = named.unwrap().unwrap();
            keys.extend(hot);
        }
    }
    assert_eq!(keys, (0..KEYS).map(key).collect());
    let mut find = |key: &[u8]| {
        let found = reader.find((table.hash(key), key), NOW, &|| false, |found| found.value.len());
        found.unwrap().unwrap()
    };
    for number in 0..KEYS {
        let (key, value) = (key(number), value(number, 0));
        let expected = if rig.is_cold(&key) { Place::Flash(value.len()) } else { Place::Memory };
        assert_eq!(find(&key), expected, "{number}");
    }
    assert_eq!(find(b"another"), Place::None);
    let cold = (0..KEYS).map(key).find(|key| rig.is_cold(key)).unwrap();
    let given_up = reader.find((table.hash(&cold), &cold), NOW, &|| true, |_| ());
    assert!(given_up.is_err() || given_up.unwrap().is_ok_and(|place| place == Place::Flash(())));
}

/// A key whose old record on flash was hidden by a newer item, which went to flash, too, and has expired now. Nobody
/// has read it between.
fn replaced_by_what_expires(rig: &mut Rig) {
    // The scrubber never rests here.
    let push_out = |rig: &mut Rig, version| {
        (0..KEYS / 2).for_each(|number| assert!(rig.put(&key(number), &value(number, version))));
        (0..500).for_each(|_| _ = rig.turn());
        assert!(rig.is_cold(b"twice"));
    };
    assert!(rig.put(b"twice", b"old"));
    push_out(rig, 0);
    // Late enough to lie among the others.
    let expiry = NOW + 10_000;
    assert!(rig.put_with(b"twice", b"new", ItemMeta { expiry, ..ItemMeta::default() }));
    push_out(rig, 1);
    rig.now.seconds = expiry;
}

#[test]
fn what_expires_on_flash_uncovers_nothing_older() {
    for options in both() {
        let log = minos_flash::Options { scrub_bytes_s: 1 << 30, ..common::log_options(&options) };
        let mut rig = Rig::new(Options { log: Some(log), ..options });
        replaced_by_what_expires(&mut rig);
        assert_eq!(rig.tier.stats().log.expired_records, 0);
        (0..5000).for_each(|_| _ = rig.turn());
        assert_eq!(rig.tier.stats().log.expired_records, 1);
        assert_eq!(rig.get(b"twice"), Ok(None));
        assert_eq!(
            rig.tier.engine().find_cold(rig.tier.engine().hash(b"twice"), b"twice", NOW),
            Lookup::Missing
        );
    }
}

#[test]
fn flags_expiry_cas_and_marks_outlive_the_way() {
    let mut rig = Rig::new(Options::store(Durability::None));
    let meta = ItemMeta { flags: 77, expiry: 1000, stale: true, win_sent: true, ..ItemMeta::default() };
    assert!(rig.put_with(b"kept", b"value", meta));
    let engine = Arc::clone(rig.tier.engine());
    let hash = engine.hash(b"kept");
    let before = engine.read(hash, b"kept", NOW, |item| item.cas()).unwrap();
    fill(&mut rig, KEYS, 0);
    assert!(rig.is_cold(b"kept"));
    assert!(rig.store.fetch(b"kept", NOW).unwrap());
    let after = engine.read(hash, b"kept", NOW, |item| {
        (item.cas(), item.flags(), item.expiry(), item.is_stale(), item.is_win_sent())
    });
    assert_eq!(after, Some((before, 77, 1000, true, true)));
}

#[test]
fn what_was_replaced_or_deleted_on_flash_is_not_found() {
    for options in both() {
        let mut rig = Rig::new(options);
        fill(&mut rig, KEYS, 0);
        let cold: Vec<u32> = (0..KEYS).filter(|&number| rig.is_cold(&key(number))).collect();
        for (at, &number) in cold.iter().enumerate() {
            if at % 3 == 0 {
                assert!(rig.put(&key(number), &value(number, 1)));
            } else if at % 3 == 1 {
                let deleted = loop {
                    match rig.store.delete(&key(number), NOW) {
                        Ok(deleted) => break deleted,
                        Err(_) => drop(rig.turn()),
                    }
                };
                assert!(deleted, "{number}");
            }
            rig.turn();
        }
        rig.drive();
        for (at, &number) in cold.iter().enumerate() {
            let expected = [Some(value(number, 1)), None, Some(value(number, 0))][at % 3].clone();
            assert_eq!(rig.get(&key(number)), Ok(expected), "{number}");
            rig.turn();
        }
        let stats = rig.tier.stats();
        assert!(stats.keeper.tombstones_written > 1000, "{stats:?}");
        rig.tier.engine().check().unwrap();
    }
}

#[test]
fn a_store_that_nobody_syncs_goes_on() {
    let mut rig = Rig::new(Options::store(Durability::Flush));
    let mut random = StdRng::seed_from_u64(0);
    for version in 0..24_000 {
        let number = random.random_range(0..2000);
        if random.random_bool(0.8) {
            assert!(rig.put(&key(number), &value(number, version)), "{version}");
        } else {
            // A deletion is refused while too many tombstones wait.
            drop(rig.store.delete(&key(number), NOW));
            rig.turn();
        }
    }
    rig.drive();
    let stats = rig.tier.stats();
    assert!(stats.log.compacted_segments > 0 && stats.keeper.syncs > 0, "{stats:?}");
}

/// Older records of the keys must go, though nobody reads them.
#[test]
fn cold_items_of_a_store_are_overwritten_without_end() {
    const NUMBERS: u32 = 4000;
    for durability in [Durability::None, Durability::Flush] {
        let device = device(8 << 20);
        minos_tier::format(&device, &format()).unwrap();
        let mut rig = Rig::open(&device, Options::store(durability)).unwrap();
        let mut random = StdRng::seed_from_u64(0);
        for version in 0..8 * NUMBERS {
            let number = if version < NUMBERS { version } else { random.random_range(0..NUMBERS) };
            let value = [version as u8; 512];
            assert!(rig.put(&key(number), &value), "{durability:?}, {version}: {:?}", rig.keeper);
        }
        rig.drive();
        let stats = rig.tier.stats();
        assert!(stats.engine.cold < u64::from(NUMBERS) * 11 / 10, "{durability:?}: {:?}", stats.engine);
    }
}

/// Memory is half as large as the device: what is acknowledged must find room there.
#[test]
fn a_full_store_keeps_what_it_has_and_takes_more_when_some_is_deleted() {
    for durability in [Durability::None, Durability::Interval(100), Durability::Flush] {
        let device = device(8 << 20);
        minos_tier::format(&device, &format()).unwrap();
        let engine = |config: &StoreConfig| {
            let config = StoreConfig { memory_bytes: 4 << 20, ..config.clone() };
            Tiered::create(&config).map(|it| (Arc::new(it), Memory::Empty))
        };
        let options = Options::store(durability);
        let mut rig = Rig::open_with(&device, options, engine).unwrap();
        let fill = |rig: &mut Rig, first| {
            first
                + (first..20_000).take_while(|&number| rig.put(&key(number), &value(number, 0))).count()
                    as u32
        };
        let first = fill(&mut rig, 0);
        // Also now all can become durable; then it is known how much room it takes.
        rig.sync();
        let count = fill(&mut rig, first);
        assert!(first > 5000 && count < first * 5 / 4, "{durability:?}: {first} {count}");
        rig.sync();
        let deleted = count / 3;
        assert!((0..deleted).all(|number| rig.store.delete(&key(number), NOW).unwrap()));
        rig.drive();
        let mut random = StdRng::seed_from_u64(0);
        let mut versions = vec![0; count as usize];
        for version in 1..10_000 {
            let number = random.random_range(deleted..count);
            assert!(rig.put(&key(number), &value(number, version)), "{durability:?}: {:?}", rig.keeper);
            versions[number as usize] = version;
        }
        rig.sync();
        drop(rig);
        let mut rig = Rig::open_with(&device, options, engine).unwrap();
        for (number, version) in (0..).zip(versions) {
            let wanted = (number >= deleted).then(|| value(number, version));
            assert_eq!(rig.get(&key(number)), Ok(wanted), "{durability:?}, {number}");
        }
        rig.tier.engine().check().unwrap();
    }
}

/// Rough lengths count short records as half as long as they are, or three times. Before the fix, a store took more than
/// flash had room for after a restart, or nothing any more.
#[test]
fn a_store_knows_after_a_restart_how_full_it_is() {
    // Records of 7000 bytes have two pages each: where they end is not known, and they may count for all of these.
    for (value_bytes, share_max) in
        [(1, 1.03), (190, 1.03), (1000, 1.03), (4000, 1.03), (5000, 1.03), (7000, 1.17)]
    {
        let device = device(8 << 20);
        minos_tier::format(&device, &format()).unwrap();
        let mut rig = Rig::open(&device, Options::store(Durability::None)).unwrap();
        for number in 0..4_000_000 / (value_bytes as u32 + 100) {
            assert!(rig.put(&key(number), &vec![7; value_bytes]), "{number}: {:?}", rig.keeper);
        }
        rig.sync();
        let before = rig.tier.stats().state;
        drop(rig);
        let mut rig = Rig::open(&device, Options::store(Durability::None)).unwrap();
        rig.sync();
        let after = rig.tier.stats().state;
        let share = |before: u64, after: u64| after as f64 / before as f64;
        let live = share(before.live_bytes, after.live_bytes);
        let capacity = share(before.capacity_bytes, after.capacity_bytes);
        assert!((0.97..share_max).contains(&live), "{value_bytes}: {before:?} {after:?}");
        // Footers take a fifth of a segment of the shortest; ends of pages, a part of small segments like these, are not known.
        assert!(value_bytes > 1 || (0.95..1.05).contains(&capacity), "{before:?} {after:?}");
    }
}

/// Two of them do not fit the buffers of a reader.
#[test]
fn large_cold_items_of_a_store_are_overwritten_without_end() {
    const NUMBERS: u32 = 64;
    let usual = Options::store(Durability::None);
    // The least, which holds one record.
    let read_lane = LaneOptions { pool_bytes: 0, ..usual.read_lane };
    let mut rig = Rig::new(Options { read_lane, ..usual });
    let mut random = StdRng::seed_from_u64(0);
    let mut versions = [0; NUMBERS as usize];
    for version in 0..40 * NUMBERS {
        let number = if version < NUMBERS { version } else { random.random_range(0..NUMBERS) };
        versions[number as usize] = version;
        let value = vec![version as u8; 30_000];
        let stored = (0..200).any(|turns| {
            // The keeper gets a turn where it must, so that doubts gather.
            if turns > 0 {
                rig.turn();
            }
            let (key, mut stored) = (key(number), false);
            let entry = Entry { key: &key, value: &value, meta: ItemMeta::default() };
            rig.store.put_many(&[entry], NOW, |_, result| stored = result.is_ok());
            stored
        });
        assert!(stored, "{version}: {:?}", rig.keeper);
    }
    rig.drive();
    for (number, version) in (0..).zip(versions) {
        assert_eq!(rig.get(&key(number)), Ok(Some(vec![version as u8; 30_000])), "{number}");
    }
    let stats = rig.tier.stats();
    assert!(stats.engine.cold <= u64::from(NUMBERS), "{:?}", stats.engine);
}

#[test]
fn an_item_that_has_expired_on_flash_is_not_found() {
    let mut rig = Rig::new(Options::cache());
    assert!(rig.put_with(b"short", b"value", ItemMeta { expiry: NOW + 10, ..ItemMeta::default() }));
    fill(&mut rig, KEYS, 0);
    assert!(rig.is_cold(b"short"));
    rig.store = rig.store.promoting(false);
    assert_eq!(rig.get(b"short"), Ok(Some(b"value".to_vec())));
    rig.now.seconds = NOW + 10;
    assert_eq!(rig.get(b"short"), Ok(None));
    assert_eq!(rig.tier.stats().reads.read_dead, 1);
}

#[test]
fn everything_can_be_removed_and_stays_so() {
    for options in both() {
        let device = device(8 << 20);
        minos_tier::format(&device, &format()).unwrap();
        let mut rig = Rig::open(&device, options).unwrap();
        fill(&mut rig, KEYS, 0);
        let id = rig.tier.empty();
        while !rig.tier.is_emptied(id).unwrap() {
            rig.turn();
        }
        assert!((0..KEYS).all(|number| rig.get(&key(number)) == Ok(None)));
        assert!(rig.put(b"after", b"it"));
        rig.sync();
        drop(rig);
        let mut rig = Rig::open(&device, options).unwrap();
        assert_eq!((rig.recovered.records, rig.get(b"after")), (1, Ok(Some(b"it".to_vec()))));
    }
}

#[test]
fn a_cache_keeps_writing_when_the_device_is_full() {
    let device = device(8 << 20);
    minos_tier::format(&device, &format()).unwrap();
    let engine = |config: &StoreConfig| {
        let config = StoreConfig { memory_bytes: 4 << 20, ..config.clone() };
        Tiered::create(&config).map(|it| (Arc::new(it), Memory::Empty))
    };
    let mut rig = Rig::open_with(&device, Options::cache(), engine).unwrap();
    // Four times what the device holds.
    const MANY: u32 = 60_000;
    for number in 0..MANY {
        assert!(rig.put(&key(number), &value(number, 0)), "{number} {:?}", rig.tier.engine().stats());
    }
    rig.drive();
    rig.store = rig.store.promoting(false);
    let mut found = 0;
    for number in 0..MANY {
        match rig.get(&key(number)) {
            Ok(Some(got)) => {
                assert_eq!(got, value(number, 0), "{number}");
                found += 1;
            }
            other => assert_eq!(other, Ok(None)),
        }
    }
    let stats = rig.tier.stats();
    assert!(found > 10_000 && stats.log.dropped_records > 10_000, "{found} {stats:?}");
    rig.tier.engine().check().unwrap();
}

#[test]
fn a_clean_table_is_opened_with_everything() {
    for options in [Options::store(Durability::None), Options::store(Durability::Flush)] {
        let device = device(8 << 20);
        minos_tier::format(&device, &format()).unwrap();
        let mut rig = Rig::open(&device, options).unwrap();
        fill(&mut rig, KEYS, 0);
        fill(&mut rig, KEYS / 4, 1);
        rig.sync();
        drop(rig);
        let mut rig = Rig::open(&device, options).unwrap();
        assert_eq!(rig.recovered.records, u64::from(KEYS), "{:?}", rig.recovered);
        for number in 0..KEYS {
            let version = u32::from(number < KEYS / 4);
            assert_eq!(rig.get(&key(number)), Ok(Some(value(number, version))), "{number}");
            rig.turn();
        }
    }
}

/// A client may still hold the CAS unique of an item that went with the process.
#[test]
fn no_cas_unique_is_given_again_after_memory_was_lost() {
    let uniques = |rig: &mut Rig, version| {
        let engine = Arc::clone(rig.tier.engine());
        let unique = |number| {
            assert!(rig.put(&key(number), &value(number, version)));
            engine.read(engine.hash(&key(number)), &key(number), NOW, |item| item.cas()).unwrap()
        };
        (0..100).map(unique).collect::<Vec<u64>>()
    };
    for options in both().into_iter().chain([Options::store(Durability::Flush)]) {
        let device = device(8 << 20);
        minos_tier::format(&device, &format()).unwrap();
        let mut rig = Rig::open(&device, options).unwrap();
        uniques(&mut rig, 0);
        rig.sync();
        let before = uniques(&mut rig, 1);
        assert!(rig.store.delete(&key(99), NOW).unwrap());
        drop(rig);
        let mut rig = Rig::open(&device, options).unwrap();
        let after = uniques(&mut rig, 2);
        assert!(before.iter().max() < after.iter().min(), "{options:?}");
    }
}

/// The uniques of a node in a rack are that high.
#[test]
fn a_long_key_is_kept_whatever_its_sequence() {
    let durable = [Durability::Interval(50), Durability::Flush].map(Options::store);
    let (long, longer) = ([b'k'; 300], [b'k'; 20_000]);
    for options in both().into_iter().chain(durable) {
        let device = device(8 << 20);
        minos_tier::format(&device, &format()).unwrap();
        let mut rig = Rig::open(&device, options).unwrap();
        assert!(rig.put(&long, b"old"));
        fill(&mut rig, KEYS, 0);
        rig.tier.engine().pass_sequence(1 << 50);
        assert!(rig.put(&long, b"new"));
        // What a key has beyond 250 bytes counts as its value's.
        assert!(rig.put(&longer, &[1; (31 << 10) + 250 - 20_000]));
        fill(&mut rig, KEYS, 1);
        rig.sync();
        let stats = rig.tier.stats();
        assert_eq!(stats.keeper.too_large, 0, "{stats:?}");
        drop(rig);
        let mut rig = Rig::open(&device, options).unwrap();
        assert_eq!(rig.get(&long), Ok(Some(b"new".to_vec())), "{options:?}");
        assert!(rig.get(&longer).is_ok_and(|it| it.is_some()), "{options:?}");
    }
}

#[test]
fn nothing_is_formatted_that_is_not_ours() {
    let options = Options::cache();
    let device = device(8 << 20);
    assert_eq!(minos_tier::inspect(&device).unwrap(), Contents::Empty);
    assert!(matches!(Rig::open(&device, options), Err(OpenError::NotOurs(_))));
    let superblock = minos_tier::format(&device, &format()).unwrap();
    assert_eq!(minos_tier::inspect(&device).unwrap(), Contents::Table(superblock));
    // One of ours may be made anew, but its pages must not be taken for the new one's.
    assert!(matches!(minos_tier::format(&device, &format()), Err(FormatError::SameSeed)));
    minos_tier::format(&device, &Format { seed: 7, ..format() }).unwrap();

    let foreign = common::device(8 << 20);
    write(&foreign, 4096, |bytes| bytes.fill(0x53));
    assert_eq!(minos_tier::inspect(&foreign).unwrap(), Contents::Foreign);
    assert!(matches!(minos_tier::format(&foreign, &format()), Err(FormatError::Foreign)));
    assert!(matches!(Rig::open(&foreign, options), Err(OpenError::NotOurs(_))));
    assert_eq!(minos_tier::inspect(&foreign).unwrap(), Contents::Foreign, "it is as it was");
}

#[test]
fn a_byte_near_either_end_of_a_device_is_somebodys() {
    const DEVICE_BYTES: u64 = 8 << 20;
    for at in [65_600, 128 << 10, (1 << 20) - 1, DEVICE_BYTES - (1 << 20), DEVICE_BYTES - 1] {
        let device = device(DEVICE_BYTES);
        write(&device, at / 4096 * 4096, |bytes| bytes[at as usize % 4096] = 1);
        assert_eq!(minos_tier::inspect(&device).unwrap(), Contents::Foreign, "{at}");
        assert!(matches!(minos_tier::format(&device, &format()), Err(FormatError::Foreign)), "{at}");
    }
    let small = device(64 << 10);
    assert_eq!(minos_tier::inspect(&small).unwrap(), Contents::Empty);
}

/// Changes to a page of a table.
type Change = fn(&mut [u8]);

#[test]
fn a_table_that_something_else_was_written_into_is_left_as_it_is() {
    let partitions: Change = |page| {
        page[446..462].fill(0x80);
        page[510..512].copy_from_slice(&[0x55, 0xaa]);
    };
    let no_partition: Change = |page| page[510..512].copy_from_slice(&[0x55, 0xaa]);
    let swap: Change = |page| page[4086..].copy_from_slice(b"SWAPSPACE2");
    let letters: Change = |page| page.fill(b'a');
    for (number, change) in [partitions, no_partition, swap, letters].into_iter().enumerate() {
        for at in [0, 4096] {
            let device = device(8 << 20);
            let mut page = minos_tier::format(&device, &format()).unwrap().encode();
            change(&mut page);
            write(&device, at, |bytes| bytes.copy_from_slice(&page));
            let contents = minos_tier::inspect(&device).unwrap();
            assert_eq!(contents, Contents::Foreign, "{number} at {at}");
            let made = minos_tier::format(&device, &Format { seed: 7, ..format() });
            assert!(matches!(made, Err(FormatError::Foreign)), "{number} at {at}: {made:?}");
            let opened = Rig::open(&device, Options::cache());
            assert!(matches!(opened, Err(OpenError::NotOurs(_))), "{number} at {at}: {:?}", opened.err());
        }
    }
}

#[test]
fn a_table_of_which_a_superblock_rots_is_opened() {
    let zeros: Change = |page| page.fill(0);
    let torn: Change = |page| page[..64].fill(0xff);
    let a_field: Change = |page| page[3] ^= 0x10;
    let the_mark: Change = |page| page[8] ^= 1;
    let behind: Change = |page| page[2000] ^= 8;
    for (number, change) in [zeros, torn, a_field, the_mark, behind].into_iter().enumerate() {
        for at in [0, 4096] {
            let device = device(8 << 20);
            let superblock = minos_tier::format(&device, &format()).unwrap();
            let mut page = superblock.encode();
            change(&mut page);
            write(&device, at, |bytes| bytes.copy_from_slice(&page));
            let contents = minos_tier::inspect(&device).unwrap();
            assert_eq!(contents, Contents::Table(superblock), "{number} at {at}");
            assert!(Rig::open(&device, Options::cache()).is_ok(), "{number} at {at}");
        }
    }
}

#[test]
fn a_table_that_was_not_made_to_the_end_may_be_made_anew() {
    let whole = device(8 << 20);
    let superblock = minos_tier::format(&whole, &format()).unwrap();
    let device = device(8 << 20);
    write(&device, 0, |bytes| bytes.copy_from_slice(&Superblock::unfinished()));
    write(&device, superblock.layout.journal_at(0, 0), |bytes| bytes.fill(1));
    assert_eq!(minos_tier::inspect(&device).unwrap(), Contents::Unreadable(Fault::Checksum));
    assert!(matches!(Rig::open(&device, Options::cache()), Err(OpenError::NotOurs(_))));
    assert!(minos_tier::format(&device, &format()).is_ok());
}

#[test]
fn a_table_of_an_older_version_is_refused_and_may_be_made_anew() {
    for version in [Superblock::VERSION - 1, Superblock::VERSION + 1] {
        let device = device(8 << 20);
        let mut page = minos_tier::format(&device, &format()).unwrap().encode();
        page[16..20].copy_from_slice(&version.to_le_bytes());
        let sum = Seal::new(0).sum(Life::NONE, 0, &page[8..]);
        page[..8].copy_from_slice(&sum.to_le_bytes());
        [0, 4096].into_iter().for_each(|at| write(&device, at, |bytes| bytes.copy_from_slice(&page)));
        assert_eq!(minos_tier::inspect(&device).unwrap(), Contents::Unreadable(Fault::Version(version)));
        assert!(matches!(Rig::open(&device, Options::cache()), Err(OpenError::NotOurs(_))));
        let made = minos_tier::format(&device, &Format { seed: 7, ..format() });
        assert_eq!(made.is_ok(), version < Superblock::VERSION, "{made:?}");
    }
}

#[test]
fn a_table_is_not_opened_on_a_part_of_its_device() {
    let whole = device(8 << 20);
    let superblock = minos_tier::format(&whole, &format()).unwrap();
    let part = device(4 << 20);
    let mut read = Vec::new();
    let mut lane = whole.lane(&LaneOptions::default()).unwrap();
    let mut vector = vec![Request::read(0, 0, lane.buffer(4096).unwrap())];
    lane.submit_and_wait(&mut vector, 1, Duration::from_secs(10), &mut read).unwrap();
    write(&part, 0, |bytes| bytes.copy_from_slice(read[0].buffer.as_deref().unwrap()));
    assert_eq!(minos_tier::inspect(&part).unwrap(), Contents::Table(superblock));
    let opened = Rig::open(&part, Options::cache());
    assert!(matches!(opened, Err(OpenError::TooSmall { .. })), "{:?}", opened.err());
}

/// Writes a page.
fn write(device: &Device, offset: u64, fill: impl FnOnce(&mut [u8])) {
    let mut lane = device.lane(&LaneOptions::default()).unwrap();
    let mut buffer = lane.buffer(4096).unwrap();
    fill(&mut buffer);
    let mut vector = vec![Request::write(0, offset, buffer)];
    lane.submit_and_wait(&mut vector, 1, Duration::from_secs(10), &mut Vec::new()).unwrap();
}
