//! The tier below memory as a type, so that a cache without one has no code for it.

use crate::{places::HasAccess, position::PositionBits};
use minos_sync::{Access, Crcw};
use std::{fmt::Debug, marker::PhantomData};

/// Items in logs of their partitions: [`crate::CacheMode`], and [`crate::TieredMode`].
///
/// `B` is the width of the positions in a log, `T` the tier below memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogMode<B: PositionBits, T>(PhantomData<(B, T)>);

/// The tier below memory.
pub(crate) trait Tier: HasAccess + Copy + Debug + Eq + Send + Sync + 'static {
    /// Name of the mode on the command line.
    const NAME: &'static str;

    /// The mark of a region's layout, of seven bytes.
    const LAYOUT: u64;

    /// True if slots may name records on flash. What only such a table does stands behind this constant.
    const IS_TIERED: bool;

    /// Items per two buckets at which the index grows.
    const ITEMS_PER_TWO_BUCKETS: u64;
}

/// Nothing is below memory. `W` is the access mode of a table of which nothing else is said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryOnly<W = Crcw>(PhantomData<W>);

/// A log on flash is below memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flash;

impl<W: Access> HasAccess for MemoryOnly<W> {
    type Access = W;
}

impl HasAccess for Flash {
    type Access = Crcw;
}

impl<W: Access + Copy + Eq> Tier for MemoryOnly<W> {
    const NAME: &'static str = "cache";
    const LAYOUT: u64 = u64::from_le_bytes(*b"cache 2\0");
    const IS_TIERED: bool = false;
    const ITEMS_PER_TWO_BUCKETS: u64 = 9;
}

impl Tier for Flash {
    const NAME: &'static str = "tiered";
    const LAYOUT: u64 = u64::from_le_bytes(*b"tiered1\0");
    const IS_TIERED: bool = true;
    /// Most keys are on flash, where a further line of the index costs little, and what memory has stands in the
    /// first lines. An item takes less than 11 bytes.
    const ITEMS_PER_TWO_BUCKETS: u64 = 32;
}
