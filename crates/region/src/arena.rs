//! Arenas: the units that partitions' logs and heaps consist of.

use crate::{
    heap::{ARENA, Heap, LOG, USED, mark, tag_of},
    memory::Memory,
    offset::Offset,
};
use minos_sync::Access;
use std::sync::atomic::{
    Ordering::{Relaxed, Release},
    compiler_fence,
};

/// A span of [`Memory::arena_words`] words, on a cache line, which lock-free readers may read.
///
/// Identified by its start, so that the region can hold it as one word. Only [`Memory::free_arena`] frees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Arena(Offset);

impl Arena {
    /// The arena that begins here; `start` must come from [`Arena::start`].
    pub fn from_start(start: Offset) -> Self {
        Self(start)
    }

    /// Where its words begin.
    #[inline]
    pub fn start(self) -> Offset {
        self.0
    }
}

impl<A: Access> Memory<A> {
    /// Words of every arena: a power of two, 64 KiB to 1 MiB by the size of the store, such that about 64
    /// of them fit into the even share of one partition.
    #[inline]
    pub fn arena_words(&self) -> u64 {
        self.layout.arena_words
    }

    /// An arena for a partition's log, from the region's heap, so that logs, index and large values share
    /// one memory. Its initial contents are unspecified.
    pub fn allocate_arena(&self) -> Option<Arena> {
        let payload = self.allocate_words(self.layout.arena_payload_words())?;
        Some(Arena(self.open_arena(payload, LOG)))
    }

    /// Frees a log's arena.
    ///
    /// # Panics
    /// If it is no arena of a log.
    pub fn free_arena(&self, arena: Arena) {
        let payload = self.arena_payload(arena.0);
        let tag = tag_of(self.region(), payload);
        // Not only in debug builds: memory freed twice would be allocated twice.
        assert!(tag & (LOG | USED) == LOG | USED, "not an arena of a log");
        self.free_settled(payload);
    }

    /// The arenas of logs, in the order in which they lie in the region.
    ///
    /// # Errors
    /// If the region's heap is broken.
    pub fn log_arenas(&self) -> Result<Vec<Arena>, String> {
        let walk = self.walk_root()?;
        Ok(walk.logs.iter().map(|&(payload, _)| Arena(self.layout.arena_span(payload))).collect())
    }

    pub(crate) fn add_arena(&self, partition: &mut Heap, payload: Offset) {
        let span = self.open_arena(payload, ARENA);
        partition.add_span(self.region(), span, self.layout.arena_words);
    }

    /// Where the payload begins whose arena begins at `span`.
    pub(crate) fn arena_payload(&self, span: Offset) -> Offset {
        Offset::from_words(self.region().word(span.minus(1)).load(Relaxed))
    }

    /// Makes a chunk an arena of this kind, and returns the start of its span.
    pub(crate) fn open_arena(&self, payload: Offset, kind: u64) -> Offset {
        let span = self.layout.arena_span(payload);
        self.layout.shared.mark(self.region(), span, self.layout.arena_words);
        mark(self.region(), payload, kind);
        // Relaxed: the thread that frees the arena got it through a lock.
        self.region().word(span.minus(1)).store(payload.words(), Relaxed);
        // A process that finds data in the arena after a crash also finds its mark.
        compiler_fence(Release);
        span
    }
}
