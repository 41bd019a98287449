//! The writers of a cache under stress: two threads for all partitions, or owners of some partitions each.

use minos_base::KeyHash;
use minos_engine::{Access, Cache};
use std::sync::Arc;

/// An arbitrary time: nothing expires.
pub(crate) const NOW: u32 = 6;

pub(crate) const WRITERS: u32 = 2;

/// A writer with keys of its own.
pub(crate) struct Writer<A: Access> {
    pub(crate) cache: Arc<Cache<A>>,
    pub(crate) number: usize,
}

impl<A: Access> Writer<A> {
    /// True if a key is this writer's. Where partitions belong to nobody, each writer has some keys in all of them.
    pub(crate) fn owns(&self, key: u64) -> bool {
        if A::IS_BY_THREAD {
            return self.cache.owner_of(self.hash(key)) == self.number;
        }
        key % u64::from(WRITERS) == self.number as u64
    }

    pub(crate) fn hash(&self, key: u64) -> KeyHash {
        self.cache.hash(&key.to_le_bytes())
    }

    /// Sweeps a little, and flushes if `flushes` is true.
    pub(crate) fn tidy(&self, flushes: bool) {
        let is_own =
            |&partition: &usize| !A::IS_BY_THREAD || self.cache.owner_of_partition(partition) == self.number;
        for partition in (0..self.cache.partitions()).filter(is_own) {
            self.cache.sweep(partition, 16, NOW);
        }
        match (flushes, A::IS_BY_THREAD) {
            (true, true) => self.cache.flush_of(self.number),
            (true, false) => self.cache.flush(),
            _ => {}
        }
    }
}
