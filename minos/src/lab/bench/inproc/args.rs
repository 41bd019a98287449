//! The options of `minos bench --target inproc://...`.

use clap::{Args, ValueEnum};
use minos_base::{SizeText, limits::BURST_MAX};
use minos_engine::{Backing, StoreConfig};

use crate::serve::{AccessMode, Evict, parse_backing};

/// Options of a table within the process.
#[derive(Args, Debug, Default)]
#[command(next_help_heading = "With --target inproc://cache or inproc://store")]
pub(in crate::lab::bench) struct InprocArgs {
    /// Access mode: which threads may touch a partition; with erew and crew each thread owns some [default: crew].
    #[arg(long, value_enum, value_name = "MODE")]
    pub(super) access: Option<AccessMode>,

    /// Keys of a burst that are fetched from memory together; 1 fetches none ahead [default: 32].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=BURST_MAX as u64))]
    prefetch_depth: Option<u64>,

    /// Memory of the table, index and all overheads included [default: room for all items].
    #[arg(long, value_name = "SIZE")]
    pub(super) memory: Option<SizeText>,

    /// Memory behind the table: auto, hugetlb, private, small-pages, memfd or file:/PATH [default: auto].
    #[arg(long, value_name = "KIND", value_parser = parse_backing)]
    pub(super) backing: Option<Backing>,

    /// Partitions of the table, a power of two [default: by the memory].
    #[arg(long, value_name = "N")]
    pub(super) partitions: Option<u32>,

    /// Which items a cache evicts [default: approx-lru].
    #[arg(long, value_enum, value_name = "POLICY")]
    pub(super) evict: Option<Evict>,

    /// When keys are hashed [default: before].
    #[arg(long, value_enum, value_name = "WHEN")]
    pub(super) hash: Option<HashArg>,
}

/// When keys are hashed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(super) enum HashArg {
    /// When the requests are drawn, as a client of MICA does
    #[default]
    Before,
    /// Within the measured time
    Inline,
}

impl InprocArgs {
    /// The first option given that does not apply to a server.
    pub(in crate::lab::bench) fn first_given(&self) -> Option<&'static str> {
        let given = [
            ("--access", self.access.is_some()),
            ("--prefetch-depth", self.prefetch_depth.is_some()),
            ("--memory", self.memory.is_some()),
            ("--backing", self.backing.is_some()),
            ("--partitions", self.partitions.is_some()),
            ("--evict", self.evict.is_some()),
            ("--hash", self.hash.is_some()),
        ];
        given.into_iter().find(|(_, is_given)| *is_given).map(|(name, _)| name)
    }

    /// The configuration of a table of `memory_bytes`.
    pub(super) fn store_config(&self, memory_bytes: u64) -> StoreConfig {
        let mut config = StoreConfig::new(memory_bytes);
        config.backing = self.backing.clone().unwrap_or_default();
        config.partitions = self.partitions;
        config.eviction = self.evict.map(Into::into).unwrap_or_default();
        config.prefetch_depth = self.prefetch_depth.unwrap_or(BURST_MAX as u64) as usize;
        config
    }
}
