//! Where items lie in a mode, which is all that readers need, and the types of its state.

use crate::{
    item::{ItemState, ItemView},
    slot::Slot,
};
use minos_base::{KeyHash, is_left_out};
use minos_region::{Geometry, Offset, View};
use minos_sync::{Access, ReadWord, horizon};
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

    /// True if the item of this link is among the next to be evicted, so that a read of it should be told to its
    /// owner.
    fn is_old(_: &Self::Space, _: &View, _link: u64) -> bool {
        false
    }

    /// Where the large value of an item is. Right if the item is still linked afterwards.
    fn large<'a>(_: &'a View, _: KeyHash, _item: Offset, _: &ItemState) -> Large<'a> {
        Large::Beside
    }

    /// True if the item that [`Places::locate`] found is still there, so that bytes read meanwhile are valid.
    #[inline]
    fn is_there(_: &Self::Space, _: &View, _link: u64) -> bool {
        true
    }
}

/// The place of a large value, for a reader that cannot keep it there.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Large<'a> {
    /// Beside its key, where the version of its chain covers it.
    Beside,
    /// In an extent.
    Apart(Extent<'a>),
    /// It was evicted, if its item is linked.
    Gone,
}

/// A large value outside of its item, which may be evicted while it is read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Extent<'a> {
    /// A word that is another one before the memory is used again.
    pub(crate) mark: &'a ReadWord,
    pub(crate) expected: u64,
    /// The value begins at byte `at` of these.
    pub(crate) words: &'a [ReadWord],
    pub(crate) at: usize,
}

impl<'a> Extent<'a> {
    pub(crate) fn view(&self, state: ItemState, slot: Slot) -> ItemView<'a> {
        ItemView::new(state, self.words, self.at, slot)
    }

    /// True if the value stayed in place while its bytes were copied. Call it after the copy.
    ///
    /// In the control `version-check` the answer is always yes, as that of `version::still`.
    pub(crate) fn is_there(&self) -> bool {
        horizon::look_again(self.mark) == self.expected || is_left_out("version-check")
    }
}

/// The access mode that goes with a mode.
pub trait HasAccess {
    /// That of a table of which only the mode is said.
    type Access: Access;
}

/// The state of a table in a mode, which no reader needs.
pub(crate) trait State: Places + HasAccess {
    /// The writer's own state for a partition's items.
    type Room: Debug + Send;

    /// State shared by all partitions.
    type Common: Debug + Send + Sync;

    /// A reader's claim on a large value.
    type Pin: Debug + Send;
}
