//! The table for the measurements, and the cost of a look-up.

use std::{hint::black_box, sync::Arc};

use anyhow::{Context, Result, ensure};
use minos_base::{Clock, Seconds, limits::BURST_MAX};
use minos_engine::{Engine, Get, ItemMeta, StoreConfig, StoreMode};
use minos_sim::Random;

use super::{
    Scale,
    samples::{Stopwatch, Subject},
};

pub(super) const KEY_BYTES: usize = 16;
pub(super) const SMALL_BYTES: usize = 64;
/// Memory for an item beside its key and value: header, heap, and its share of the index.
const OVERHEAD_BYTES: usize = 96;
/// Memory for fragmentation, and for values that are being written.
const SPARE_BYTES: usize = 64 << 20;
/// Operations between two clock reads.
pub(super) const GROUP: usize = 4 * BURST_MAX;
/// The time never changes: nothing expires.
const NOW: Seconds = Clock::START;

/// The use of keys. Each kind is numbered from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Kind {
    /// Small items, so many that the caches hold few of them.
    Small = b's',
    /// Items of one size that are read.
    Read = b'r',
    /// Items of one size that are written.
    Written = b'w',
}

/// A store: it refuses nothing while it has memory and evicts nothing, so that every GET finds its item.
pub(super) struct Table {
    pub(super) engine: Arc<Engine<StoreMode>>,
    pub(super) small_items: usize,
}

impl Table {
    /// Makes a table of small items, with room for `room_bytes` of others.
    pub(super) fn load(scale: &Scale, room_bytes: usize) -> Result<Self> {
        let small_items = scale.small_items;
        let bytes = small_items * (KEY_BYTES + SMALL_BYTES + OVERHEAD_BYTES) + 2 * room_bytes + SPARE_BYTES;
        let engine = Engine::create(&StoreConfig::new(bytes as u64))
            .with_context(|| format!("a table of {} MiB", bytes >> 20))?;
        let table = Self { engine: Arc::new(engine), small_items };
        for number in 0..small_items {
            table.insert(&key(Kind::Small, number), &[b'v'; SMALL_BYTES])?;
        }
        Ok(table)
    }

    /// Stores a value, marked as fetched: its next read then writes nothing.
    pub(super) fn insert(&self, key: &[u8], value: &[u8]) -> Result<()> {
        let mut entry = self.engine.entry(self.engine.hash(key), key, NOW);
        entry.insert(&[value], ItemMeta::default()).context("the table of the calibration")?;
        entry.mark_fetched(NOW);
        Ok(())
    }

    /// The CAS unique of the value of `key`, which identifies a version of it.
    pub(super) fn cas(&self, key: &[u8]) -> Option<u64> {
        self.engine.read(self.engine.hash(key), key, NOW, |item| item.cas())
    }
}

pub(super) fn key(kind: Kind, number: usize) -> [u8; KEY_BYTES] {
    let mut key = *b"calibrate-------";
    key[7] = kind as u8;
    key[8..].copy_from_slice(&(number as u64).to_le_bytes());
    key
}

/// Look-ups of small items at random: alone, and in bursts whose cache misses overlap (MICA §4.3.2).
pub(super) struct Lookups<'a> {
    table: &'a Table,
    random: Random,
    batch: usize,
    keys: Vec<[u8; KEY_BYTES]>,
}

impl<'a> Lookups<'a> {
    /// The place of single look-ups.
    pub(super) const ALONE: usize = 0;
    /// The place of look-ups in a burst.
    pub(super) const IN_BURST: usize = 1;

    pub(super) fn new(table: &'a Table, scale: &Scale, random: Random) -> Self {
        Self { table, random, batch: scale.batch, keys: Vec::new() }
    }

    /// Reads items one after another, each only after the last was found; returns the number found.
    fn alone(&self, gets: &[Get<'_>]) -> usize {
        // The processor cannot see that this is zero, and so cannot start the next look-up early.
        let nothing = black_box(0);
        let (mut found, mut at) = (0, 0);
        while let Some(get) = gets.get(at) {
            let cas = self.table.engine.read(get.hash, get.key, NOW, |item| item.cas());
            found += usize::from(cas.is_some());
            at += 1 + (cas.unwrap_or(0) & nothing) as usize;
        }
        found
    }

    fn in_bursts(&self, gets: &[Get<'_>]) -> usize {
        let mut found = 0;
        for burst in gets.chunks(BURST_MAX) {
            self.table.engine.get_many(burst, NOW, |_, item| found += usize::from(item.is_some()));
        }
        found
    }
}

impl Subject for Lookups<'_> {
    fn name(&self) -> &'static str {
        "look-ups"
    }

    fn places(&self) -> &[f64] {
        &[1.0, BURST_MAX as f64]
    }

    fn sample(&mut self, place: usize) -> Result<f64> {
        self.keys.clear();
        for _ in 0..self.batch {
            self.keys.push(key(Kind::Small, self.random.below(self.table.small_items)));
        }
        let engine = &self.table.engine;
        let gets: Vec<Get<'_>> =
            self.keys.iter().map(|key| Get { hash: engine.hash(key), key: key.as_slice() }).collect();
        let (mut watch, mut found) = (Stopwatch::default(), 0);
        for group in gets.chunks(GROUP) {
            let find = || if place == Self::ALONE { self.alone(group) } else { self.in_bursts(group) };
            found += watch.time(group.len(), find);
        }
        // A read that meets a writer would show an item twice; there is no writer.
        ensure!(found == gets.len(), "{found} of {} items were found", gets.len());
        Ok(watch.typical_ns())
    }
}
