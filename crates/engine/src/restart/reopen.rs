//! The parts of finding a table again in which the modes differ.

use super::findings::Survey;
use crate::{config::StoreConfig, item::ItemState, parts::Parts, slot::Slot, store::Writing};
use minos_region::{Memory, Offset};
use minos_sync::Access;

/// The parts of reopening in which the modes differ.
pub(crate) trait Reopen: Parts {
    /// The facts about a partition's items that their memory alone shows.
    type Entries;

    /// The space at `start`; `None` if there is no valid one.
    fn find_space<A: Access>(
        memory: &Memory<A>,
        config: &StoreConfig,
        start: Offset,
        partition: usize,
    ) -> Option<(Self::Space, Self::Room)>;

    /// The next bucket to be freed of dangling slots.
    fn scanned(room: &Self::Room) -> u64;

    fn set_scanned(room: &mut Self::Room, bucket: u64);

    /// Surveys the memory of the items.
    ///
    /// # Errors
    /// It cannot be that of items.
    fn entries<A: Access>(
        writing: &Writing<'_, Self, A>,
        survey: &mut Survey,
    ) -> Result<Self::Entries, String>;

    /// Words that an item may have at this place; 0 if there cannot be one.
    fn room_words<A: Access>(
        entries: &Self::Entries,
        writing: &Writing<'_, Self, A>,
        link: u64,
        item: Offset,
    ) -> u64;

    /// Records a linked item whose header and key are valid; false if its value was evicted.
    ///
    /// # Errors
    /// The reason why the rest is inconsistent.
    fn claim<A: Access>(
        entries: &mut Self::Entries,
        writing: &Writing<'_, Self, A>,
        survey: &mut Survey,
        linked: (Slot, Offset, &ItemState),
    ) -> Result<bool, &'static str>;

    /// Makes the memory agree with the linked items.
    ///
    /// # Errors
    /// It contradicts the linked items, although the table was closed.
    fn finish<A: Access>(
        entries: Self::Entries,
        writing: &Writing<'_, Self, A>,
        survey: &mut Survey,
    ) -> Result<(), String>;
}
