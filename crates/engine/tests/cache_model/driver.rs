//! The engine in each mode, as the test uses it.

use minos_engine::{Access, Concat, Engine, Entry, ItemMeta, ItemView, Mode, Pinned, Side, StoreConfig};
use std::sync::Arc;

use crate::model::{Evictions, Written};

/// A table whose partitions all belong to this thread, where they belong to threads.
pub(crate) struct Driver<M: Mode, A: Access>(Arc<Engine<M, A>>);

impl<M: Mode, A: Access> Driver<M, A> {
    pub(crate) fn create(config: &StoreConfig) -> Self {
        let engine = Engine::create(config).unwrap();
        engine.take_up(0);
        Self(Arc::new(engine))
    }

    fn entry<R>(&self, key: &[u8], now: u32, f: impl FnOnce(&mut Entry<'_, M, A>) -> R) -> R {
        f(&mut self.0.entry(self.0.hash(key), key, now))
    }

    fn read<R>(&self, key: &[u8], now: u32, f: impl FnMut(&ItemView<'_>) -> R) -> Option<R> {
        self.0.read(self.0.hash(key), key, now, f)
    }

    pub(crate) fn sweep(&self, buckets: usize, now: u32) {
        for partition in 0..self.0.partitions() {
            self.0.sweep(partition, buckets, now);
        }
    }

    pub(crate) fn flush(&self) {
        self.0.flush();
    }

    pub(crate) fn check(&self) -> Result<(), String> {
        self.0.check()
    }

    pub(crate) fn get(&self, key: &[u8], now: u32) -> Option<Written> {
        let mut value = Vec::new();
        let state = self.read(key, now, |item| {
            value.clear();
            item.copy_value_to(&mut value);
            **item
        })?;
        Some(Written { value, flags: state.flags(), expiry: state.expiry() })
    }

    /// Returns true if it was stored.
    pub(crate) fn set(&self, key: &[u8], value: &[&[u8]], meta: ItemMeta, now: u32) -> bool {
        self.entry(key, now, |entry| entry.insert(value, meta).is_ok())
    }

    /// Receives the value first; returns true if it was stored.
    pub(crate) fn set_reserved(&self, key: &[u8], value: &[u8], meta: ItemMeta, now: u32) -> bool {
        let Ok(mut reservation) = self.0.reserve(self.0.hash(key), key, value.len() as u64) else {
            return false;
        };
        reservation.value_mut().copy_from_slice(value);
        self.entry(key, now, |entry| entry.commit(reservation, meta).is_ok())
    }

    /// Returns true if there was an item.
    pub(crate) fn delete(&self, key: &[u8], now: u32) -> bool {
        self.entry(key, now, |entry| entry.remove())
    }

    /// Returns true if there was an item.
    pub(crate) fn touch(&self, key: &[u8], expiry: u32, now: u32) -> bool {
        self.entry(key, now, |entry| {
            entry.set_expiry(expiry);
            entry.item().is_some()
        })
    }

    /// Returns true if it was written.
    pub(crate) fn overwrite(&self, key: &[u8], at: usize, bytes: &[u8], now: u32) -> bool {
        self.entry(key, now, |entry| entry.overwrite_value(at, bytes).is_ok())
    }

    /// Returns true if it was appended.
    pub(crate) fn append(&self, key: &[u8], extra: &[u8], now: u32) -> bool {
        let concat = Concat { side: Side::Back, extra, compare: None, cas: None };
        self.entry(key, now, |entry| entry.concat(&concat).is_ok())
    }

    pub(crate) fn pin(&self, key: &[u8], now: u32) -> Option<Pinned<M, A>> {
        self.0.pin(self.0.hash(key), key, now)
    }

    pub(crate) fn partition(&self, key: &[u8]) -> usize {
        self.0.partition_of(self.0.hash(key))
    }

    pub(crate) fn evictions(&self) -> Evictions {
        let stats = self.0.stats();
        Evictions { at_head: stats.evictions_log, elsewhere: stats.evictions_index + stats.evictions_large }
    }
}
