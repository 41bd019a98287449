//! What a store asks for, and how it ends.

use minos_base::{Exptime, StoreKind};

/// A store without its value and its key.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StoreOperation {
    /// On what condition, and whether whole or as a part.
    pub(crate) kind: StoreKind,
    /// What the store keeps for the client.
    pub(crate) flags: u32,
    /// When the item expires.
    pub(crate) exptime: Exptime,
    /// The CAS unique to compare with, or 0.
    pub(crate) unique: u64,
    /// Whether an older value than the client's own is stored over, and marked.
    pub(crate) invalidate: bool,
    /// Whether the client spelled the key in base64.
    pub(crate) key_is_base64: bool,
}

/// How a store ended.
pub(crate) enum Stored {
    /// It is done, and the item has this CAS unique.
    Done(u64),
    /// Its condition did not hold.
    Unmet,
    /// The item is another one than the client has seen.
    OtherCas,
    /// There is nothing to compare with.
    Missing,
    /// There is no room.
    NoMemory,
}

impl StoreOperation {
    /// Whether the value becomes a part of the one that is there.
    pub(crate) fn joins(&self) -> bool {
        matches!(self.kind, StoreKind::Append | StoreKind::Prepend)
    }
}
