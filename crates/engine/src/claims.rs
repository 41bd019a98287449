//! Claims on large values for the time of a call.

use crate::{
    holding::{Claim, Holding, Pinning},
    item::{ItemState, ItemView},
    partition::Partition,
    slot::Slot,
    store::Engine,
};
use minos_region::Offset;
use minos_sync::{Access, words::words_for};

/// A claim for the time of a call.
#[derive(Debug)]
pub(crate) struct HeldClaim<'a, M: Holding, A: Access> {
    pub(crate) engine: &'a Engine<M, A>,
    pub(crate) partition: &'a Partition<M, A>,
    pub(crate) claim: Claim<M::Pin>,
}

impl<M: Holding, A: Access> HeldClaim<'_, M, A> {
    pub(crate) fn view(&self, state: ItemState, slot: Slot) -> ItemView<'_> {
        let words = words_for(self.claim.at + state.value_bytes());
        let words = self.engine.memory().region().view().words(self.claim.start, words);
        ItemView::new(state, words, self.claim.at, slot)
    }
}

impl<M: Holding, A: Access> Drop for HeldClaim<'_, M, A> {
    fn drop(&mut self) {
        M::unpin(self.engine, self.partition, &self.claim.pin);
    }
}

/// Claims the large value of an item that only the caller may unlink; `None` if it was evicted.
pub(crate) fn claim_of_writer<M: Holding, A: Access>(
    engine: &Engine<M, A>,
    partition: &Partition<M, A>,
    item: Offset,
    state: &ItemState,
) -> Option<Claim<M::Pin>> {
    match M::pin(engine, partition, (item, state), || true) {
        Pinning::Pinned(claim) => Some(claim),
        Pinning::Disturbed | Pinning::Gone => None,
    }
}
