//! Sizes and promises of a tier.

use minos_device::LaneOptions;

/// The moment from which a change survives a power loss. A change survives the death of the process in any case, if
/// the memory is a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// Items are written when they leave memory; a power loss takes what memory holds.
    None,
    /// Everything is durable so many milliseconds after it was stored, and the time that this takes.
    Interval(u64),
    /// [`crate::Tier::sync`] makes durable everything that was stored before; many wait for one flush.
    Flush,
}

/// Items that are worth a write when they leave the memory of a cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Admission {
    /// All of them.
    #[default]
    All,
    /// Those that were read since they were stored.
    Read,
}

/// Sizes and promises of a tier.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Options {
    /// True for a store, which loses nothing and refuses; its engine's `TierConfig` must say the same.
    pub is_lossless: bool,
    /// The promise about power losses.
    pub durability: Durability,
    /// Items that a cache writes.
    pub admission: Admission,
    /// Sizes and rates of the log; `None`: the usual ones.
    pub log: Option<minos_flash::Options>,
    /// Bytes a second that the scrubber reads; `None`: as `log` says.
    pub scrub_bytes_s: Option<u64>,
    /// Bytes a second that compaction moves unless segments run out; `None`: as `log` says.
    pub compaction_bytes_s: Option<u64>,
    /// The keeper's lane. Its pool holds half a segment at least.
    pub write_lane: LaneOptions,
    /// The lane of each reader. Its pool holds one record of the largest size at least.
    pub read_lane: LaneOptions,
    /// Entries of a partition that the keeper looks at in a turn, under its lock.
    pub entries_a_turn: usize,
    /// Most bytes of items on their way.
    pub bytes_in_flight_max: usize,
    /// Longest time that an item waits in a buffer for others to be written with, in microseconds.
    pub linger_us: u64,
}

impl Options {
    /// A cache.
    pub fn cache() -> Self {
        Self {
            is_lossless: false,
            durability: Durability::None,
            admission: Admission::All,
            log: None,
            scrub_bytes_s: None,
            compaction_bytes_s: None,
            write_lane: LaneOptions { depth: 64, pool_bytes: 8 << 20, ..LaneOptions::default() },
            read_lane: LaneOptions::default(),
            entries_a_turn: 64,
            bytes_in_flight_max: 16 << 20,
            linger_us: 2000,
        }
    }

    /// A store.
    pub fn store(durability: Durability) -> Self {
        Self { is_lossless: true, durability, ..Self::cache() }
    }

    /// The log's policy.
    pub(crate) fn policy(&self) -> minos_flash::Policy {
        if self.is_lossless {
            minos_flash::Policy::Store { utilisation_percent_max: 95 }
        } else {
            minos_flash::Policy::Cache { reinsert_percent: 20 }
        }
    }

    /// True if deaths count only when what killed them is durable.
    pub(crate) fn holds_deaths(&self) -> bool {
        self.is_lossless && self.durability != Durability::None
    }
}
