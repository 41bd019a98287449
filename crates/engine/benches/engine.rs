//! `cargo bench -p minos-engine`: reads and writes of the sizes of MICA §5.1, one thread, with and without
//! prefetching. `lab/rivals` has the same measurements of other tables.

#![forbid(unsafe_code)]

#[allow(dead_code, missing_docs, unreachable_pub, reason = "shared by benches, none of which needs all")]
mod common;

use common::{Key, NOW, Table, config};
use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use minos_base::{limits::BURST_MAX, seeded};
use minos_engine::{Crcw, Erew, Get, Store, StoreConfig};
use rand::RngExt;
use rand_distr::{Distribution, Zipf};
use std::{hint::black_box, time::Duration};

/// Bytes of all keys and values: far more than the caches nearest to a core hold.
const DATA_BYTES: u64 = 256 << 20;

/// Most items: tiny ones would take long to load.
const ITEMS_MAX: u64 = 2 << 20;

/// Overhead of an item beside key and value, in bytes: header, heap and index, with room to replace.
const ITEM_OVERHEAD_BYTES: u64 = 112;

/// Operations that are made beforehand, and run again and again.
const OPERATIONS: usize = 1 << 19;

const ZIPF_EXPONENT: f64 = 0.99;

/// Shares of the reads in percent.
const GET_PERCENTS: [u32; 2] = [95, 50];

criterion_group! {
    name = benches;
    config = Criterion::default()
        .sample_size(10)
        .warm_up_time(Duration::from_millis(300))
        .measurement_time(Duration::from_secs(1))
        .without_plots();
    targets = tiny, small, large
}
criterion_main!(benches);

fn tiny(criterion: &mut Criterion) {
    compare::<8, 8>(criterion, "tiny");
}

fn small(criterion: &mut Criterion) {
    compare::<16, 64>(criterion, "small");
}

fn large(criterion: &mut Criterion) {
    compare::<128, 1024>(criterion, "large");
}

fn compare<const KEY: usize, const VALUE: usize>(criterion: &mut Criterion, name: &str) {
    let items = (DATA_BYTES / (KEY + VALUE) as u64).min(ITEMS_MAX);
    for depth in [BURST_MAX, 1] {
        bench::<Store<Erew>, KEY, VALUE>(criterion, &format!("{name}/erew"), items, depth);
        bench::<Store<Crcw>, KEY, VALUE>(criterion, &format!("{name}/crcw"), items, depth);
    }
}

/// One table, all mixes.
fn bench<T: Table, const KEY: usize, const VALUE: usize>(
    criterion: &mut Criterion,
    name: &str,
    items: u64,
    prefetch_depth: usize,
) {
    let memory_bytes = items * ((KEY + VALUE) as u64 + ITEM_OVERHEAD_BYTES) + (64 << 20);
    let config = StoreConfig { prefetch_depth, ..config(memory_bytes) };
    let mut table = T::create(&config).expect("memory for the table");
    (0..items).for_each(|number| table.load(&Key::<KEY>::new(number), &[7; VALUE]));
    let mut group = criterion.benchmark_group(name);
    group.throughput(Throughput::Elements(BURST_MAX as u64));
    for (popularity, ranks) in [("uniform", uniform as fn(u64) -> Vec<u64>), ("zipf", zipf)] {
        let keys: Vec<Key<KEY>> = ranks(items).into_iter().map(Key::new).collect();
        for get_percent in GET_PERCENTS {
            let prefetched = if prefetch_depth > 1 { "prefetched" } else { "not prefetched" };
            let gets = BURST_MAX * get_percent as usize / 100;
            let mut bursts = keys.as_chunks::<BURST_MAX>().0.iter().cycle();
            let mut out = Vec::with_capacity(VALUE + 8);
            group.bench_function(format!("{popularity}/{get_percent} % GET/{prefetched}"), |bencher| {
                bencher.iter(|| {
                    let (gets, puts) = bursts.next().map(|keys| keys.split_at(gets)).unwrap_or_default();
                    run::<T, KEY, VALUE>(&mut table, gets, puts, &mut out);
                });
            });
        }
    }
}

/// A burst: its reads together, then its writes together.
fn run<T: Table, const KEY: usize, const VALUE: usize>(
    table: &mut T,
    gets: &[Key<KEY>],
    puts: &[Key<KEY>],
    out: &mut Vec<u8>,
) {
    let mut burst = [Get { hash: gets[0].hash, key: &[] }; BURST_MAX];
    burst.iter_mut().zip(gets).for_each(|(get, key)| *get = key.get());
    table.engine().get_many(&burst[..gets.len()], NOW, |_, item| {
        out.clear();
        item.expect("every item is there").copy_value_to(out);
        black_box(&*out);
    });
    let value = [8; VALUE];
    let mut burst = [puts[0].put(&value); BURST_MAX];
    burst.iter_mut().zip(puts).for_each(|(put, key)| *put = key.put(&value));
    table.put_many(&burst[..puts.len()], |_, is_stored| assert!(is_stored));
}

fn uniform(items: u64) -> Vec<u64> {
    let mut random = seeded(1);
    (0..OPERATIONS).map(|_| random.random_range(0..items)).collect()
}

fn zipf(items: u64) -> Vec<u64> {
    let mut random = seeded(1);
    let ranks = Zipf::new(items as f64, ZIPF_EXPONENT).expect("a valid exponent");
    (0..OPERATIONS).map(|_| ranks.sample(&mut random) as u64 - 1).collect()
}
