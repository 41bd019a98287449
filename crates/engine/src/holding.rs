//! The owner's help for its readers: large values that stay, and items that stay because they are read.

use crate::{item::ItemState, partition::Partition, state::State, store::Engine};
use minos_region::Offset;
use minos_sync::Access;

/// The part of a mode that keeps items for readers.
pub(crate) trait Holding: State {
    /// True if header and key of an item with a large value lie in memory that is lent
    /// out as plain bytes once it is free.
    const LARGE_HEADERS_ARE_LENT: bool;

    /// Runs `look` on header and key of an item with a large value while its memory cannot be reused; `None`
    /// if `is_linked` is false, because the item is gone.
    fn look_at_large<A: Access, R>(
        partition: &Partition<Self, A>,
        is_linked: impl FnOnce() -> bool,
        look: impl FnOnce() -> R,
    ) -> Option<R>;

    /// Claims the large value of an item, if `is_linked` still holds under the lock of the pins.
    fn pin<A: Access>(
        engine: &Engine<Self, A>,
        partition: &Partition<Self, A>,
        item: (Offset, &ItemState),
        is_linked: impl FnOnce() -> bool,
    ) -> Pinning<Self::Pin>;

    /// Ends a claim.
    fn unpin<A: Access>(engine: &Engine<Self, A>, partition: &Partition<Self, A>, pin: &Self::Pin);

    /// True if a read of this slot should move the item away from the point of eviction.
    fn is_move_due<A: Access>(engine: &Engine<Self, A>, space: &Self::Space, link: u64) -> bool;
}

/// The result of a pin request.
pub(crate) enum Pinning<P> {
    /// It is pinned.
    Pinned(Claim<P>),
    /// The item is no longer linked.
    Disturbed,
    /// Its value was evicted.
    Gone,
}

/// A large value that stays where it is, until the pin is taken back.
#[derive(Debug)]
pub(crate) struct Claim<P> {
    pub(crate) pin: P,
    /// The value begins at byte `at` from here.
    pub(crate) start: Offset,
    pub(crate) at: usize,
}
