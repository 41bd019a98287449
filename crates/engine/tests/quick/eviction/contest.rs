//! A trace for both the simulators and the engine.

use minos_engine::{Cache, Eviction, ItemMeta, StoreConfig};
use minos_testkit::eviction::{EvictionPolicy, Request, ZipfTrace, hit_ratio, trace_bytes};

/// Bytes that the engine adds to key and value: a tag and a header of three words.
const ENTRY_HEAD_BYTES: u64 = 32;
const KEY_BYTES: u64 = 8;
const THETA: f64 = 0.99;
/// Samples of a run.
const SAMPLES: usize = 200;
/// The clock stands still: nothing expires.
const NOW: u32 = 1;

/// Bytes of a log's segment in a cache of one partition: an arena of the region.
pub(crate) fn segment_bytes(memory_bytes: u64) -> u64 {
    (memory_bytes / 64).next_power_of_two().clamp(64 << 10, 1 << 20)
}

/// Requests for items of 64 to 319 bytes; the first quarter of them is not counted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Contest {
    pub(crate) keys: u64,
    pub(crate) requests: usize,
    pub(crate) seed: u64,
}

/// The result of a run of the engine's cache.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Run {
    pub(crate) hit_ratio: f64,
    /// Average bytes between the log's head and tail: the capacity to give a simulator.
    pub(crate) log_bytes: u64,
}

impl Contest {
    /// Bytes of all items together.
    pub(crate) fn bytes(&self) -> u64 {
        trace_bytes(self.keys, entry_bytes)
    }

    pub(crate) fn simulate(&self, mut policy: impl EvictionPolicy) -> f64 {
        hit_ratio(&mut policy, self.trace(), self.warm_up())
    }

    /// Runs a cache with one partition and all its memory for small items.
    pub(crate) fn run(&self, eviction: Eviction, memory_bytes: u64) -> Run {
        let large_bytes_min = Some(0);
        let config =
            StoreConfig { partitions: Some(1), eviction, large_bytes_min, ..StoreConfig::new(memory_bytes) };
        let mut filled = Filled::new(Cache::create(&config).unwrap(), self.requests / SAMPLES);
        let hit_ratio = hit_ratio(&mut filled, self.trace(), self.warm_up());
        let counted = &filled.log_bytes[SAMPLES / 4..];
        Run { hit_ratio, log_bytes: counted.iter().sum::<u64>() / counted.len() as u64 }
    }

    fn trace(&self) -> impl Iterator<Item = Request> {
        ZipfTrace::new(self.keys, THETA, self.seed, entry_bytes).unwrap().take(self.requests)
    }

    fn warm_up(&self) -> usize {
        self.requests / 4
    }
}

fn value_bytes(key: u64) -> u64 {
    64 + (key.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56)
}

/// Bytes of an item's entry in a log.
fn entry_bytes(key: u64) -> u64 {
    (ENTRY_HEAD_BYTES + KEY_BYTES + value_bytes(key)).next_multiple_of(8)
}

/// The engine as a policy, sampled now and then.
struct Filled {
    cache: Cache,
    value: Vec<u8>,
    requests: usize,
    sample_every: usize,
    log_bytes: Vec<u64>,
}

impl Filled {
    fn new(cache: Cache, sample_every: usize) -> Self {
        Self { cache, value: vec![7; 1 << 10], requests: 0, sample_every, log_bytes: vec![] }
    }
}

impl EvictionPolicy for Filled {
    fn request(&mut self, key: u64, _: u64) -> bool {
        let bytes = key.to_be_bytes();
        let hash = self.cache.hash(&bytes);
        let found = self.cache.read(hash, &bytes, NOW, |item| item.value_bytes());
        if found.is_none() {
            let value = &self.value[..value_bytes(key) as usize];
            self.cache.entry(hash, &bytes, NOW).insert(&[value], ItemMeta::default()).unwrap();
        }
        self.requests += 1;
        if self.requests.is_multiple_of(self.sample_every) {
            self.log_bytes.push(self.cache.stats().log_bytes);
        }
        found.is_some()
    }
}
