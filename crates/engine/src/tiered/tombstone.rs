//! Tombstones that are due.

pub use minos_base::Tombstone;
use std::{
    collections::{BTreeSet, VecDeque},
    ops::Range,
};

/// Pages of an area that is given up where there was no room for a tombstone: 16 MiB.
const AREA_PAGES: u32 = 4096;

/// Tombstones that are due.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tombstones {
    /// The oldest first.
    pub list: Vec<Tombstone>,
    /// Pages with dead records for which there was no room in the queue. Their segments must be given up, and
    /// [`crate::Engine::forget_pages`] be called for them. Only in a table that may lose items.
    pub areas: Vec<Range<u32>>,
}

/// Tombstones of a partition that wait.
#[derive(Debug, Default)]
pub(super) struct Queue {
    waiting: VecDeque<Tombstone>,
    areas: BTreeSet<u32>,
}

impl Queue {
    pub(super) fn len(&self) -> usize {
        self.waiting.len()
    }

    pub(super) fn push(&mut self, tombstone: Tombstone) {
        self.waiting.push_back(tombstone);
    }

    /// Gives up the area of a page instead.
    pub(super) fn give_up(&mut self, page: u32) {
        self.areas.insert(page / AREA_PAGES);
    }

    pub(super) fn take(&mut self, max: usize) -> Tombstones {
        let list = self.waiting.drain(..max.min(self.waiting.len())).collect();
        let area = |number: u32| number * AREA_PAGES..(number + 1) * AREA_PAGES;
        Tombstones { list, areas: std::mem::take(&mut self.areas).into_iter().map(area).collect() }
    }
}
