//! One thread of a closed loop: executes its script over and over, as fast as it can (MICA §5.1).

use std::time::{Duration, Instant};

use minos_base::{KeyHash, limits::BURST_MAX};
use minos_engine::{Access, Engine, Get, ItemMeta, ItemView, Mode, Put};

use super::{
    script::{Lines, PutOf},
    seat::NOW,
};

/// Bursts between two clock reads. The first of them is also timed alone.
const BURSTS_PER_BLOCK: u32 = 1024;

/// Bytes of values that are buffered to be stored together.
const VALUES_BYTES_MAX: usize = 16 << 20;

/// How operations are executed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Manner {
    /// True if keys are hashed within the measured time.
    pub(super) hashes_inline: bool,
    pub(super) prefetches: bool,
}

/// The results of a thread.
#[derive(Clone, Debug, Default)]
pub(super) struct Tally {
    pub(super) operations: u64,
    pub(super) gets: u64,
    /// GETs of absent keys.
    pub(super) misses: u64,
    /// GETs that returned another value than was stored.
    pub(super) wrong: u64,
    /// PUTs that were refused for lack of memory.
    pub(super) refused: u64,
    pub(super) elapsed: Duration,
    /// Processor time of the thread, if the kernel tells.
    pub(super) processor: Option<Duration>,
    /// Times of single bursts, each divided by its operations, in microseconds.
    pub(super) samples_us: Vec<f64>,
}

impl Tally {
    /// Operations a second.
    pub(super) fn rate(&self) -> f64 {
        self.operations as f64 / self.elapsed.as_secs_f64().max(1e-9)
    }
}

/// A thread and its table.
pub(super) struct Driver<'a, M: Mode, A: Access> {
    engine: &'a Engine<M, A>,
    lines: &'a Lines<'a>,
    manner: Manner,
    next: Place,
    values: Values,
    scratch: Scratch<'a>,
    tally: Tally,
}

/// The position of a thread in its script.
#[derive(Clone, Copy, Debug, Default)]
struct Place {
    burst: usize,
    get: usize,
    put: usize,
}

/// Buffers that every burst reuses.
#[derive(Default)]
struct Scratch<'a> {
    gets: Vec<Get<'a>>,
    put_hashes: Vec<KeyHash>,
    value: Vec<u8>,
    /// By GET: the bits in which the beginning of the value differs from the expected one.
    differences: Vec<u64>,
}

/// Values that are about to be stored. Each begins with the hash of its key, so that a reader can check it.
struct Values {
    bytes: Vec<u8>,
    value_bytes_max: usize,
}

impl Values {
    fn new(value_bytes_max: usize) -> Self {
        let value_bytes_max = value_bytes_max.max(1);
        let count = (VALUES_BYTES_MAX / value_bytes_max).clamp(1, BURST_MAX);
        Self { bytes: vec![b'm'; count * value_bytes_max], value_bytes_max }
    }

    /// Writes the values for `puts`, at most [`Values::count`] of them.
    fn write(&mut self, puts: &[PutOf<'_>], hashes: &[KeyHash]) {
        for (value, (put, hash)) in self.bytes.chunks_mut(self.value_bytes_max).zip(puts.iter().zip(hashes)) {
            let marked = put.value_bytes.min(8);
            value[..marked].copy_from_slice(&hash.0.to_le_bytes()[..marked]);
        }
    }

    /// The number of values that fit.
    fn count(&self) -> usize {
        self.bytes.len() / self.value_bytes_max
    }
}

impl<'a, M: Mode, A: Access> Driver<'a, M, A> {
    pub(super) fn new(engine: &'a Engine<M, A>, lines: &'a Lines<'a>, manner: Manner) -> Self {
        let value_bytes_max = lines.puts.iter().map(|put| put.value_bytes).max().unwrap_or(0);
        let scratch = Scratch { differences: vec![0; lines.width], ..Scratch::default() };
        let values = Values::new(value_bytes_max);
        Self { engine, lines, manner, next: Place::default(), values, scratch, tally: Tally::default() }
    }

    /// Runs for `duration`, and returns the results of that time.
    pub(super) fn run(&mut self, duration: Duration) -> Tally {
        self.tally = Tally::default();
        let processor_start = processor_time();
        let start = Instant::now();
        loop {
            let before = Instant::now();
            self.burst();
            self.tally.samples_us.push(before.elapsed().as_secs_f64() * 1e6 / self.lines.width as f64);
            for _ in 1..BURSTS_PER_BLOCK {
                self.burst();
            }
            self.tally.operations += u64::from(BURSTS_PER_BLOCK) * self.lines.width as u64;
            self.tally.elapsed = start.elapsed();
            if self.tally.elapsed >= duration {
                let (since, now) = (processor_start, processor_time());
                self.tally.processor = now.zip(since).map(|(now, since)| now.saturating_sub(since));
                return std::mem::take(&mut self.tally);
            }
        }
    }

    #[inline]
    fn burst(&mut self) {
        let Place { burst, get, put } = self.next;
        let gets = usize::from(self.lines.gets_in_burst[burst]);
        let (get_end, put_end) = (get + gets, put + self.lines.width - gets);
        let lines = self.lines;
        let puts = &lines.puts[put..put_end];
        self.look_ahead(puts);
        self.get(&lines.gets[get..get_end]);
        self.put(puts);
        self.next = if burst + 1 == lines.gets_in_burst.len() {
            Place::default()
        } else {
            Place { burst: burst + 1, get: get_end, put: put_end }
        };
    }

    /// Prefetches the buckets of the PUTs, so that they arrive while the GETs are executed.
    #[inline]
    fn look_ahead(&mut self, puts: &[PutOf<'_>]) {
        let engine = self.engine;
        self.scratch.put_hashes.clear();
        for put in puts {
            let hash = if self.manner.hashes_inline { engine.hash(put.key) } else { put.hash };
            if self.manner.prefetches {
                engine.prefetch_bucket(hash);
            }
            self.scratch.put_hashes.push(hash);
        }
    }

    #[inline]
    fn get(&mut self, gets: &'a [Get<'a>]) {
        let Scratch { gets: hashed, value, differences, .. } = &mut self.scratch;
        let engine = self.engine;
        let gets = if self.manner.hashes_inline {
            hashed.clear();
            hashed.extend(gets.iter().map(|get| Get { hash: engine.hash(get.key), key: get.key }));
            hashed
        } else {
            gets
        };
        let mut misses = 0;
        let differences = &mut differences[..gets.len()];
        // The closure may run several times for a value until a read is undisturbed; the last call counts.
        engine.get_many(gets, NOW, |at, item| match item {
            Some(item) => differences[at] = difference(item, gets[at].hash, value),
            None => {
                differences[at] = 0;
                misses += 1;
            }
        });
        self.tally.gets += gets.len() as u64;
        self.tally.misses += misses;
        self.tally.wrong += differences.iter().map(|&bits| u64::from(bits != 0)).sum::<u64>();
    }

    #[inline]
    fn put(&mut self, puts: &[PutOf<'_>]) {
        let count = self.values.count();
        for (puts, hashes) in puts.chunks(count).zip(self.scratch.put_hashes.chunks(count)) {
            self.values.write(puts, hashes);
            let nothing = Put { hash: hashes[0], key: &[], value: &[], meta: ItemMeta::default() };
            let mut burst = [nothing; BURST_MAX];
            let values = self.values.bytes.chunks(self.values.value_bytes_max);
            for (slot, ((put, hash), value)) in burst.iter_mut().zip(puts.iter().zip(hashes).zip(values)) {
                *slot = Put { hash: *hash, key: put.key, value: &value[..put.value_bytes], ..nothing };
            }
            let mut refused = 0;
            self.engine
                .put_many(&burst[..puts.len()], NOW, |_, stored| refused += u64::from(stored.is_err()));
            self.tally.refused += refused;
        }
    }
}

/// Processor time of this thread so far.
fn processor_time() -> Option<Duration> {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    text.split(' ').next()?.parse().ok().map(Duration::from_nanos)
}

/// The bits in which the beginning of a value differs from the expected one. Reads the whole value.
#[inline]
fn difference(item: &ItemView<'_>, hash: KeyHash, value: &mut Vec<u8>) -> u64 {
    match item.value_u64() {
        Some(number) => number ^ hash.0,
        None => difference_by_copy(item, hash, value),
    }
}

/// As [`difference`]; not inlined, so that the short path is.
#[inline(never)]
fn difference_by_copy(item: &ItemView<'_>, hash: KeyHash, value: &mut Vec<u8>) -> u64 {
    value.clear();
    item.copy_value_to(value);
    let mut expected = hash.0.to_le_bytes().into_iter().zip(&*value);
    u64::from(!expected.all(|(expected, byte)| expected == *byte))
}

#[cfg(test)]
mod tests {
    use minos_engine::{Erew, Store, StoreConfig};
    use minos_workload::{Shape, Workload};

    use super::super::{load::load, script::Script, seat::Seat};
    use super::*;

    const MANNER: Manner = Manner { hashes_inline: false, prefetches: true };

    /// The results after `change` was applied to the most popular item.
    fn tally_after(change: impl FnOnce(&Store<Erew>, KeyHash, &[u8])) -> Tally {
        let shape = Shape { keys: Some(100), get_ratio: Some(1.0), ..Shape::default() };
        let workload = Workload::open("mica-tiny", &shape, 1).unwrap();
        let engine = Store::<Erew>::create(&StoreConfig::new(4 << 20)).unwrap();
        engine.take_up(0);
        let seat = Seat { engine: &engine, number: 0, seats: 1 };
        load(&seat, &workload);
        let script = Script::draw(&seat, &workload, Duration::ZERO, 16).unwrap();
        let mut key = Vec::new();
        workload.write_key(0, &mut key);
        let hash = engine.hash(&key);
        change(&engine, hash, &key);
        Driver::new(&engine, &script.lines(), MANNER).run(Duration::ZERO)
    }

    #[test]
    fn what_a_table_does_not_keep_is_noticed() {
        let whole = tally_after(|_, _, _| ());
        assert_eq!((whole.misses, whole.wrong), (0, 0));
        assert_eq!((whole.gets, whole.operations), (16 * 1024, 16 * 1024));
        let lost = tally_after(|engine, hash, key| assert!(engine.entry(hash, key, NOW).remove()));
        assert!(lost.misses > 100 && lost.wrong == 0, "{lost:?}");
        let changed = tally_after(|engine, hash, key| {
            engine.entry(hash, key, NOW).insert(&[b"another!"], ItemMeta::default()).unwrap();
        });
        assert!(changed.wrong > 100 && changed.misses == 0, "{changed:?}");
    }
}
