//! Tables behind one interface for benchmarks, and keys for them.

use minos_base::{KeyHash, Seconds};
use minos_engine::{
    Access, Backing, CreateError, Delete, Engine, Entry, Get, ItemMeta, Mode, Put, StoreConfig,
};

/// Time stands still: nothing expires.
pub const NOW: Seconds = 2;

/// A key with its hash, which callers of the engine compute once.
#[derive(Clone, Copy, Debug)]
pub struct Key<const KEY: usize> {
    pub hash: KeyHash,
    pub bytes: [u8; KEY],
}

impl<const KEY: usize> Key<KEY> {
    /// The key of a number. Neighbours have nothing in common.
    pub fn new(number: u64) -> Self {
        let mut bytes = [0; KEY];
        for (part, chunk) in (1..).zip(bytes.chunks_mut(8)) {
            let word = minos_base::hash_key(&number.to_le_bytes(), part).0;
            chunk.copy_from_slice(&word.to_le_bytes()[..chunk.len()]);
        }
        Self { hash: minos_base::hash_key(&bytes, 0), bytes }
    }

    pub fn get(&self) -> Get<'_> {
        Get { hash: self.hash, key: &self.bytes }
    }

    pub fn put<'a>(&'a self, value: &'a [u8]) -> Put<'a> {
        Put { hash: self.hash, key: &self.bytes, value, meta: ItemMeta::default() }
    }

    pub fn delete(&self) -> Delete<'_> {
        Delete { hash: self.hash, key: &self.bytes }
    }
}

/// A table in the hands of its only thread.
pub trait Table {
    type Mode: Mode;
    type Access: Access;

    /// An empty one.
    fn create(config: &StoreConfig) -> Result<Self, CreateError>
    where
        Self: Sized;

    fn engine(&self) -> &Engine<Self::Mode, Self::Access>;

    fn entry<'a>(&'a mut self, hash: KeyHash, key: &'a [u8]) -> Entry<'a, Self::Mode, Self::Access>;

    fn put_many(&mut self, puts: &[Put<'_>], f: impl FnMut(usize, bool));

    fn delete_many(&mut self, deletes: &[Delete<'_>], f: impl FnMut(usize, bool));

    /// Stores an item as one that was read before, so that reads have nothing to write down.
    fn load<const KEY: usize>(&mut self, key: &Key<KEY>, value: &[u8]) {
        let mut entry = self.entry(key.hash, &key.bytes);
        entry.insert(&[value], ItemMeta::default()).expect("room for all items");
        entry.mark_fetched(NOW);
    }
}

impl<M: Mode, A: Access> Table for Engine<M, A> {
    type Mode = M;
    type Access = A;

    fn create(config: &StoreConfig) -> Result<Self, CreateError> {
        Engine::create(config)
    }

    #[inline]
    fn engine(&self) -> &Engine<M, A> {
        self
    }

    #[inline]
    fn entry<'a>(&'a mut self, hash: KeyHash, key: &'a [u8]) -> Entry<'a, M, A> {
        Engine::entry(self, hash, key, NOW)
    }

    #[inline]
    fn put_many(&mut self, puts: &[Put<'_>], mut f: impl FnMut(usize, bool)) {
        Engine::put_many(self, puts, NOW, |at, stored| f(at, stored.is_ok()));
    }

    #[inline]
    fn delete_many(&mut self, deletes: &[Delete<'_>], f: impl FnMut(usize, bool)) {
        Engine::delete_many(self, deletes, NOW, f);
    }
}

/// A configuration with private memory of `memory_bytes` bytes.
pub fn config(memory_bytes: u64) -> StoreConfig {
    StoreConfig { backing: Backing::Private, ..StoreConfig::new(memory_bytes) }
}
