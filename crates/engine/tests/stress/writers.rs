//! The writers of a cache under stress: two threads for all partitions, or owners of some partitions each.

use minos_base::KeyHash;
use minos_engine::{Access, Cache, CacheMode, Crcw, Crew, Entry, Owner, Put};
use std::sync::Arc;

/// An arbitrary time: nothing expires.
pub(crate) const NOW: u32 = 6;

/// A writer with keys of its own.
pub(crate) trait Writer: Send {
    type Access: Access;

    fn cache(&self) -> &Arc<Cache<Self::Access>>;

    /// True if a key is this writer's.
    fn owns(&self, key: u64, hash: KeyHash) -> bool;

    fn entry<'a>(&'a mut self, hash: KeyHash, key: &'a [u8]) -> Entry<'a, CacheMode, Self::Access>;

    fn put_many(&mut self, puts: &[Put<'_>]);

    /// Reads a key only to record the access.
    fn touch(&mut self, hash: KeyHash, key: &[u8]);

    /// Sweeps a little, and flushes if `flushes` is true.
    fn tidy(&mut self, flushes: bool);
}

/// One of several writers to all partitions.
pub(crate) struct Shared {
    pub(crate) cache: Arc<Cache<Crcw>>,
    pub(crate) number: u64,
    pub(crate) writers: u64,
}

impl Writer for Shared {
    type Access = Crcw;

    fn cache(&self) -> &Arc<Cache<Crcw>> {
        &self.cache
    }

    fn owns(&self, key: u64, _: KeyHash) -> bool {
        key % self.writers == self.number
    }

    fn entry<'a>(&'a mut self, hash: KeyHash, key: &'a [u8]) -> Entry<'a, CacheMode, Crcw> {
        self.cache.entry(hash, key, NOW)
    }

    fn put_many(&mut self, puts: &[Put<'_>]) {
        self.cache.put_many(puts, NOW, |_, _| {});
    }

    fn touch(&mut self, hash: KeyHash, key: &[u8]) {
        self.cache.read(hash, key, NOW, |_| ());
    }

    fn tidy(&mut self, flushes: bool) {
        for partition in 0..self.cache.partitions() {
            self.cache.sweep(partition, 16, NOW);
        }
        if flushes {
            self.cache.flush();
        }
    }
}

impl Writer for Owner<CacheMode> {
    type Access = Crew;

    fn cache(&self) -> &Arc<Cache<Crew>> {
        self.engine()
    }

    fn owns(&self, _: u64, hash: KeyHash) -> bool {
        Owner::owns(self, hash)
    }

    fn entry<'a>(&'a mut self, hash: KeyHash, key: &'a [u8]) -> Entry<'a, CacheMode, Crew> {
        Owner::entry(self, hash, key, NOW)
    }

    fn put_many(&mut self, puts: &[Put<'_>]) {
        Owner::put_many(self, puts, NOW, |_, _| {});
    }

    fn touch(&mut self, hash: KeyHash, key: &[u8]) {
        Owner::read(self, hash, key, NOW, |_| ());
    }

    fn tidy(&mut self, flushes: bool) {
        for partition in 0..self.partitions() {
            if self.own_partitions().any(|own| own == partition) {
                self.sweep(partition, 16, NOW);
            }
        }
        if flushes {
            self.flush();
        }
    }
}
