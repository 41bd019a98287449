//! Minos' tier: memory above a log on flash, read by vectors.

use super::{Key, Plan, QUEUE_BYTES_MAX, Store, file_and_segment_bytes};
use anyhow::{Context, Result, ensure};
use minos_base::{Seconds, seeded_stream};
use minos_device::{Device, FileOptions};
use minos_engine::{CreateError, ItemMeta, StoreConfig, TierConfig, Tiered};
use minos_tier::{Durability, Entry, Format, Keeper, Memory, Now, Options, Superblock, TieredStore};
use rand::Rng;
use std::{
    process,
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

/// Bytes of a record beside its key and value, and of its footer.
const RECORD_BYTES: u64 = 46 + 28;
/// Nothing expires.
const NOW: Seconds = 2;
/// Longest wait for room: the index needs up to 16 bytes of memory for each item.
const PATIENCE: Duration = Duration::from_secs(60);
/// Longest wait until everything is written.
const PATIENCE_TO_SETTLE: Duration = Duration::from_secs(600);

/// A store or a cache.
pub(super) struct Minos {
    store: TieredStore,
    queued_bytes: usize,
}

impl Minos {
    pub(super) fn open(plan: &Plan, is_lossless: bool) -> Result<Self> {
        let item_bytes = size_of::<Key>() as u64 + plan.value_bytes as u64 + RECORD_BYTES;
        let (file_bytes, segment_bytes) = file_and_segment_bytes(plan, item_bytes);
        let options = FileOptions {
            size_bytes: Some(file_bytes),
            create: true,
            prefill: true,
            ..FileOptions::default()
        };
        let device = Device::open(&plan.folder.join("log"), &options)?;
        let [table, seed, hash_seed] = [0, 1, 2].map(|stream| seeded_stream(0, stream).next_u64());
        let segment_bytes = segment_bytes as u32;
        let format = Format { table, seed, hash_seed, clock_zero_unix_s: 0, segment_bytes };
        minos_tier::format(&device, &format)?;
        let options = if is_lossless { Options::store(Durability::None) } else { Options::cache() };
        let buffers_bytes =
            options.read_lane.pool_bytes + options.write_lane.pool_bytes + options.bytes_in_flight_max;
        let memory_bytes = plan.memory_bytes.saturating_sub(buffers_bytes as u64);
        let engine = |superblock: &Superblock| -> Result<_, CreateError> {
            let tier = TierConfig { is_lossless, ..TierConfig::default() };
            let (hash_seed, value_bytes_max) = (superblock.hash_seed, plan.value_bytes as u64);
            let config = StoreConfig { tier, hash_seed, value_bytes_max, ..StoreConfig::new(memory_bytes) };
            Ok((Arc::new(Tiered::create(&config)?), Memory::Empty))
        };
        let (tier, keeper, _) = minos_tier::open(&device, &options, NOW, engine)?;
        thread::spawn(|| keep(keeper));
        Ok(Self { store: TieredStore::new(&tier)?, queued_bytes: 0 })
    }
}

/// Runs the keeper until the process ends.
fn keep(mut keeper: Keeper) {
    let begun = Instant::now();
    loop {
        let now = Now { us: begun.elapsed().as_micros() as u64, seconds: NOW };
        if let Err(error) = keeper.turn(now).and_then(|turn| keeper.rest_for(&turn)) {
            eprintln!("the keeper's lane: {error}");
            process::exit(1);
        }
    }
}

impl Store for Minos {
    fn get_many(&mut self, keys: &[Key], found: &mut dyn FnMut(usize, &[u8])) -> Result<()> {
        let names: Vec<&[u8]> = keys.iter().map(Key::as_slice).collect();
        let mut failure = None;
        self.store.get_many(&names, NOW, |at, value| match value {
            Ok(value) => value.into_iter().for_each(|value| found(at, value)),
            Err(error) => failure = Some(error),
        })?;
        failure.map_or(Ok(()), |error| Err(error.into()))
    }

    fn put_many(&mut self, items: &[(Key, Vec<u8>)]) -> Result<()> {
        let begun = Instant::now();
        let entries = items.iter().map(|(key, value)| Entry { key, value, meta: ItemMeta::default() });
        let mut rest: Vec<Entry<'_>> = entries.collect();
        while !rest.is_empty() {
            let mut refused = Vec::new();
            self.store.put_many(&rest, NOW, |at, result| {
                if result.is_err() {
                    refused.push(at);
                }
            });
            rest = refused.into_iter().map(|at| rest[at]).collect();
            ensure!(begun.elapsed() < PATIENCE, "no room: is --memory too small for so many items?");
            if !rest.is_empty() {
                thread::yield_now();
            }
        }
        self.queued_bytes += items.iter().map(|(_, value)| value.len()).sum::<usize>();
        // A store waits by itself.
        if !self.store.tier().is_lossless() && self.queued_bytes >= QUEUE_BYTES_MAX {
            self.settle()?;
        }
        Ok(())
    }

    fn settle(&mut self) -> Result<()> {
        self.queued_bytes = 0;
        let id = self.store.sync();
        let is_done = self.store.tier().wait_synced(id, PATIENCE_TO_SETTLE).context("the device fails")?;
        ensure!(is_done, "what was stored does not become durable");
        Ok(())
    }
}
