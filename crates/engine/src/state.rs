//! The types of a table's state, beside its region.

use crate::places::Places;
use minos_sync::Access;
use std::fmt::Debug;

/// The state of a table in a mode, which no reader needs.
pub(crate) trait State: Places {
    /// The writer's own state for a partition's items.
    type Room: Debug + Send;

    /// State shared by all partitions.
    type Common<A: Access>: Debug + Send;

    /// A reader's claim on a large value.
    type Pin: Debug + Send;
}
