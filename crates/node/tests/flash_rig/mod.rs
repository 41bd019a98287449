//! A server above flash, on a device in memory.

#![allow(dead_code, reason = "each test uses a part of it")]

use std::{sync::Arc, time::Duration};

use minos_device::{Device, MemoryOptions};
use minos_engine::{StoreConfig, TierConfig, Tiered};
use minos_node::{Server, ServerConfig};
use minos_tier::{Format, Memory, Options, Tier};

pub(crate) struct Rig {
    pub(crate) server: Server,
    pub(crate) tier: Arc<Tier>,
}

/// Room for 128 segments, without a table.
pub(crate) fn device(segment_bytes: u32) -> Device {
    let capacity_bytes = u64::from(segment_bytes) * 128;
    Device::in_memory(&MemoryOptions { capacity_bytes, ..MemoryOptions::default() })
}

/// Makes an empty table.
pub(crate) fn format(device: &Device, segment_bytes: u32) {
    let format = Format { table: 1, seed: 2, hash_seed: 3, clock_zero_unix_s: 0, segment_bytes };
    minos_tier::format(device, &format).unwrap();
}

impl Rig {
    /// A server with that much memory above flash of such segments.
    pub(crate) fn start(
        (memory_bytes, segment_bytes): (u64, u32),
        options: &Options,
        config: ServerConfig,
    ) -> Self {
        let device = device(segment_bytes);
        format(&device, segment_bytes);
        Self::on(&device, memory_bytes, options, config)
    }

    /// A server with that much memory above a device with a table.
    pub(crate) fn on(
        device: &Device,
        memory_bytes: u64,
        options: &Options,
        mut config: ServerConfig,
    ) -> Self {
        config.memcached = vec!["127.0.0.1:0".parse().unwrap()];
        config.pin = false;
        let (value_bytes_max, is_lossless) = (config.value_bytes_max, options.is_lossless);
        if is_lossless {
            // A keeper that gets no processor for a second is no reason to refuse anything.
            config.flash_wait.get_or_insert(Duration::from_secs(30));
        }
        let tier = TierConfig { is_lossless, ..TierConfig::default() };
        let store = StoreConfig { value_bytes_max, tier, ..StoreConfig::new(memory_bytes) };
        let (tier, keeper, _) = minos_tier::open(device, options, config.clock.seconds(), |superblock| {
            let store = StoreConfig { hash_seed: superblock.hash_seed, ..store };
            Tiered::create(&store).map(|engine| (Arc::new(engine), Memory::Empty))
        })
        .unwrap();
        Self { server: Server::start_above_flash(config, keeper).unwrap(), tier }
    }
}
