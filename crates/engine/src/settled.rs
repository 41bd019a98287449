//! Keys and values lent out of the region: the engine's only unsafe code.
//!
//! Each function borrows a guard that keeps the bytes from being written: the writer
//! of the item's partition, or a claim.

#![allow(unsafe_code)]

use minos_region::{Offset, Region};
use minos_sync::Access;

use crate::{
    holding::Claim,
    item::{ItemState, body},
    places::State,
    store::Writing,
};

/// The key of an item that is linked in the partition of `writing`.
#[inline]
pub(crate) fn key_of<'w, M: State, A: Access>(writing: &'w Writing<'_, M, A>, item: Offset) -> &'w [u8] {
    let region = writing.region();
    let state = ItemState::load(region, item, 0);
    // SAFETY: only the partition's writer gives the memory of a linked item away, and it is borrowed; the
    // key of a linked item is never written.
    unsafe { region.settled_bytes(body(item), 0, state.key_bytes()) }
}

/// The value of an item that lies beside its key, linked in the partition of `writing`.
pub(crate) fn inline_value<'w, M: State, A: Access>(
    writing: &'w Writing<'_, M, A>,
    item: Offset,
    state: &ItemState,
) -> &'w [u8] {
    // SAFETY: only the partition's writer writes values beside their keys, and it is borrowed.
    unsafe { writing.region().settled_bytes(body(item), state.key_bytes(), state.value_bytes()) }
}

impl<P> Claim<P> {
    pub(crate) fn bytes<'a>(&'a self, region: &'a Region, state: &ItemState) -> &'a [u8] {
        // SAFETY: a claimed chunk is neither written nor freed until it is unpinned, which needs the claim.
        unsafe { region.settled_bytes(self.start, self.at, state.value_bytes()) }
    }
}
