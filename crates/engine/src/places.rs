//! Where items lie in a mode, which is all that readers need, and the types of its state.

use crate::slot::Slot;
use minos_region::{Geometry, Offset, View};
use minos_sync::Access;
use std::fmt::Debug;

/// The places of items in a mode.
pub(crate) trait Places: Debug + Send + Sync + Sized + 'static {
    /// The places of a partition's items, as readers need them.
    type Space: Copy + Debug + Send + Sync;

    /// True if slots may name records on flash.
    const IS_TIERED: bool = false;

    /// The space in the words from an offset on, of a region whose arenas have `arena_words`; `None` if there is none.
    fn space_at(
        region: &View,
        words: (Offset, u64),
        geometry: &Geometry,
        arena_words: u64,
    ) -> Option<Self::Space>;

    /// Where the item of a slot is; `None` if it was evicted, or lies on flash.
    fn locate(space: &Self::Space, region: &View, slot: Slot) -> Option<Offset>;

    /// True if the item that [`Places::locate`] found is still there, so that bytes read meanwhile are valid.
    #[inline]
    fn is_there(_: &Self::Space, _: &View, _link: u64) -> bool {
        true
    }
}

/// The state of a table in a mode, which no reader needs.
pub(crate) trait State: Places {
    /// The writer's own state for a partition's items.
    type Room: Debug + Send;

    /// State shared by all partitions.
    type Common<A: Access>: Debug + Send;

    /// A reader's claim on a large value.
    type Pin: Debug + Send;
}
