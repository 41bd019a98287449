//! One key under its partition's lock.

use crate::{
    chain::Place,
    item::{ItemMeta, ItemState, STALE, WIN_SENT, body},
    partition::{OutOfMemory, Writer, allocate},
    pinned::{Pinned, value_of},
    store::Store,
};
use minos_base::{KeyHash, Seconds, limits::KEY_BYTES_MAX};
use minos_region::Offset;
use minos_sync::{
    SpinGuard, version,
    words::{copy_in, eq_bytes, words_for},
};
use std::{ops::Deref, sync::Arc};

/// The place of one key, under the lock of its partition: nothing else is written there meanwhile.
///
/// Held for a short time only: whatever is long (receiving, sending, copying a large value) is done with
/// a [`crate::Reservation`] before, or with a [`Pinned`] after.
#[derive(Debug)]
pub struct Entry<'a> {
    store: &'a Store,
    writer: SpinGuard<'a, Writer>,
    hash: KeyHash,
    key: &'a [u8],
    now: Seconds,
    found: Option<Place>,
}

/// A live item under its partition's lock.
#[derive(Debug)]
pub struct Item<'a> {
    store: &'a Store,
    item: Offset,
    state: ItemState,
}

impl Item<'_> {
    /// The value.
    pub fn value(&self) -> &[u8] {
        value_of(self.store, self.item, &self.state)
    }
}

impl Deref for Item<'_> {
    type Target = ItemState;

    fn deref(&self) -> &ItemState {
        &self.state
    }
}

impl Store {
    /// Takes the lock of the key's partition and finds the key. A dead item is reclaimed on the way.
    pub fn entry<'a>(&'a self, hash: KeyHash, key: &'a [u8], now: Seconds) -> Entry<'a> {
        let mut writer = self.partition(hash).writer.lock();
        let mut found = writer.find(self.memory(), hash, key);
        if let Some(place) = found
            && writer.reclaim_if_dead(self.memory(), place, now)
        {
            found = None;
        }
        Entry { store: self, writer, hash, key, now, found }
    }
}

impl Entry<'_> {
    /// The live item, if there is one.
    pub fn item(&self) -> Option<Item<'_>> {
        let (item, state) = self.current()?;
        Some(Item { store: self.store, item, state })
    }

    /// Stores the parts of `value`, one after another, in place of whatever is there. Returns the CAS
    /// unique.
    ///
    /// When there is no memory, or the value is larger than the store allows, the old item stays.
    pub fn insert(&mut self, value: &[&[u8]], meta: ItemMeta) -> Result<u64, OutOfMemory> {
        let sizes = (self.key.len(), value.iter().map(|part| part.len() as u64).sum());
        let Some(item) = self.allocate(sizes) else { return self.refuse() };
        let words = self.body_words(item, sizes);
        // The lock ended with a release fence: a reader that strays here sees why it must not.
        copy_in(words, 0, self.key);
        let mut at = self.key.len();
        for part in value {
            copy_in(words, at, part);
            at += part.len();
        }
        let linked = self.link(item, &meta, sizes);
        if linked.is_err() {
            self.free(item);
        }
        linked
    }

    /// Deletes the item; whether there was one.
    pub fn remove(&mut self) -> bool {
        let Some(place) = self.found.take() else { return false };
        self.writer.unlink(self.store.memory(), place);
        true
    }

    /// Sets when the item expires; 0 is never.
    pub fn set_expiry(&mut self, expiry: Seconds) {
        self.rewrite(|state| *state = state.expiring(expiry));
    }

    /// Marks the item as stale, or not.
    pub fn set_stale(&mut self, is_stale: bool) {
        self.set_shape_flag(STALE, is_stale);
    }

    /// Marks that a client was told that it may recache the item, or not.
    pub fn set_win_sent(&mut self, is_win_sent: bool) {
        self.set_shape_flag(WIN_SENT, is_win_sent);
    }

    /// Marks the item as read at `now`.
    pub fn mark_fetched(&mut self, now: Seconds) {
        self.rewrite(|state| state.shape = state.accessed(now));
    }

    /// Gives the item this CAS unique.
    pub fn set_cas(&mut self, cas: u64) {
        self.rewrite(|state| state.cas = cas);
    }

    /// Gives the item the next CAS unique, and returns it; 0 if there is no item.
    pub fn renew_cas(&mut self) -> u64 {
        let cas = self.writer.next_cas();
        if self.found.is_none() {
            return 0;
        }
        self.set_cas(cas);
        cas
    }

    /// Writes `bytes` over a part of the value, from byte `at` on. Returns the item's new CAS unique.
    ///
    /// In place, but for a pinned item, which is replaced by a copy. Without an item, or beyond the end
    /// of its value, nothing is written and there is no memory for it either.
    pub fn overwrite_value(&mut self, at: usize, bytes: &[u8]) -> Result<u64, OutOfMemory> {
        let Some((item, state)) = self.current() else { return Err(OutOfMemory) };
        let end = at.checked_add(bytes.len()).filter(|&end| end <= state.value_bytes());
        let end = end.ok_or(OutOfMemory)?;
        let cas = self.writer.next_cas();
        if state.is_pinned() {
            // The old bytes stay where they are: whoever pinned them may read on.
            let old = value_of(self.store, item, &state);
            let meta = ItemMeta {
                cas: Some(cas),
                stale: state.is_stale(),
                win_sent: state.is_win_sent(),
                encoded_key: state.has_encoded_key(),
                ..state.meta()
            };
            return self.insert(&[&old[..at], bytes, &old[end..]], meta);
        }
        let words = self.body_words(item, (state.key_bytes(), state.value_bytes() as u64));
        self.versioned(|| {
            copy_in(words, state.key_bytes() + at, bytes);
            state.with_cas(cas).store(self.store.memory().region(), item);
        });
        Ok(cas)
    }

    /// Pins the item; `None` if there is none.
    ///
    /// What is returned must outlive the entry: dropping it takes the lock that the entry holds.
    pub fn pin(&mut self, store: &Arc<Store>) -> Option<Pinned> {
        let (item, state) = self.current()?;
        Some(Pinned::new(store, &mut self.writer, self.hash, item, state))
    }

    pub(crate) fn link(
        &mut self,
        item: Offset,
        meta: &ItemMeta,
        sizes: (usize, u64),
    ) -> Result<u64, OutOfMemory> {
        let memory = self.store.memory();
        let cas = self.writer.describe(memory, item, meta, sizes, self.now);
        let hasher = |key: &[u8]| self.store.hash(key);
        match self.writer.link(memory, self.hash, hasher, item, self.found) {
            Ok(place) => {
                self.found = Some(place);
                Ok(cas)
            }
            Err(OutOfMemory) => self.refuse(),
        }
    }

    /// Gives memory back that was not linked.
    pub(crate) fn free(&mut self, item: Offset) {
        self.store.memory().free(&mut self.writer.heap, item);
    }

    /// Whether memory that holds a key of `key_bytes` was reserved for this entry's key.
    pub(crate) fn is_for(&self, store: &Arc<Store>, hash: KeyHash, item: Offset, key_bytes: usize) -> bool {
        std::ptr::eq(Arc::as_ptr(store), self.store)
            && hash == self.hash
            && key_bytes == self.key.len()
            && eq_bytes(self.body_words(item, (key_bytes, 0)), 0, self.key)
    }

    fn allocate(&mut self, sizes: (usize, u64)) -> Option<Offset> {
        if sizes.0 > KEY_BYTES_MAX || sizes.1 > self.store.value_bytes_max {
            return None;
        }
        allocate(self.store.memory(), &mut self.writer.heap, self.store.class_optimistic_max, sizes)
    }

    fn body_words(&self, item: Offset, sizes: (usize, u64)) -> &'_ [std::sync::atomic::AtomicU64] {
        self.store.memory().region().words(body(item), words_for(sizes.0 + sizes.1 as usize))
    }

    fn refuse(&mut self) -> Result<u64, OutOfMemory> {
        self.writer.counts.out_of_memory += 1;
        Err(OutOfMemory)
    }

    fn current(&self) -> Option<(Offset, ItemState)> {
        let region = self.store.memory().region();
        let item = self.found?.slot(region).item();
        Some((item, ItemState::load(region, item, self.now)))
    }

    fn set_shape_flag(&mut self, flag: u64, is_set: bool) {
        self.rewrite(|state| state.shape = if is_set { state.shape | flag } else { state.shape & !flag });
    }

    /// Changes the header of the item, if there is one. Header words may change under a pin.
    fn rewrite(&mut self, change: impl FnOnce(&mut ItemState)) {
        let Some((item, mut state)) = self.current() else { return };
        change(&mut state);
        self.versioned(|| state.store(self.store.memory().region(), item));
    }

    /// Runs `write` while readers of the chain are told to try again.
    fn versioned(&self, write: impl FnOnce()) {
        let Some(place) = self.found else { return };
        let version = self.store.memory().region().word(place.head);
        version::begin_write(version);
        write();
        version::end_write(version);
    }
}
