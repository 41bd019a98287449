//! Tests of single operations of the store.

use crate::common::{sweep_all, value};
use minos_base::Seconds;
use minos_engine::{Concat, ConcatError, ItemMeta, OutOfMemory, Pinned, Put, Side, Store, StoreConfig};
use std::{collections::BTreeSet, sync::Arc};

fn store(memory_bytes: u64) -> Arc<Store> {
    Arc::new(Store::create(&StoreConfig { partitions: Some(2), ..StoreConfig::new(memory_bytes) }).unwrap())
}

fn set(store: &Store, key: &[u8], value: &[u8], meta: ItemMeta) -> Result<u64, OutOfMemory> {
    store.entry(store.hash(key), key, 5).insert(&[value], meta)
}

#[test]
fn what_was_stored_is_read() {
    let store = store(8 << 20);
    let meta = ItemMeta { flags: 7, expiry: 100, ..ItemMeta::default() };
    for len in [0, 1, 7, 8, 100, 4096, 4097, 100_000, 3_000_000] {
        let bytes: Vec<u8> = (0..len).map(|at| at as u8).collect();
        let cas = set(&store, b"key", &bytes, meta).unwrap();
        assert_eq!(value(&store, b"key", 6).unwrap(), bytes);
        let hash = store.hash(b"key");
        let state = store.read(hash, b"key", 6, |item| **item).unwrap();
        assert_eq!((state.flags(), state.expiry(), state.cas()), (7, 100, cas));
        assert_eq!(state.value_bytes(), bytes.len());
        assert_eq!(store.size_class(hash), Some(minos_base::SizeClass::of(len)));
        assert_eq!(store.pin(hash, b"key", 6).unwrap().value(), bytes);
        assert_eq!(store.entry(hash, b"key", 6).item().unwrap().value(), bytes);
        store.check().unwrap();
    }
    assert_eq!(value(&store, b"other", 6), None);
    assert_eq!(store.stats().items, 1);
}

#[test]
fn expired_items_are_gone_and_swept() {
    let store = store(1 << 20);
    for number in 0..100 {
        let meta = ItemMeta { expiry: 10 + number % 2 * 10, ..ItemMeta::default() };
        set(&store, &number.to_le_bytes(), b"value", meta).unwrap();
    }
    assert!(value(&store, &4u32.to_le_bytes(), 9).is_some());
    assert!(value(&store, &4u32.to_le_bytes(), 10).is_none());
    assert!(value(&store, &5u32.to_le_bytes(), 10).is_some());
    let mut expired = 0;
    for partition in 0..store.partitions() {
        while !{
            let swept = store.sweep(partition, 7, 15);
            assert!(swept.buckets <= 7);
            expired += swept.expired;
            swept.pass_ended
        } {}
    }
    assert_eq!((expired, store.stats().items, store.stats().expired_reclaimed), (50, 50, 50));
    store.check().unwrap();
}

/// However an item got it: new, over a value of the same and of another length, and by itself.
#[test]
fn the_first_expiry_is_told_of() {
    let store = store(1 << 20);
    let put = |value: &[u8], expiry| {
        let staged = store.stage(store.hash(b"key"));
        let meta = ItemMeta { expiry, ..ItemMeta::default() };
        let put = Put { hash: store.hash(b"key"), key: b"key", value, meta };
        store.put_staged(&staged, &put, 5).unwrap();
    };
    let ways: [&dyn Fn(u32); 6] = [
        &|expiry| put(b"first", expiry),
        &|expiry| put(b"equal", expiry),
        &|expiry| put(b"longer than before", expiry),
        &|expiry| {
            let meta = ItemMeta { expiry, ..ItemMeta::default() };
            set(&store, b"key", b"shorter", meta).unwrap();
        },
        &|expiry| store.entry(store.hash(b"key"), b"key", 5).set_expiry(expiry),
        &|expiry| put(&[1; 10_000], expiry),
    ];
    let mut told = store.sweep_orders(5);
    for (way, store_it) in ways.into_iter().enumerate() {
        store_it(0);
        store_it(Seconds::MAX);
        let expiry = 10 * way as u32 + 10;
        store_it(expiry);
        assert_eq!(store.sweep_orders(expiry - 1), told, "way {way}");
        assert_ne!(store.sweep_orders(expiry), told, "way {way}");
        told = store.sweep_orders(expiry);
        assert_eq!(store.sweep_orders(expiry + 1), told, "way {way}");
    }
}

#[test]
fn a_flush_ends_everything_before_it() {
    let store = store(1 << 20);
    for round in 0..20u32 {
        set(&store, b"old", b"value", ItemMeta::default()).unwrap();
        set(&store, &round.to_le_bytes(), b"value", ItemMeta::default()).unwrap();
        store.flush();
        for before in 0..=round {
            assert_eq!(value(&store, &before.to_le_bytes(), 6), None, "{before} in {round}");
        }
        assert_eq!(value(&store, b"old", 6), None);
        set(&store, b"new", b"value", ItemMeta::default()).unwrap();
        assert!(value(&store, b"new", 6).is_some());
    }
    assert!(store.entry(store.hash(b"new"), b"new", 6).remove());
    sweep_all(&store, 6);
    assert_eq!((store.stats().items, store.stats().flushed_reclaimed), (0, 59));
}

#[test]
fn pinned_bytes_stay() {
    let store = store(8 << 20);
    let (hash, old) = (store.hash(b"key"), vec![1; 1_000_000]);
    set(&store, b"key", &old, ItemMeta::default()).unwrap();
    let pinned = [store.pin(hash, b"key", 6).unwrap(), store.pin(hash, b"key", 6).unwrap()];
    assert_eq!(store.stats().pinned, 1);
    store.entry(hash, b"key", 6).overwrite_value(3, b"new").unwrap();
    assert_eq!(value(&store, b"key", 6).unwrap()[..8], *b"\x01\x01\x01new\x01\x01");
    assert!(store.entry(hash, b"key", 6).remove());
    set(&store, b"key", &vec![2; 1_000_000], ItemMeta::default()).unwrap();
    for pinned in pinned {
        assert_eq!(pinned.value(), old);
        store.check().unwrap();
    }
    assert_eq!(store.stats().pinned, 0);
    store.entry(hash, b"key", 6).remove();
    store.check().unwrap();
    assert_eq!(store.stats().items, 0);
}

#[test]
fn a_part_of_a_large_value_is_written_over() {
    let store = store(8 << 20);
    let (hash, old) = (store.hash(b"key"), vec![1; 100_000]);
    let patch = |old: Option<&Pinned>, at, bytes: &[u8]| match store.patch((hash, b"key"), old, (at, bytes)) {
        Ok(patched) => store.entry(hash, b"key", 6).put_in_place_of(old, patched),
        Err(error) => Some(Err(error)),
    };
    assert!(store.patches_large(hash, 100_000) && !store.patches_large(hash, 10));
    patch(None, 99_999, b"\x01").unwrap().unwrap();
    assert_eq!(value(&store, b"key", 6).unwrap(), [vec![0; 99_999], vec![1]].concat());
    assert_eq!(patch(None, 0, b"x"), None, "there is an item by now");
    set(&store, b"key", &old, ItemMeta { flags: 7, expiry: 20, ..ItemMeta::default() }).unwrap();
    assert!(store.patches_large(hash, 1));
    let mut expected = old;
    for (at, bytes, end) in [
        (0, "begin", 100_000),
        (50_000, "middle", 100_000),
        (99_998, "end", 100_001),
        (100_004, "gap", 100_007),
    ] {
        let pinned = store.pin(hash, b"key", 6).unwrap();
        let cas = patch(Some(&pinned), at, bytes.as_bytes()).unwrap().unwrap();
        assert_eq!(patch(Some(&pinned), at, b"late"), None, "it was replaced");
        expected.resize(end, 0);
        expected[at..at + bytes.len()].copy_from_slice(bytes.as_bytes());
        let item = store.pin(hash, b"key", 6).unwrap();
        assert_eq!(item.value(), expected, "{bytes}");
        assert_eq!((item.flags(), item.expiry(), item.cas()), (7, 20, cas));
    }
    let pinned = store.pin(hash, b"key", 6).unwrap();
    store.entry(hash, b"key", 6).remove();
    assert_eq!(patch(Some(&pinned), 0, b"late"), None, "it is gone");
    assert_eq!(patch(Some(&pinned), 8 << 20, b"far"), Some(Err(OutOfMemory)));
    drop(pinned);
    store.check().unwrap();
    assert_eq!((store.stats().items, store.stats().pinned), (0, 0));
}

#[test]
fn memory_comes_back() {
    let store = store(4 << 20);
    let before = store.stats().used_bytes;
    for round in 0..3 {
        let mut stored = 0u32;
        while set(&store, &stored.to_le_bytes(), &[round; 3000], ItemMeta::default()).is_ok() {
            stored += 1;
        }
        assert!(stored > 1000, "{stored}");
        assert_eq!(value(&store, &0u32.to_le_bytes(), 6).unwrap(), [round; 3000]);
        assert!(set(&store, b"large", &vec![round; 100_000], ItemMeta::default()).is_err());
        store.check().unwrap();
        for number in 0..stored {
            assert!(store.entry(store.hash(&number.to_le_bytes()), &number.to_le_bytes(), 6).remove());
        }
        store.check().unwrap();
        // Small memory serves large items afterwards.
        set(&store, b"large", &vec![round; 2_000_000], ItemMeta::default()).unwrap();
        assert!(store.entry(store.hash(b"large"), b"large", 6).remove());
    }
    assert_eq!(store.stats().out_of_memory, 6);
    assert!(store.stats().used_bytes < before + (1 << 20), "{:?}", store.stats());
}

#[test]
fn reservations_are_linked_or_given_back() {
    let store = store(4 << 20);
    let hash = store.hash(b"key");
    for len in [10u64, 5_000, 1_000_000] {
        for _ in 0..10 {
            drop(store.reserve(hash, b"key", len).unwrap());
        }
        let mut reservation = store.reserve(hash, b"key", len).unwrap();
        reservation.value_mut().fill(9);
        assert_eq!(reservation.value_bytes(), len);
        store
            .entry(hash, b"key", 6)
            .commit(reservation, ItemMeta { flags: 3, ..ItemMeta::default() })
            .unwrap();
        assert_eq!(value(&store, b"key", 6).unwrap(), vec![9; len as usize]);
        store.check().unwrap();
    }
    assert!(store.reserve(hash, b"key", 1 << 30).is_err());
    assert_eq!(store.stats().out_of_memory, 1);
}

#[test]
fn the_index_grows_without_losing_anything() {
    let store = store(64 << 20);
    const ITEMS: u32 = 200_000;
    for number in 0..ITEMS {
        set(&store, &number.to_le_bytes(), &number.to_le_bytes(), ItemMeta::default()).unwrap();
    }
    for number in 0..ITEMS {
        assert_eq!(value(&store, &number.to_le_bytes(), 6).unwrap(), number.to_le_bytes());
    }
    store.check().unwrap();
    let mut seen = 0;
    for partition in 0..store.partitions() {
        let mut cursor = Some(0);
        while let Some(at) = cursor {
            cursor = store.visit(partition, at, 100, 6, |_, _| seen += 1);
        }
    }
    assert_eq!(seen, ITEMS);
    let stats = store.stats();
    assert!(stats.buckets > u64::from(ITEMS) / 5 && stats.chain_buckets_max < 6, "{stats:?}");
    assert!(stats.overhead_bytes_per_item() < 56.0, "{} {stats:?}", stats.overhead_bytes_per_item());
}

#[test]
fn a_walk_finds_all_that_is_there_while_the_index_grows() {
    let store = Store::create(&StoreConfig { partitions: Some(1), ..StoreConfig::new(8 << 20) }).unwrap();
    let put = |number: u32| {
        let bytes = number.to_le_bytes();
        set(&store, &bytes, &bytes, ItemMeta::default()).unwrap();
    };
    const ITEMS: u32 = 200;
    (0..ITEMS).for_each(put);
    let mut seen = BTreeSet::new();
    let mut cursor = Some(0);
    while let Some(at) = cursor {
        let mut more = ITEMS..if at == 0 { 10 * ITEMS } else { 0 };
        // One slice is to have all the buckets, and the index grows within it.
        cursor = store.visit(0, at, usize::MAX, 6, |key, _| {
            more.by_ref().for_each(put);
            seen.insert(u32::from_le_bytes(key.try_into().unwrap()));
        });
    }
    assert_eq!((0..ITEMS).filter(|number| !seen.contains(number)).collect::<Vec<_>>(), []);
    // A cursor that nobody gave leads nowhere.
    assert_eq!(store.visit(0, u64::MAX, usize::MAX, 6, |_, _| panic!("there is no such bucket")), None);
}

#[test]
fn joining_keeps_what_was_there() {
    let store = store(8 << 20);
    let hash = store.hash(b"key");
    let concat =
        |side, extra, compare| store.concat(hash, b"key", 6, &Concat { side, extra, compare, cas: None });
    assert_eq!(concat(Side::Back, b"x", None), Err(ConcatError::Missing));
    for len in [3, 100_000] {
        let cas =
            set(&store, b"key", &vec![b'm'; len], ItemMeta { flags: 4, expiry: 50, ..Default::default() })
                .unwrap();
        assert_eq!(concat(Side::Back, b"x", Some(cas + 1)), Err(ConcatError::Changed));
        assert_eq!(store.entry(hash, b"key", 6).item().map(|item| item.was_fetched()), Some(false));
        concat(Side::Back, b"end", Some(cas)).unwrap();
        concat(Side::Front, b"begin", None).unwrap();
        let expected = [&b"begin"[..], &vec![b'm'; len], b"end"].concat();
        assert_eq!(value(&store, b"key", 6).unwrap(), expected);
        let state = store.read(hash, b"key", 6, |item| **item).unwrap();
        assert_eq!((state.flags(), state.expiry()), (4, 50));
    }
    store.check().unwrap();
}

#[test]
fn a_join_in_slices_sees_what_happens_meanwhile() {
    let store = store(8 << 20);
    let hash = store.hash(b"key");
    let concat = Concat { side: Side::Back, extra: b"end", compare: None, cas: None };
    let large = vec![b'm'; 100_000];
    set(&store, b"key", &large, ItemMeta::default()).unwrap();
    let begun = || {
        let mut joining = store.begin_concat(hash, b"key", 6, &concat).unwrap();
        assert_eq!(joining.copy(concat.extra, 1001), 1001);
        joining
    };

    let mut touched = begun();
    store.entry(hash, b"key", 6).set_expiry(90);
    while touched.copy(concat.extra, 1001) > 0 {}
    touched.finish(&store, b"key", 6, &concat).unwrap().unwrap();
    assert_eq!(value(&store, b"key", 6).unwrap(), [&large[..], b"end"].concat());
    assert_eq!(store.read(hash, b"key", 6, |item| item.expiry()), Some(90));

    let replaced = begun();
    set(&store, b"key", &large, ItemMeta::default()).unwrap();
    assert!(replaced.finish(&store, b"key", 6, &concat).is_none());
    let removed = begun();
    store.entry(hash, b"key", 6).remove();
    assert!(removed.finish(&store, b"key", 6, &concat).is_none());
    assert_eq!(value(&store, b"key", 6), None);
    store.check().unwrap();
}

#[test]
fn accesses_are_written_down() {
    let store = store(1 << 20);
    let hash = store.hash(b"key");
    set(&store, b"key", b"value", ItemMeta::default()).unwrap();
    let look = |now| {
        let state = store.read(hash, b"key", now, |item| **item).unwrap();
        (state.was_fetched(), state.last_access())
    };
    assert_eq!(look(7), (false, 5));
    assert_eq!(look(20), (true, 7));
    assert_eq!(look(67), (true, 7));
    assert_eq!(look(68), (true, 67));
}

#[test]
fn marks_and_numbers_are_kept() {
    let store = store(1 << 20);
    let hash = store.hash(b"key");
    set(&store, b"key", b"10", ItemMeta { cas: Some(77), ..ItemMeta::default() }).unwrap();
    let mut entry = store.entry(hash, b"key", 6);
    assert_eq!(entry.item().unwrap().cas(), 77);
    entry.set_stale(true);
    entry.set_win_sent(true);
    entry.set_expiry(90);
    entry.set_cas(5);
    let item = entry.item().unwrap();
    assert_eq!((item.is_stale(), item.is_win_sent(), item.expiry(), item.cas()), (true, true, 90, 5));
    drop(item);
    let cas = entry.overwrite_value(0, b"9 ").unwrap();
    assert!(entry.overwrite_value(1, b"99").is_err());
    let item = entry.item().unwrap();
    assert_eq!((item.value(), item.cas(), item.is_stale()), (&b"9 "[..], cas, true));
}

#[test]
fn a_lower_limit_refuses_what_needs_more_and_keeps_the_rest() {
    let store = store(16 << 20);
    let large = vec![7; 1 << 20];
    for key in [b"a", b"b", b"c", b"d"] {
        set(&store, key, &large, ItemMeta::default()).unwrap();
    }
    assert!(!store.set_memory_limit(17 << 20));
    assert!(store.set_memory_limit(4 << 20));
    assert_eq!(store.memory_limit(), 4 << 20);
    assert!(set(&store, b"e", &large, ItemMeta::default()).is_err());
    assert_eq!(value(&store, b"a", 6).unwrap(), large);
    assert!(store.set_memory_limit(16 << 20));
    set(&store, b"e", &large, ItemMeta::default()).unwrap();
}

#[test]
fn the_largest_value_changes_within_the_room_of_buffers() {
    let config =
        StoreConfig { value_bytes_max: 1000, buffer_bytes_max: Some(1 << 20), ..StoreConfig::new(16 << 20) };
    let store = Store::create(&config).unwrap();
    let large = vec![7; 1 << 20];
    assert!(set(&store, b"a", &large, ItemMeta::default()).is_err());
    assert!(!store.set_value_bytes_max((1 << 20) + 1));
    assert_eq!((store.value_bytes_max(), store.value_bytes_room()), (1000, 1 << 20));
    assert!(store.set_value_bytes_max(1 << 20));
    set(&store, b"a", &large, ItemMeta::default()).unwrap();
    assert!(store.set_value_bytes_max(10));
    assert!(set(&store, b"b", &large, ItemMeta::default()).is_err());
    assert_eq!(value(&store, b"a", 6).unwrap(), large);
}

#[test]
#[should_panic(expected = "an entry of another table")]
fn an_item_is_pinned_in_its_own_table() {
    let stores = [b'a', b'b'].map(|byte| {
        let store = store(8 << 20);
        set(&store, b"key", &vec![byte; 200_000], ItemMeta::default()).unwrap();
        store
    });
    let pinned = stores[0].entry(stores[0].hash(b"key"), b"key", 6).pin(&stores[1]).unwrap();
    assert_eq!(pinned.value()[0], b'a');
}
