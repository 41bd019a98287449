//! foyer: a cache in memory above a cache on flash, which reads by futures.

use super::{Key, Plan, QUEUE_BYTES_MAX, Store, file_and_segment_bytes};
use anyhow::Result;
use foyer::{
    BlockEngineConfig, DeviceBuilder, FsDeviceBuilder, HybridCache, HybridCacheBuilder, IoEngineConfig,
    PsyncIoEngineConfig, RecoverMode, UringIoEngineConfig,
};
use futures_util::future::try_join_all;
use tokio::runtime::{Builder, Runtime};

/// Each item is padded to a multiple of this, with a header of at most 64 bytes.
const PAGE_BYTES: u64 = 4096;
/// Memory of an item's index.
const INDEX_BYTES: u64 = 64;
/// Bytes of the buffers of writes, twice.
const POOL_BYTES: u64 = 16 << 20;

pub(super) struct Foyer {
    runtime: Runtime,
    cache: HybridCache<u64, Vec<u8>>,
    queued_bytes: usize,
}

impl Foyer {
    pub(super) fn open(plan: &Plan, by_ring: bool) -> Result<Self> {
        let item_bytes = (plan.value_bytes as u64 + 64).next_multiple_of(PAGE_BYTES);
        let (file_bytes, block_bytes) = file_and_segment_bytes(plan, item_bytes);
        let outside = 2 * POOL_BYTES + plan.items * INDEX_BYTES;
        let memory_bytes = plan.memory_bytes.saturating_sub(outside).max(plan.memory_bytes / 8);
        let device = FsDeviceBuilder::new(&plan.folder)
            .with_capacity(file_bytes as usize)
            .with_direct(true)
            .build()?;
        let io: Box<dyn IoEngineConfig> =
            if by_ring { Box::new(UringIoEngineConfig::new()) } else { Box::new(PsyncIoEngineConfig::new()) };
        let runtime = Builder::new_multi_thread().enable_all().build()?;
        let cache = HybridCacheBuilder::new()
            .memory(memory_bytes as usize)
            .with_weighter(|key: &u64, value: &Vec<u8>| size_of_val(key) + value.len())
            .storage()
            .with_io_engine_config(io)
            .with_engine_config(BlockEngineConfig::new(device).with_block_size(block_bytes as usize))
            .with_recover_mode(RecoverMode::None)
            .build();
        let cache = runtime.block_on(cache)?;
        Ok(Self { runtime, cache, queued_bytes: 0 })
    }
}

impl Store for Foyer {
    fn get_many(&mut self, keys: &[Key], found: &mut dyn FnMut(usize, &[u8])) -> Result<()> {
        let gets = keys.iter().map(|key| self.cache.get(&u64::from_le_bytes(*key)));
        let entries = self.runtime.block_on(async { try_join_all(gets).await })?;
        for (at, entry) in entries.iter().enumerate() {
            if let Some(entry) = entry {
                found(at, entry.value());
            }
        }
        Ok(())
    }

    fn put_many(&mut self, items: &[(Key, Vec<u8>)]) -> Result<()> {
        for (key, value) in items {
            self.cache.insert(u64::from_le_bytes(*key), value.clone());
            self.queued_bytes += value.len().next_multiple_of(PAGE_BYTES as usize);
        }
        if self.queued_bytes >= QUEUE_BYTES_MAX {
            self.settle()?;
        }
        Ok(())
    }

    fn settle(&mut self) -> Result<()> {
        self.queued_bytes = 0;
        self.runtime.block_on(self.cache.storage().wait());
        Ok(())
    }
}
