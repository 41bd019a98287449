//! One thread of a closed loop: vector after vector.

use std::{
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use anyhow::{Result, ensure};
use minos_base::Seconds;
use minos_engine::ItemMeta;
use minos_tier::{Entry, Tier, TieredStore};
use minos_workload::Latencies;
use rand::{RngExt, rngs::StdRng};

/// Nothing expires.
pub(super) const NOW: Seconds = 2;

/// The work of each thread.
#[derive(Clone, Copy, Debug)]
pub(super) struct Work {
    /// Keys of a vector.
    pub(super) width: usize,
    pub(super) keys: u64,
    pub(super) value_bytes: usize,
    /// Share of vectors that are gets.
    pub(super) read_share: f64,
}

/// The results of a thread.
#[derive(Debug)]
pub(super) struct Tally {
    pub(super) gets: u64,
    pub(super) puts: u64,
    pub(super) vectors: u64,
    /// Gets without an answer, or with another key's value.
    pub(super) wrong: u64,
    /// Puts that found no room and were repeated.
    pub(super) refused: u64,
    /// Of vectors.
    pub(super) latencies: Latencies,
}

impl Tally {
    fn new() -> Self {
        Self { gets: 0, puts: 0, vectors: 0, wrong: 0, refused: 0, latencies: Latencies::new() }
    }
}

/// One thread.
pub(super) struct Driver {
    store: TieredStore,
    work: Work,
    random: StdRng,
    tally: Tally,
}

impl Driver {
    pub(super) fn new(tier: &Arc<Tier>, work: Work, random: StdRng) -> Result<Self> {
        let store = TieredStore::new(tier)?.promoting(false);
        Ok(Self { store, work, random, tally: Tally::new() })
    }

    /// Stores all items.
    pub(super) fn load(mut self, patience: Duration) -> Result<()> {
        let begun = Instant::now();
        for first in (0..self.work.keys).step_by(self.work.width) {
            let numbers: Vec<u64> = (first..self.work.keys.min(first + self.work.width as u64)).collect();
            self.put(&numbers);
            ensure!(
                begun.elapsed() < patience,
                "the device takes no more items: is --device-size too small?"
            );
        }
        Ok(())
    }

    /// Runs from `begin` on; returns the results of that time.
    pub(super) fn run(mut self, begin: Instant, duration: Duration) -> Result<Tally> {
        let mut is_measured = false;
        loop {
            let now = Instant::now();
            if !is_measured && now >= begin {
                (self.tally, is_measured) = (Tally::new(), true);
            }
            if now >= begin + duration {
                return Ok(self.tally);
            }
            let keys = self.work.keys;
            let numbers: Vec<u64> = (0..self.work.width).map(|_| self.random.random_range(0..keys)).collect();
            if self.random.random_bool(self.work.read_share) {
                self.get(&numbers)?;
            } else {
                self.put(&numbers);
            }
            self.tally.vectors += 1;
            self.tally.latencies.record_ns(now.elapsed().as_nanos() as u64);
        }
    }

    fn get(&mut self, numbers: &[u64]) -> Result<()> {
        let keys: Vec<[u8; 8]> = numbers.iter().map(|number| number.to_le_bytes()).collect();
        let names: Vec<&[u8]> = keys.iter().map(<[u8; 8]>::as_slice).collect();
        let (value_bytes, mut wrong) = (self.work.value_bytes, 0);
        self.store.get_many(&names, NOW, |at, value| {
            let is_right = |value: &[u8]| value.len() == value_bytes && value.starts_with(&keys[at]);
            wrong += u64::from(!value.is_ok_and(|value| value.is_some_and(is_right)));
        })?;
        self.tally.wrong += wrong;
        self.tally.gets += numbers.len() as u64;
        Ok(())
    }

    /// Stores items; waits for the keeper while there is no room.
    fn put(&mut self, numbers: &[u64]) {
        for number in numbers {
            let key = number.to_le_bytes();
            let mut value = vec![b'm'; self.work.value_bytes];
            value[..8].copy_from_slice(&key);
            let entry = Entry { key: &key, value: &value, meta: ItemMeta::default() };
            let begun = Instant::now();
            let mut is_stored = false;
            while !is_stored && begun.elapsed() < Duration::from_secs(10) {
                self.store.put_many(&[entry], NOW, |_, result| is_stored = result.is_ok());
                if !is_stored {
                    self.tally.refused += 1;
                    thread::yield_now();
                }
            }
        }
        self.tally.puts += numbers.len() as u64;
    }
}
