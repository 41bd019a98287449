//! One thread keeps, others read and write.

mod common;

use common::{NOW, Rig, device, key, value};
use minos_device::{Device, MemoryOptions, ServiceTime};
use minos_engine::ItemMeta;
use minos_tier::{Durability, Entry, Keeper, Now, Options, Tier, TieredStore};
use rand::{RngExt, SeedableRng, rngs::StdRng};
use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    thread,
    time::{Duration, Instant},
};

const CLIENTS: u32 = 2;
const KEYS: u32 = 3000;
const ROUNDS: u32 = 600;
const WIDTH: usize = 16;

/// Longer than any sync takes that is not stuck.
const PATIENCE: Duration = Duration::from_secs(120);

fn keep(mut keeper: Keeper, done: &AtomicBool) {
    let begun = Instant::now();
    while !done.load(Relaxed) {
        let now = Now { us: begun.elapsed().as_micros() as u64, seconds: NOW };
        let turn = keeper.turn(now).unwrap();
        keeper.rest_for(&turn).unwrap();
    }
}

/// Writes and deletes its own keys, and reads those of all.
fn client(tier: &Arc<Tier>, number: u32, is_lossless: bool) {
    let mut store = TieredStore::new(tier).unwrap();
    let mut random = StdRng::seed_from_u64(u64::from(number));
    let mut own: HashMap<u32, u32> = HashMap::new();
    for round in 1..=ROUNDS {
        let keys: Vec<u32> = (0..WIDTH).map(|_| random.random_range(0..KEYS)).collect();
        for &wanted in keys.iter().filter(|&wanted| wanted % CLIENTS == number) {
            if random.random_bool(0.8) {
                let (key, value) = (key(wanted), value(wanted, round));
                let entry = Entry { key: &key, value: &value, meta: ItemMeta::default() };
                store.put_many(&[entry], NOW, |_, stored| {
                    if stored.is_ok() {
                        own.insert(wanted, round);
                    }
                });
            } else if store.delete(&key(wanted), NOW).is_ok() {
                own.remove(&wanted);
            }
        }
        let names: Vec<Vec<u8>> = keys.iter().map(|&number| key(number)).collect();
        let names: Vec<&[u8]> = names.iter().map(Vec::as_slice).collect();
        let mut answers = 0;
        store
            .get_many(&names, NOW, |at, got| {
                answers += 1;
                let (wanted, got) = (keys[at], got.unwrap());
                if wanted % CLIENTS != number {
                    let is_whole = |got: &[u8]| (0..=ROUNDS).any(|round| got == value(wanted, round));
                    assert!(got.is_none_or(is_whole), "{wanted}");
                    return;
                }
                let expected = own.get(&wanted).map(|&round| value(wanted, round));
                let may_miss = got.is_none() && !is_lossless;
                assert!(may_miss || got == expected.as_deref(), "{wanted}");
            })
            .unwrap();
        assert_eq!(answers, WIDTH);
        if round.is_multiple_of(50) {
            // The keeper may get no processor for a while.
            let synced = tier.wait_synced(store.sync(), PATIENCE);
            assert!(if is_lossless { synced == Ok(true) } else { synced != Ok(false) }, "{synced:?}");
        }
    }
}

fn run(device: &Device, options: Options) {
    minos_tier::format(device, &common::format()).unwrap();
    let Rig { tier, keeper, store, .. } = Rig::open(device, options).unwrap();
    drop(store);
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        let keeping = scope.spawn(|| keep(keeper, &done));
        let tier = &tier;
        let clients: Vec<_> = (0..CLIENTS)
            .map(|number| scope.spawn(move || client(tier, number, options.is_lossless)))
            .collect();
        let results: Vec<_> = clients.into_iter().map(|client| client.join()).collect();
        done.store(true, Relaxed);
        keeping.join().unwrap();
        results.into_iter().for_each(|result| result.unwrap());
    });
    let stats = tier.stats();
    assert!(stats.reads.read_found > 100 && stats.engine.written > 1000, "{stats:?}");
    assert!(!options.is_lossless || stats.engine.unwritten == 0, "{stats:?}");
    tier.engine().check().unwrap();
}

#[test]
fn a_cache_answers_right_while_a_thread_keeps_it() {
    run(&device(8 << 20), Options::cache());
}

#[test]
fn a_store_answers_right_while_a_thread_keeps_it() {
    run(&device(8 << 20), Options::store(Durability::Flush));
}

#[test]
fn a_device_that_takes_time_changes_nothing() {
    let options = MemoryOptions {
        capacity_bytes: 8 << 20,
        service_time: Some(ServiceTime::of_the_paper()),
        ..MemoryOptions::default()
    };
    run(&Device::in_memory(&options), Options::store(Durability::Interval(5)));
}
