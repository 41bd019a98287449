//! The findings of a survey of a table that an earlier process has left.

use minos_region::{ChunkKind, Offset, UsedChunk};
use std::collections::HashSet;

#[derive(Debug)]
pub(crate) struct Survey {
    /// True if the table was closed, so that any inconsistency is an error.
    pub(crate) is_closed: bool,
    pub(super) items: u64,
    pub(super) dropped: u64,
    used: Vec<UsedChunk>,
    /// Extents of large values that lie apart from their items.
    pub(crate) extents: HashSet<Offset>,
}

impl Survey {
    pub(crate) fn new(is_closed: bool) -> Self {
        Self { is_closed, items: 0, dropped: 0, used: Vec::new(), extents: HashSet::new() }
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
