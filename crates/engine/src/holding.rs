//! The owner's help for its readers: large values that stay, and items that stay because they are read.

use crate::{
    candidate::Attempt,
    item::{ItemState, ItemView},
    partition::Partition,
    places::State,
    slot::Slot,
    store::Engine,
};
use minos_region::Offset;
use minos_sync::{Access, words::words_for};

/// The part of a mode that keeps items for readers.
pub(crate) trait Holding: State {
    /// True if header and key of an item with a large value lie in memory that is lent
    /// out as plain bytes once it is free.
    /// Those in a log are not.
    const LARGE_HEADERS_ARE_LENT: bool = false;

    /// Runs `look` on header and key of an item with a large value while its memory cannot be reused; `None`
    /// if `is_linked` is false, because the item is gone.
    fn look_at_large<A: Access, R>(
        _: &Partition<Self, A>,
        _: impl FnOnce() -> bool,
        look: impl FnOnce() -> R,
    ) -> Option<R> {
        Some(look())
    }

    /// Claims the large value of an item, if `is_linked` still holds under the lock of the pins. It is missing if it was
    /// evicted.
    fn pin<A: Access>(
        engine: &Engine<Self, A>,
        partition: &Partition<Self, A>,
        item: (Offset, &ItemState),
        is_linked: impl FnOnce() -> bool,
    ) -> Attempt<Claim<Self::Pin>>;

    fn unpin<A: Access>(engine: &Engine<Self, A>, partition: &Partition<Self, A>, pin: &Self::Pin);

    /// True if a read of this slot should move the item away from the point of eviction.
    #[inline]
    fn is_move_due<A: Access>(_: &Engine<Self, A>, _: &Self::Space, _link: u64) -> bool {
        false
    }
}

/// A large value that stays where it is, until the pin is taken back.
#[derive(Debug)]
pub(crate) struct Claim<P> {
    pub(crate) pin: P,
    /// The value begins at byte `at` from here.
    pub(crate) start: Offset,
    pub(crate) at: usize,
}

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
        Attempt::Found(claim) => Some(claim),
        Attempt::Disturbed | Attempt::Missing => None,
    }
}
