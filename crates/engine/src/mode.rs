//! The modes of a table as types (MICA §4.3): a mode decides how a table handles full memory. With the
//! types of its answers.

use crate::{
    // Circle: an entry, and what it pins, are generic over their mode, which is `StoreMode` by default.
    entry::Entry,
    parts::Parts,
    places::Places,
    restart::reopen::Reopen,
    store::Engine,
};
use arrayvec::ArrayVec;
use minos_base::{FlashSlot, KeyHash, Seconds};
use minos_sync::Access;

/// Records that a look-up gives.
pub(crate) const SEEN_MAX: usize = 8;

/// Records that may be those of a key.
///
/// A bucket takes in no more than four of one hash. Splits may let a few others look as if they had it too.
pub type Candidates = ArrayVec<FlashSlot, SEEN_MAX>;

/// The place of a key's item.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Lookup {
    /// In memory.
    Hot,
    /// On flash, if one of these records has the key. The one with the highest sequence counts.
    Cold(Candidates),
    /// Nowhere.
    Missing,
}

/// The behaviour of a table when its memory is full: [`crate::StoreMode`], [`crate::CacheMode`] or
/// [`crate::TieredMode`].
#[expect(private_bounds, reason = "there are no other modes than those of this crate")]
pub trait Mode: Parts + Reopen {
    /// Its name on the command line.
    const NAME: &'static str;

    /// True if items may be on flash.
    const HAS_FLASH: bool = <Self as Places>::IS_TIERED;

    /// The place of a key's item that was not found in memory: on flash, or meanwhile in memory, or nowhere.
    #[inline(always)]
    fn look_again<A: Access>(_: &Engine<Self, A>, _: KeyHash, _: &[u8], _: Seconds) -> Lookup {
        Lookup::Missing
    }

    /// True if a large value would find no room now without an eviction; flash is then asked to take items.
    #[inline(always)]
    fn lacks_room<A: Access>(_: &Engine<Self, A>, _value_bytes: u64) -> bool {
        false
    }

    /// The records on flash that may be the key's of this entry, if memory has no item of it.
    #[inline(always)]
    fn candidates<A: Access>(_: &Entry<'_, Self, A>) -> Candidates {
        Candidates::new()
    }

    /// Forgets those records. A cache that cannot read them has lost the item.
    fn forget_candidates<A: Access>(_: &mut Entry<'_, Self, A>) {}
}
