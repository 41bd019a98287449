//! The part of a mode that readers need: where items lie, and the types of a partition's state.

use minos_region::{Offset, Region};
use minos_sync::Access;
use std::fmt::Debug;

/// The places of items in a mode.
pub(crate) trait Places: Debug + Send + Sync + Sized + 'static {
    /// The places of a partition's items, as readers need them.
    type Space: Copy + Debug + Send + Sync;

    /// The writer's own state for a partition's items.
    type Room: Debug + Send;

    /// State shared by all partitions.
    type Common<A: Access>: Debug + Send;

    /// A reader's claim on a large value.
    type Pin: Debug + Send;

    /// Where the item of a slot is; `None` if it was evicted.
    fn locate(space: &Self::Space, region: &Region, link: u64) -> Option<Offset>;

    /// True if the item that [`Places::locate`] found is still there, so that bytes read meanwhile are valid.
    fn is_there(space: &Self::Space, region: &Region, link: u64) -> bool;
}
