//! The parts of finding a table again in which the modes differ, and what was found of it.

use crate::{config::StoreConfig, item::ItemState, parts::Parts, slot::Slot, store::Writing};
use minos_region::{ChunkKind, Memory, Offset, UsedChunk};
use minos_sync::Access;
use std::{collections::HashSet, ops::Range};

/// The parts of reopening in which the modes differ.
pub(crate) trait Reopen: Parts {
    /// The facts about a partition's items that their memory alone shows.
    type Entries;

    /// The space at `start`; `None` if there is no valid one.
    fn find_space(
        memory: &Memory,
        config: &StoreConfig,
        start: Offset,
        partition: usize,
    ) -> Option<(Self::Space, Self::Room)>;

    /// The next bucket to be freed of dangling slots, where there are such.
    fn scanned(_: &mut Self::Room) -> Option<&mut u64> {
        None
    }

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
    fn finish<A: Access>(_: Self::Entries, _: &Writing<'_, Self, A>, _: &mut Survey) -> Result<(), String> {
        Ok(())
    }
}

/// The findings of a survey of a table that an earlier process has left.
#[derive(Debug)]
pub(crate) struct Survey {
    /// True if the table was closed, so that any inconsistency is an error.
    pub(crate) is_closed: bool,
    /// As [`StoreConfig::uniques`].
    pub(super) uniques: Option<Range<u64>>,
    pub(super) items: u64,
    pub(super) dropped: u64,
    used: Vec<UsedChunk>,
    /// Extents of large values that lie apart from their items.
    pub(crate) extents: HashSet<Offset>,
}

impl Survey {
    pub(crate) fn new(is_closed: bool, uniques: Option<Range<u64>>) -> Self {
        Self { is_closed, uniques, items: 0, dropped: 0, used: Vec::new(), extents: HashSet::new() }
    }

    /// Items that were found, and items that were dropped.
    pub(crate) fn counts(&self) -> (u64, u64) {
        (self.items, self.dropped)
    }

    pub(crate) fn keep(&mut self, payload: Offset, words: u64, kind: ChunkKind) {
        // The heaps of a table that was closed are right already.
        if !self.is_closed {
            self.used.push(UsedChunk { payload, words, kind });
        }
    }

    /// All memory in use, in ascending order; adjacent permanent chunks are merged into one.
    pub(crate) fn into_used(self) -> Vec<UsedChunk> {
        let mut used = self.used;
        used.sort_unstable_by_key(|chunk| chunk.payload);
        used.dedup_by(|next, chunk| {
            let is_same = chunk.kind == ChunkKind::Forever
                && next.kind == ChunkKind::Forever
                && chunk.payload.plus(chunk.words) == next.payload;
            chunk.words += if is_same { next.words } else { 0 };
            is_same
        });
        used
    }
}
