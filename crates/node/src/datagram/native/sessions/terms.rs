//! Bounds, counts and outcomes of sessions.

use minos_proto::native::{self, Status};

/// Numbers that a session tells apart. A client's open numbers, from the oldest it still needs an answer for
/// to the newest, must fit.
pub(super) const ONCE_WINDOW: u32 = native::ONCE_WINDOW as u32;

/// Locks that guard the sessions.
pub const SHARDS: usize = 64;

/// Bits of an identity that give the session's slot; the others are random.
pub(super) const SLOT_BITS: u32 = 16;

/// Most sessions a table can have.
pub const SESSIONS_MAX: usize = 1 << SLOT_BITS;

/// Bounds on sessions.
#[derive(Clone, Copy, Debug)]
pub struct SessionsConfig {
    /// Sessions in all, from 1 to [`SESSIONS_MAX`]; each takes about 5 KB.
    pub sessions_max: usize,
    /// Sessions of one IP address.
    pub per_address_max: usize,
}

/// The outcome of an operation, as far as a retry must be told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// The status sent to the client.
    pub status: Status,
    /// Client flags of the item, or zero.
    pub item_flags: u32,
    /// The CAS unique that the operation gave the item, or zero.
    pub cas: u64,
    /// The number that INCR and DECR answer with.
    pub number: Option<u64>,
}

/// Every session that could be replaced has an operation in progress.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("all sessions have operations under way")]
pub struct SessionsBusy;

/// Counts of sessions and their operations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SessionTotals {
    /// Sessions open now.
    pub open: u64,
    /// Operations in progress in them.
    pub in_progress: u64,
    /// Sessions opened.
    pub opened: u64,
    /// Sessions replaced by others.
    pub evicted: u64,
    /// Openings refused because all sessions were in use.
    pub refused: u64,
    /// Operations and datagrams of unknown sessions.
    pub unknown: u64,
    /// Operations answered from the stored outcome.
    pub repeated: u64,
    /// Operations that came again while in progress.
    pub repeated_early: u64,
    /// Operations whose number was too old.
    pub too_old: u64,
    /// Datagrams refused as replayed.
    pub replayed: u64,
    /// Sessions checked to open others.
    pub looks: u64,
}
