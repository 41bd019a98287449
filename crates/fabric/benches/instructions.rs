//! Reads of items of 8 + 8 bytes: of an engine's own memory, beside it over a memfd, and over each fabric, one key at a
//! time and 32.
//!
//! With `--times` it prints the processor time of each in nanoseconds, the least of some rounds. Otherwise it runs each
//! once, under callgrind, which counts within [`measured_operations`] only, and prints the number of repetitions.

use minos_engine::{
    Answer, Get, ItemMeta, OwnerState, Ownership, ReadOnly, Store, StoreConfig, StoreMode,
    remote::{Completion, Fabric, Mapped, Range, RemoteRead, RemoteSketch, RemoteTable, Step},
};
use minos_fabric::ucx::{Ucx, UcxMemory, UcxWindow, Way};
use minos_region::{Backing, Image};
use rustix::time::{ClockId, clock_gettime};
use std::{hint::black_box, sync::Arc};

const NOW: u32 = 2;
const MICRO_SHARD: u32 = 0;
const PEER: usize = 0;
const BATCH: usize = 32;
/// Rounds, of which the least time counts.
const ROUNDS: usize = 9;

/// A table, and what is read of it in one round.
struct Size {
    name: &'static str,
    items: u64,
    reads: u64,
    memory_bytes: u64,
}

/// One that fits into the caches, and one that does not.
const SIZES: [Size; 2] = [
    Size { name: "small", items: 8192, reads: 2048, memory_bytes: 16 << 20 },
    Size { name: "large", items: 1 << 20, reads: 1 << 20, memory_bytes: 256 << 20 },
];
/// Odd, so that all numbers below a power of two are met: neighbours in time are not neighbours in memory.
const STRIDE: u64 = 0x9e37_79b1;

fn main() {
    let is_timed = std::env::args().any(|argument| argument == "--times");
    let (measure, sizes) =
        if is_timed { (time as Measure, &SIZES[..]) } else { (count as Measure, &SIZES[..1]) };
    measure("nothing", SIZES[0].reads, &mut || ());
    for size in sizes {
        let prefix = if is_timed { format!("{}.", size.name) } else { String::new() };
        all(size, &mut |name, run| measure(&format!("{prefix}{name}"), size.reads, run));
    }
}

type Measure = fn(&str, u64, &mut dyn FnMut());
type Take<'a> = &'a mut dyn FnMut(&str, &mut dyn FnMut());

fn all(&Size { items, reads, memory_bytes, .. }: &Size, measure: Take<'_>) {
    let keys: Vec<_> = (0..reads).map(|number| (number * STRIDE % items).to_le_bytes()).collect();
    let store = loaded(items, memory_bytes, Backing::Memfd);
    local(&store, &keys, measure);
    let table = ReadOnly::from_descriptor(store.descriptor_to_read().unwrap()).unwrap();
    beside("memfd", &table, &keys, measure);
    let mut mapped = Mapped::default();
    mapped.add(Image::from_descriptor(store.descriptor_to_read().unwrap()).unwrap());
    remote("mapped", &mut mapped, &keys, measure);
    drop((store, mapped));
    over_ucx(items, memory_bytes, &keys, measure);
}

fn over_ucx(items: u64, memory_bytes: u64, keys: &Keys, measure: Take<'_>) {
    let memory = Arc::new(UcxMemory::allocate(None, memory_bytes as usize).unwrap());
    let _store = loaded(items, memory_bytes, memory.backing());
    for (name, way) in [("ucx-get", Way::Get), ("ucx-load", Way::Load)] {
        let mut fabric = Ucx::open(None, way).unwrap();
        // SAFETY: the memory is this program's.
        unsafe { fabric.connect(memory.advertisement()) }.unwrap();
        remote(name, &mut fabric, keys, measure);
    }
    // SAFETY: as above.
    let window = unsafe { UcxWindow::open(None, memory.advertisement()) }.unwrap();
    let image = window.image().unwrap();
    beside("ucx-window", &ReadOnly::from_image(image).unwrap(), keys, measure);
}

fn loaded(items: u64, bytes: u64, backing: Backing) -> Store {
    let config = StoreConfig { backing, micro_shards: 1, ..StoreConfig::new(bytes) };
    let store = Store::create(&config).unwrap();
    for number in 0..items {
        let key = number.to_le_bytes();
        let mut entry = store.entry(store.hash(&key), &key, NOW);
        entry.insert(&[&key], ItemMeta::default()).unwrap();
        // As one that was read before, so that reads have nothing to write down.
        entry.mark_fetched(NOW);
    }
    store.set_ownership(MICRO_SHARD, Ownership { epoch: 1, state: OwnerState::Owned });
    store
}

type Keys = [[u8; 8]];

fn local(store: &Store, keys: &Keys, measure: Take<'_>) {
    measure("local.1", &mut || {
        for key in keys {
            let value = store.read(store.hash(key), key, NOW, |item| item.value_u64());
            assert!(black_box(value).is_some());
        }
    });
    measure("local.32", &mut || {
        for keys in keys.as_chunks::<BATCH>().0 {
            let gets = keys.each_ref().map(|key| Get { hash: store.hash(key), key });
            store.get_many(&gets, NOW, |_, item| {
                assert!(black_box(item.and_then(|item| item.value_u64())).is_some());
            });
        }
    });
}

/// The coherent reader.
fn beside(name: &str, table: &ReadOnly<StoreMode>, keys: &Keys, measure: Take<'_>) {
    measure(&format!("{name}.1"), &mut || {
        for key in keys {
            let value = table.read_owned(MICRO_SHARD, table.hash(key), key, NOW, |item| item.value_u64());
            assert!(matches!(black_box(value), Answer::Found(_)));
        }
    });
    measure(&format!("{name}.32"), &mut || {
        for keys in keys.as_chunks::<BATCH>().0 {
            let gets = keys.each_ref().map(|key| Get { hash: table.hash(key), key });
            gets.iter().for_each(|get| table.prefetch_bucket(get.hash));
            let staged = gets.each_ref().map(|get| table.stage_owned(MICRO_SHARD, get.hash));
            for (get, staged) in gets.iter().zip(&staged) {
                let value = table.read_staged_owned(staged, get, NOW, |item| item.value_u64());
                assert!(matches!(black_box(value), Answer::Found(_)));
            }
        }
    });
}

fn remote(name: &str, fabric: &mut impl Fabric, keys: &Keys, measure: Take<'_>) {
    let header = one(fabric, RemoteSketch::HEADER);
    let sketch = RemoteSketch::of(&header).unwrap();
    let saved = one(fabric, sketch.saved_range());
    let mut table = sketch.table(&saved).unwrap();
    let mut reads: Vec<RemoteRead> = (0..BATCH).map(|_| RemoteRead::default()).collect();
    let (mut waiting, mut value) = (Vec::new(), Vec::new());
    for batch in [1, BATCH] {
        measure(&format!("{name}.{batch}"), &mut || {
            for keys in keys.chunks(batch) {
                read_batch(fabric, &mut table, (&mut reads, keys), (&mut waiting, &mut value));
            }
        });
    }
}

/// Reads a batch of keys, round by round.
fn read_batch(
    fabric: &mut impl Fabric,
    table: &mut RemoteTable,
    (reads, keys): (&mut [RemoteRead], &Keys),
    (waiting, value): (&mut Vec<u64>, &mut Vec<u8>),
) {
    for ((read, key), token) in reads.iter_mut().zip(keys).zip(0..) {
        let Step::Need(ranges) = read.begin(table, MICRO_SHARD, key, NOW) else {
            panic!("it is not read yet")
        };
        fabric.read(PEER, ranges, token);
    }
    let mut under_way = keys.len();
    while under_way > 0 {
        fabric.poll(|Completion { token, words }| {
            let read = &mut reads[token as usize];
            match read.step(table, words.unwrap()) {
                Step::Need(_) => waiting.push(token),
                Step::Found => {
                    value.clear();
                    read.copy_value_to(value);
                    assert_eq!(black_box(value.len()), 8);
                    under_way -= 1;
                }
                other => panic!("{other:?}"),
            }
        });
        for token in waiting.drain(..) {
            fabric.read(PEER, reads[token as usize].needed(), token);
        }
    }
}

fn one(fabric: &mut impl Fabric, range: Range) -> Vec<u64> {
    fabric.read(PEER, &[range], 0);
    let mut read = None;
    while read.is_none() {
        fabric.poll(|Completion { words, .. }| read = words.map(<[u64]>::to_vec));
    }
    read.unwrap()
}

/// The only function within which instructions are counted.
#[inline(never)]
fn measured_operations(run: &mut dyn FnMut()) {
    run();
    // Keeps the call above from becoming a tail call, which would leave this function too early.
    black_box(());
}

fn count(name: &str, reads: u64, run: &mut dyn FnMut()) {
    // What is learned once.
    run();
    measured_operations(run);
    println!("{name} {reads}");
}

fn time(name: &str, reads: u64, run: &mut dyn FnMut()) {
    let mut round = || {
        let begin = processor_ns();
        run();
        processor_ns() - begin
    };
    let least = (0..ROUNDS).map(|_| round()).min().unwrap_or(0);
    println!("{name:20} {:6.1} ns", least as f64 / reads as f64);
}

/// Processor time of this thread.
fn processor_ns() -> i64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec * 1_000_000_000 + time.tv_nsec
}
