//! The parameters and results of a store.

use minos_base::{Exptime, StoreKind};

use super::cold::Cold;

/// A store without its value and its key.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StoreOperation {
    /// The condition of the store, and whether it joins values.
    pub(crate) kind: StoreKind,
    /// The client's flags.
    pub(crate) flags: u32,
    /// Expiry of the item.
    pub(crate) exptime: Exptime,
    /// Required CAS unique, or 0.
    pub(crate) unique: u64,
    /// True to store even if `unique` is older than the item's, marking the item stale.
    pub(crate) invalidate: bool,
    /// True if the client sent the key in base64.
    pub(crate) key_is_base64: bool,
}

/// The result of a store.
pub(crate) enum Stored {
    /// Stored; the item has this CAS unique.
    Done(u64),
    /// Its condition did not hold.
    Unmet,
    /// The item's CAS unique differs.
    OtherCas,
    /// There is no item to compare with.
    Missing,
    /// There is no room.
    NoMemory,
    /// The item that it depends on may be on flash; nothing was done.
    Cold(Cold),
}

impl StoreOperation {
    /// True if the store depends on the stored item.
    pub(crate) fn depends(&self) -> bool {
        self.kind != StoreKind::Set
    }

    /// True if the value is joined with the stored one.
    pub(crate) fn joins(&self) -> bool {
        matches!(self.kind, StoreKind::Append | StoreKind::Prepend)
    }
}
