//! The server under test, in memory or above flash.

use std::{
    net::{Ipv4Addr, SocketAddr},
    sync::Arc,
    time::Duration,
};

use minos_engine::StoreMode;
use minos_node::{
    ServerConfig,
    config::{LargeOrder, NativeConfig, PollMode},
};
use minos_sched::Domains;
use minos_tier::{Durability, Options, Tier};
use rand::{RngExt, rngs::StdRng};

use crate::{WORKERS, common::TestServer, flash_rig::Rig, items::Shape};

/// More than all keys of all clients hold together.
pub(crate) const MEMORY_BYTES: u64 = 512 << 20;
/// Much less than that, and a segment of flash.
const ABOVE_FLASH: (u64, u32) = (4 << 20, 512 << 10);
/// Least records that were read in a seed above flash.
const READS_MIN: u64 = 200;
/// Items on flash in the end, at least.
const COLD_MIN: u64 = 100;

/// Where items lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ground {
    Memory,
    /// In memory or, most of them, on flash.
    Flash,
}

impl Ground {
    /// The keys of clients of such a server.
    pub(crate) fn shape(self) -> Shape {
        match self {
            Self::Memory => Shape::IN_MEMORY,
            Self::Flash => Shape::ON_FLASH,
        }
    }

    /// A server that makes a plan every few milliseconds; its other options are random.
    pub(crate) fn start(self, random: &mut StdRng) -> (TestServer, Option<Arc<Tier>>) {
        let mut config = config(random);
        config.value_bytes_max = self.shape().value_bytes_max as u64;
        if self == Self::Memory {
            return (TestServer::with_memory::<StoreMode>(MEMORY_BYTES, config), None);
        }
        // The values that all clients send at once.
        config.receive_memory_bytes = Some(ABOVE_FLASH.0 / 2);
        let Rig { server, tier } = Rig::start(ABOVE_FLASH, &Options::store(Durability::None), config);
        let engine = Arc::clone(tier.engine());
        let server = TestServer { server, pinned: Box::new(move || engine.stats().pinned) };
        (server, Some(tier))
    }
}

pub(crate) fn config(random: &mut StdRng) -> ServerConfig {
    let mut config = ServerConfig::new(WORKERS);
    config.epoch = Duration::from_millis(random.random_range(1..=3));
    config.control.alpha = 1.0;
    config.control.percentile = [50.0, 70.0, 90.0][random.random_range(0..3)];
    config.poll = [PollMode::Adaptive, PollMode::Sleep][random.random_range(0..2)];
    config.large_order = [LargeOrder::Shortest, LargeOrder::Fifo][random.random_range(0..2)];
    config.steal = random.random_ratio(1, 2);
    config.ring_capacity = [2, 4, 1024][random.random_range(0..3)];
    config.slice_bytes = [4 << 10, 64 << 10][random.random_range(0..2)];
    let domains = [&[WORKERS][..], &[2, 2], &[1, 3]][random.random_range(0..3)];
    config.control.domains = Domains::of_sizes(domains);
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    // A client may get no processor for seconds.
    let transfer_timeout = Duration::from_secs(60);
    config.native = Some(NativeConfig { transfer_timeout, ..NativeConfig::new(address) });
    // A failure must be reported at once.
    config.stop_timeout = Duration::from_secs(1);
    eprintln!(
        "epochs of {:?}, percentile {}, {}, {:?}, steal {}, ring {}, slices of {}, domains of {domains:?}",
        config.epoch,
        config.control.percentile,
        config.poll,
        config.large_order,
        config.steal,
        config.ring_capacity,
        config.slice_bytes
    );
    config
}

/// Checks that many items lie on flash in the end, and that many were read there.
pub(crate) fn assert_cold(tier: Option<&Tier>) {
    let Some(tier) = tier else { return };
    let (in_memory, stats) = (tier.engine().stats().items, tier.stats());
    eprintln!("{in_memory} items in memory, {} on flash, {} read", stats.engine.cold, stats.reads.read_found);
    assert!(stats.engine.cold >= COLD_MIN && stats.reads.read_found >= READS_MIN, "{stats:?}");
}
