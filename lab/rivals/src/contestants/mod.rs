//! One file for each table.

mod dashmap;
mod hashbrown;
mod minos;
mod moka;
mod papaya;
mod quick_cache;
mod scc;
mod segcache;

use crate::{
    contestant::{Contestant, Setup, shared},
    probe,
};
use clap::ValueEnum;
use minos_engine::{CacheMode, StoreMode};

/// A family of contestants that share their loaded tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Family {
    /// The Minos engine as a store, in all its modes of data access.
    Minos,
    /// The Minos engine as a cache, in all its modes of data access.
    MinosCache,
    /// The machine's limit: random cache lines, without a table.
    Limit,
    /// dashmap: shards of hashbrown behind locks.
    Dashmap,
    /// papaya: open addressing without locks.
    Papaya,
    /// scc: buckets with locks.
    Scc,
    /// quick_cache: a cache with S3-FIFO.
    QuickCache,
    /// moka: a cache with W-TinyLFU.
    Moka,
    /// hashbrown with foldhash: alone on one thread, behind one mutex on more.
    Hashbrown,
    /// Segcache: segments of items with the same time to live.
    Segcache,
}

impl Family {
    /// Loads the family's contestants.
    pub(crate) fn load<const KEY: usize, const VALUE: usize>(
        self,
        setup: &Setup,
    ) -> anyhow::Result<Vec<Contestant<KEY>>> {
        Ok(match self {
            Self::Minos => minos::contestants::<StoreMode, KEY, VALUE>(setup)?,
            Self::MinosCache => minos::contestants::<CacheMode, KEY, VALUE>(setup)?,
            Self::Limit => probe::contestants::<KEY, VALUE>(setup)?,
            Self::Dashmap => vec![shared::<dashmap::Map<KEY, VALUE>, KEY, VALUE>(setup)],
            Self::Papaya => vec![shared::<papaya::Map<KEY, VALUE>, KEY, VALUE>(setup)],
            Self::Scc => vec![shared::<scc::Map<KEY, VALUE>, KEY, VALUE>(setup)],
            Self::QuickCache => vec![shared::<quick_cache::Map<KEY, VALUE>, KEY, VALUE>(setup)],
            Self::Moka => vec![shared::<moka::Map<KEY, VALUE>, KEY, VALUE>(setup)],
            Self::Hashbrown if setup.threads == 1 => vec![hashbrown::alone::<KEY, VALUE>(setup)],
            Self::Hashbrown => vec![shared::<hashbrown::Locked<KEY, VALUE>, KEY, VALUE>(setup)],
            Self::Segcache => vec![shared::<segcache::Map<KEY, VALUE>, KEY, VALUE>(setup)],
        })
    }
}
