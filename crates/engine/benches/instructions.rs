//! The operations that `cargo xtask instructions` counts: each one in each mode, a fixed number of times.
//!
//! Runs under callgrind, which counts within [`measured_operations`] only. Prints a line for each call of it:
//! the operation and its number of repetitions.

#![forbid(unsafe_code)]

#[allow(dead_code, missing_docs, unreachable_pub, reason = "shared by benches, none of which needs all")]
mod common;

use common::{Key, NOW, Table, config};
use minos_base::limits::BURST_MAX;
use minos_engine::{
    Access, Answer, Backing, Cache, Crcw, Crew, Erew, ItemMeta, Mode, OwnerState, Ownership, ReadOnly, Store,
    StoreConfig,
};
use std::hint::black_box;

/// Items of 8 + 8 bytes in each table.
const ITEMS: u64 = 8192;

/// Operations that are counted.
const OPERATIONS: u64 = 2048;

/// Room for far more, so that nothing is evicted or refused.
const MEMORY_BYTES: u64 = 16 << 20;

const VALUE: [u8; 8] = *b"instruct";
const OTHER_VALUE: [u8; 8] = *b"replaced";

fn main() {
    let keys = Keys::new();
    count("nothing", || keys.present.iter().for_each(|key| _ = black_box(key)));
    all::<Store<Erew>>(&keys);
    all::<Store<Crew>>(&keys);
    all::<Store<Crcw>>(&keys);
    all::<Cache<Erew>>(&keys);
    all::<Cache<Crew>>(&keys);
    all::<Cache<Crcw>>(&keys);
    foreign::<Store<Crcw>>(&keys);
    foreign::<Cache<Crcw>>(&keys);
}

/// The only function within which instructions are counted.
#[inline(never)]
fn measured_operations(run: &mut dyn FnMut()) {
    run();
    // Keeps the call above from becoming a tail call, which would leave this function too early.
    black_box(());
}

fn count(name: &str, mut run: impl FnMut()) {
    measured_operations(&mut run);
    println!("{name} {OPERATIONS}");
}

/// Keys of items that are there, and of others.
struct Keys {
    present: Vec<Key<8>>,
    absent: Vec<Key<8>>,
}

impl Keys {
    fn new() -> Self {
        let spread = |number| Key::new(number * (ITEMS / OPERATIONS));
        let absent = |number| Key::new(ITEMS + number);
        Self { present: (0..OPERATIONS).map(spread).collect(), absent: (0..OPERATIONS).map(absent).collect() }
    }
}

/// Every operation on a table of its own.
fn all<T: Table>(keys: &Keys) {
    reads::<T>(keys);
    one("put_replace", keys, |table: &mut T, keys| {
        each(&keys.present, |key| put(table, key, &OTHER_VALUE));
    });
    one("put_insert", keys, |table: &mut T, keys| each(&keys.absent, |key| put(table, key, &VALUE)));
    one("delete", keys, |table: &mut T, keys| {
        each(&keys.present, |key| table.entry(key.hash, &key.bytes).remove());
    });
    one("put_many", keys, |table: &mut T, keys| {
        bursts(
            &keys.present,
            |key| key.put(&OTHER_VALUE),
            |puts| {
                table.put_many(puts, |_, is_stored| assert!(is_stored));
            },
        );
    });
    one("delete_many", keys, |table: &mut T, keys| {
        bursts(&keys.present, Key::delete, |deletes| {
            table.delete_many(deletes, |_, was_there| assert!(was_there));
        });
    });
}

fn reads<T: Table>(keys: &Keys) {
    let get = |table: &mut T, key: &Key<8>| {
        table.engine().read(key.hash, &key.bytes, NOW, |item| black_box(item.value_u64())).is_some()
    };
    one("get_hit", keys, |table: &mut T, keys| each(&keys.present, |key| get(table, key)));
    one("get_miss", keys, |table: &mut T, keys| each(&keys.absent, |key| !get(table, key)));
    one("get_many", keys, |table: &mut T, keys| {
        bursts(&keys.present, Key::get, |gets| {
            table.engine().get_many(gets, NOW, |_, item| {
                assert!(black_box(item.and_then(|item| item.value_u64())).is_some());
            });
        });
    });
}

/// Reads in the memory of another node of a rack, which owns all keys.
fn foreign<T: Table>(keys: &Keys) {
    let config = StoreConfig { backing: Backing::Memfd, micro_shards: 1, ..config(MEMORY_BYTES) };
    let mut owner = T::create(&config).expect("memory for a small table");
    for number in 0..ITEMS {
        owner.load(&Key::<8>::new(number), &VALUE);
    }
    owner.engine().set_ownership(0, Ownership { epoch: 1, state: OwnerState::Owned });
    let memory = owner.engine().descriptor_to_read().expect("a memfd");
    let table = ReadOnly::<T::Mode>::from_descriptor(memory).expect("a region");
    let read =
        |key: &Key<8>| table.read_owned(0, key.hash, &key.bytes, NOW, |item| black_box(item.value_u64()));
    let name = |operation: &str| format!("{}.foreign.{operation}", T::Mode::NAME);
    count(&name("get_hit"), || each(&keys.present, |key| matches!(read(key), Answer::Found(_))));
    count(&name("get_miss"), || each(&keys.absent, |key| read(key) == Answer::Missing));
    count(&name("get_many"), || {
        for keys in keys.present.as_chunks::<BURST_MAX>().0 {
            keys.iter().for_each(|key| table.prefetch_bucket(key.hash));
            let staged = keys.each_ref().map(|key| table.stage_owned(0, key.hash));
            for (key, staged) in keys.iter().zip(&staged) {
                let answer =
                    table.read_staged_owned(staged, &key.get(), NOW, |item| black_box(item.value_u64()));
                assert!(matches!(answer, Answer::Found(_)));
            }
        }
    });
}

fn put<T: Table>(table: &mut T, key: &Key<8>, value: &[u8]) -> bool {
    table.entry(key.hash, &key.bytes).insert(&[value], ItemMeta::default()).is_ok()
}

/// Counts one operation on a table that is loaded for it.
fn one<T: Table>(operation: &str, keys: &Keys, mut run: impl FnMut(&mut T, &Keys)) {
    let mut table = T::create(&config(MEMORY_BYTES)).expect("memory for a small table");
    for number in 0..ITEMS {
        table.load(&Key::<8>::new(number), &VALUE);
    }
    let name = format!("{}.{}.{operation}", T::Mode::NAME, T::Access::NAME);
    count(&name, || run(&mut table, keys));
}

fn each(keys: &[Key<8>], mut run: impl FnMut(&Key<8>) -> bool) {
    keys.iter().for_each(|key| assert!(run(black_box(key))));
}

fn bursts<'a, T>(keys: &'a [Key<8>], operation: impl Fn(&'a Key<8>) -> T, mut run: impl FnMut(&[T])) {
    for keys in keys.as_chunks::<BURST_MAX>().0 {
        run(&keys.each_ref().map(&operation));
    }
}
