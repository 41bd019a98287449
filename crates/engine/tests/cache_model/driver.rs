//! A common interface for the test to the engine in each mode.

use minos_engine::{
    Access, AnyWriter, Concat, Crew, Engine, Entry, ItemMeta, ItemView, Mode, Owner, Pinned, Side,
    StoreConfig,
};
use std::sync::Arc;

use crate::model::{Evictions, Written};

pub(crate) trait Driver: Sized {
    type M: Mode;
    type A: Access;

    fn create(config: &StoreConfig) -> Self;
    fn engine(&self) -> &Arc<Engine<Self::M, Self::A>>;
    fn entry<R>(&mut self, key: &[u8], now: u32, f: impl FnOnce(&mut Entry<'_, Self::M, Self::A>) -> R) -> R;
    fn sweep(&mut self, buckets: usize, now: u32);
    fn flush(&mut self);
    fn check(&mut self) -> Result<(), String>;

    /// Reads as a thread that may move the item to the tail.
    fn read<R>(&mut self, key: &[u8], now: u32, f: impl FnMut(&ItemView<'_>) -> R) -> Option<R>;

    fn get(&mut self, key: &[u8], now: u32) -> Option<Written> {
        let mut value = Vec::new();
        let state = self.read(key, now, |item| {
            value.clear();
            item.copy_value_to(&mut value);
            **item
        })?;
        Some(Written { value, flags: state.flags(), expiry: state.expiry() })
    }

    /// Returns true if it was stored.
    fn set(&mut self, key: &[u8], value: &[&[u8]], meta: ItemMeta, now: u32) -> bool {
        self.entry(key, now, |entry| entry.insert(value, meta).is_ok())
    }

    /// Receives the value first; returns true if it was stored.
    fn set_reserved(&mut self, key: &[u8], value: &[u8], meta: ItemMeta, now: u32) -> bool {
        let engine = Arc::clone(self.engine());
        let Ok(mut reservation) = engine.reserve(engine.hash(key), key, value.len() as u64) else {
            return false;
        };
        reservation.value_mut().copy_from_slice(value);
        self.entry(key, now, |entry| entry.commit(reservation, meta).is_ok())
    }

    /// Returns true if there was an item.
    fn delete(&mut self, key: &[u8], now: u32) -> bool {
        self.entry(key, now, |entry| entry.remove())
    }

    /// Returns true if there was an item.
    fn touch(&mut self, key: &[u8], expiry: u32, now: u32) -> bool {
        self.entry(key, now, |entry| {
            entry.set_expiry(expiry);
            entry.item().is_some()
        })
    }

    /// Returns true if it was written.
    fn overwrite(&mut self, key: &[u8], at: usize, bytes: &[u8], now: u32) -> bool {
        self.entry(key, now, |entry| entry.overwrite_value(at, bytes).is_ok())
    }

    /// Returns true if it was appended.
    fn append(&mut self, key: &[u8], extra: &[u8], now: u32) -> bool {
        let concat = Concat { side: Side::Back, extra, compare: None, cas: None };
        self.entry(key, now, |entry| entry.concat(&concat).is_ok())
    }

    fn pin(&self, key: &[u8], now: u32) -> Option<Pinned<Self::M, Self::A>> {
        self.engine().pin(self.engine().hash(key), key, now)
    }

    fn partition(&self, key: &[u8]) -> usize {
        self.engine().partition_of(self.engine().hash(key))
    }

    fn evictions(&self) -> Evictions {
        let stats = self.engine().stats();
        Evictions { at_head: stats.evictions_log, elsewhere: stats.evictions_index + stats.evictions_large }
    }
}

/// EREW and CRCW: any thread with the table writes.
pub(crate) struct Anyone<M: Mode, A: AnyWriter>(Arc<Engine<M, A>>);

impl<M: Mode, A: AnyWriter> Driver for Anyone<M, A> {
    type M = M;
    type A = A;

    fn create(config: &StoreConfig) -> Self {
        Self(Arc::new(Engine::create(config).unwrap()))
    }

    fn engine(&self) -> &Arc<Engine<M, A>> {
        &self.0
    }

    fn entry<R>(&mut self, key: &[u8], now: u32, f: impl FnOnce(&mut Entry<'_, M, A>) -> R) -> R {
        f(&mut self.0.entry(self.0.hash(key), key, now))
    }

    fn read<R>(&mut self, key: &[u8], now: u32, f: impl FnMut(&ItemView<'_>) -> R) -> Option<R> {
        self.0.read(self.0.hash(key), key, now, f)
    }

    fn sweep(&mut self, buckets: usize, now: u32) {
        for partition in 0..self.0.partitions() {
            self.0.sweep(partition, buckets, now);
        }
    }

    fn flush(&mut self) {
        self.0.flush();
    }

    fn check(&mut self) -> Result<(), String> {
        self.0.check()
    }
}

/// CREW: two owners, each with half of the partitions if there are several.
pub(crate) struct Owners<M: Mode>(Vec<Owner<M>>);

impl<M: Mode> Owners<M> {
    fn of(&mut self, key: &[u8]) -> &mut Owner<M> {
        let hash = self.0[0].hash(key);
        self.0.iter_mut().find(|owner| owner.owns(hash)).expect("all owners are here")
    }
}

impl<M: Mode> Driver for Owners<M> {
    type M = M;
    type A = Crew;

    fn create(config: &StoreConfig) -> Self {
        Self(Engine::create_owned(config, 2).unwrap().1)
    }

    fn engine(&self) -> &Arc<Engine<M, Crew>> {
        self.0[0].engine()
    }

    fn entry<R>(&mut self, key: &[u8], now: u32, f: impl FnOnce(&mut Entry<'_, M, Crew>) -> R) -> R {
        let owner = self.of(key);
        f(&mut owner.entry(owner.hash(key), key, now))
    }

    fn read<R>(&mut self, key: &[u8], now: u32, f: impl FnMut(&ItemView<'_>) -> R) -> Option<R> {
        let owner = self.of(key);
        owner.read(owner.hash(key), key, now, f)
    }

    fn sweep(&mut self, buckets: usize, now: u32) {
        for owner in &mut self.0 {
            let partitions: Vec<_> = owner.own_partitions().collect();
            for partition in partitions {
                owner.sweep(partition, buckets, now);
            }
        }
    }

    fn flush(&mut self) {
        self.0.iter_mut().for_each(Owner::flush);
    }

    fn check(&mut self) -> Result<(), String> {
        Owner::check(&mut self.0)
    }
}
