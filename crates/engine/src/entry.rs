//! One key while its partition's writer is at work.

use crate::{
    candidate::Staged,
    holding::{HeldClaim, claim_of_writer},
    inline::Inline,
    item::{ItemMeta, ItemState, STALE, WIN_SENT, body, item_words},
    linking::Found,
    mode::Mode,
    partition::OutOfMemory,
    parts::Placed,
    pinned::Pinned,
    places::HasAccess,
    settled::inline_value,
    slot::Slot,
    store::{Engine, Writing},
    versions,
};
use minos_base::{KeyHash, Seconds};
use minos_region::{Offset, Region};
use minos_sync::{
    Access,
    words::{copy_in, words_for},
};
use std::{
    ops::Deref,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

/// The place of one key, while nothing else is written in its partition.
///
/// Hold it for a short time only: long work (receiving, sending, copying a large value) belongs to
/// a [`crate::Reservation`] before, or to a [`Pinned`] after.
#[derive(Debug)]
pub struct Entry<'a, M: Mode = crate::StoreMode, A: Access = <M as HasAccess>::Access> {
    pub(crate) writing: Writing<'a, M, A>,
    pub(crate) hash: KeyHash,
    pub(crate) key: &'a [u8],
    now: Seconds,
    found: Option<Found>,
}

/// A live item that no other thread may write.
#[derive(Debug)]
pub struct Item<'a, M: Mode = crate::StoreMode, A: Access = <M as HasAccess>::Access> {
    state: ItemState,
    value: Held<'a, M, A>,
}

/// The value of an item, with the borrow that keeps it unchanged.
#[derive(Debug)]
enum Held<'a, M: Mode, A: Access> {
    /// The borrowed writer of its partition.
    Inline(&'a [u8]),
    /// A claim: other partitions may evict large values.
    Large(HeldClaim<'a, M, A>),
}

impl<M: Mode, A: Access> Item<'_, M, A> {
    /// The value.
    pub fn value(&self) -> &[u8] {
        match &self.value {
            Held::Inline(value) => value,
            Held::Large(held) => held.claim.bytes(held.engine.memory().region(), &self.state),
        }
    }
}

impl<M: Mode, A: Access> Deref for Item<'_, M, A> {
    type Target = ItemState;

    fn deref(&self) -> &ItemState {
        &self.state
    }
}

impl<M: Mode, A: Access> Engine<M, A> {
    /// Waits for the writer of the key's partition and finds the key. A dead item is reclaimed on the way.
    #[inline]
    pub fn entry<'a>(&'a self, hash: KeyHash, key: &'a [u8], now: Seconds) -> Entry<'a, M, A> {
        Entry::find(self.writing(hash), hash, key, now)
    }
}

impl<'a, M: Mode, A: Access> Entry<'a, M, A> {
    #[inline]
    pub(crate) fn find(mut writing: Writing<'a, M, A>, hash: KeyHash, key: &'a [u8], now: Seconds) -> Self {
        writing.writer.now = now;
        M::settle_debts(&mut writing);
        let found = writing.find(hash, key);
        Self::at(writing, hash, key, now, found)
    }

    /// As [`Entry::find`], where `staged` may hold the key's place.
    #[inline]
    pub(crate) fn find_staged(
        mut writing: Writing<'a, M, A>,
        (head, staged): (Offset, &Staged<'_>),
        hash: KeyHash,
        key: &'a [u8],
        now: Seconds,
    ) -> Self {
        writing.writer.now = now;
        M::settle_debts(&mut writing);
        let found = writing.confirm(head, staged, key).or_else(|| writing.find(hash, key));
        Self::at(writing, hash, key, now, found)
    }

    #[inline]
    fn at(
        mut writing: Writing<'a, M, A>,
        hash: KeyHash,
        key: &'a [u8],
        now: Seconds,
        mut found: Option<Found>,
    ) -> Self {
        if let Some(there) = &found
            && writing.is_dead(there.slot, there.item, now)
        {
            writing.reclaim_if_dead(there.place, now);
            found = None;
        }
        Self { writing, hash, key, now, found }
    }
}

impl<'a, M: Mode, A: Access> Entry<'a, M, A> {
    /// The live item, if there is one.
    pub fn item(&self) -> Option<Item<'_, M, A>> {
        let (item, state) = self.current()?;
        let Writing { engine, partition, .. } = self.writing;
        let value = if engine.is_inline(state.value_bytes() as u64) {
            Held::Inline(inline_value(&self.writing, item, &state))
        } else {
            let claim = claim_of_writer(engine, partition, item, &state)?;
            Held::Large(HeldClaim { engine, partition, claim })
        };
        Some(Item { state, value })
    }

    /// Stores the concatenated parts of `value`, replacing any item. Returns the CAS unique.
    ///
    /// When there is no memory, or the value is larger than the table allows, the old item stays.
    pub fn insert(&mut self, value: &[&[u8]], meta: ItemMeta) -> Result<u64, OutOfMemory> {
        if let [value] = value
            && let Some(found) = self.found
            && let Some(cas) = self.overwrite(&found, value, &meta)
        {
            return Ok(cas);
        }
        self.insert_parts(value, meta)
    }

    /// A store that is not so simple.
    #[inline(never)]
    fn insert_parts(&mut self, value: &[&[u8]], meta: ItemMeta) -> Result<u64, OutOfMemory> {
        let sizes = (self.key.len(), value.iter().map(|part| part.len() as u64).sum());
        if !M::takes(self.writing.engine, sizes.0, sizes.1) {
            return self.refuse(sizes.1);
        }
        if !self.writing.engine.is_inline(sizes.1) {
            return self.insert_large(value, meta, sizes);
        }
        if let Some(found) = self.found
            && self.fits_in_place(&found, sizes)
        {
            return Ok(self.update(found, value, &meta, sizes));
        }
        let Some(placed) = M::allocate(&mut self.writing, item_words(sizes.0, sizes.1)) else {
            return self.refuse(sizes.1);
        };
        let words = self.words(body(placed.item), sizes.0 + sizes.1 as usize);
        // Entering ended with a release fence: a reader that strays here sees why it must not.
        copy_in(words, 0, self.key);
        copy_parts(words, sizes.0, value);
        let linked = self.link(placed, &meta, sizes);
        if linked.is_err() {
            M::abandon(&mut self.writing, placed);
        }
        linked
    }

    /// Deletes the item; returns true if there was one.
    pub fn remove(&mut self) -> bool {
        let Some(found) = self.found.take() else { return false };
        self.writing.unlink(found.place);
        self.tell();
        true
    }

    /// Sets when the item expires; 0 is never.
    pub fn set_expiry(&mut self, expiry: Seconds) {
        self.set_expiry_early(expiry, 0);
    }

    /// As [`Entry::set_expiry`], with [`ItemMeta::early_ms`].
    pub fn set_expiry_early(&mut self, expiry: Seconds, early_ms: u16) {
        self.rewrite(|state| *state = state.expiring(expiry, early_ms));
        self.writing.engine.note_expiry(expiry);
    }

    /// Marks the item as stale, or not.
    pub fn set_stale(&mut self, is_stale: bool) {
        self.set_shape_flag(STALE, is_stale);
    }

    /// Sets or clears the mark that a client was given the right to recache the item.
    pub fn set_win_sent(&mut self, is_win_sent: bool) {
        self.set_shape_flag(WIN_SENT, is_win_sent);
    }

    /// Marks the item as read at `now`.
    pub fn mark_fetched(&mut self, now: Seconds) {
        self.rewrite(|state| state.shape = state.accessed(now));
    }

    /// Gives the item this CAS unique.
    pub fn set_cas(&mut self, cas: u64) {
        self.rewrite(|state| *state = state.with_cas(cas));
    }

    /// Gives the item the next CAS unique, and returns it; 0 if there is no item.
    pub fn renew_cas(&mut self) -> u64 {
        let cas = self.writing.writer.next_cas();
        if self.found.is_none() {
            return 0;
        }
        self.set_cas(cas);
        cas
    }

    /// Writes `bytes` over a part of the value, from byte `at` on. Returns the item's new CAS unique.
    ///
    /// Writes in place, except in a large value, which is replaced by a copy. Without an item, or beyond the
    /// end of its value, writes nothing and returns [`OutOfMemory`].
    pub fn overwrite_value(&mut self, at: usize, bytes: &[u8]) -> Result<u64, OutOfMemory> {
        let Some((item, state)) = self.current() else { return Err(OutOfMemory) };
        let end = at.checked_add(bytes.len()).filter(|&end| end <= state.value_bytes());
        let end = end.ok_or(OutOfMemory)?;
        let cas = self.writing.writer.next_cas();
        if !self.writing.engine.is_inline(state.value_bytes() as u64) {
            // Large values are read as plain bytes: they are never changed where they are.
            let old = self.item().ok_or(OutOfMemory)?.value().to_vec();
            return self.insert(&[&old[..at], bytes, &old[end..]], state.meta_with(cas));
        }
        let words = self.words(body(item), state.key_bytes() + state.value_bytes());
        self.changes();
        self.versioned(|region| {
            copy_in(words, state.key_bytes() + at, bytes);
            state.with_cas(cas).store(region, item);
        });
        self.tell();
        Ok(cas)
    }

    /// Pins the item; `None` if there is none.
    ///
    /// # Panics
    /// If `engine` is not the table of this entry.
    pub fn pin(&mut self, engine: &Arc<Engine<M, A>>) -> Option<Pinned<M, A>> {
        assert!(std::ptr::eq(&**engine, self.writing.engine), "an entry of another table");
        let (item, state) = self.current()?;
        Pinned::of_writer(engine, &self.writing, self.hash, item, state)
    }

    /// Links an item with a large value, which is freed if that fails.
    pub(crate) fn link_placed(
        &mut self,
        placed: Placed,
        meta: &ItemMeta,
        value_bytes: u64,
    ) -> Result<u64, OutOfMemory> {
        let linked = self.link(placed, meta, (self.key.len(), value_bytes));
        if linked.is_err() {
            M::abandon(&mut self.writing, placed);
        }
        linked
    }

    pub(crate) fn refuse(&mut self, value_bytes: u64) -> Result<u64, OutOfMemory> {
        self.writing.partition.counts.refuse(value_bytes);
        Err(OutOfMemory)
    }

    fn insert_large(
        &mut self,
        value: &[&[u8]],
        meta: ItemMeta,
        sizes: (usize, u64),
    ) -> Result<u64, OutOfMemory> {
        let engine = self.writing.engine;
        let Some(settled) = M::take_large(engine, sizes.0, sizes.1) else { return self.refuse(sizes.1) };
        let chunk = settled.into_chunk();
        let at = M::large_value_at(sizes.0);
        copy_parts(self.words(chunk, at + sizes.1 as usize), at, value);
        let Some(placed) = M::place_large(&mut self.writing, chunk, self.key, sizes.1) else {
            engine.memory().free_settled(chunk);
            return self.refuse(sizes.1);
        };
        self.link_placed(placed, &meta, sizes.1)
    }

    /// Writes a value of the same length over that of a small item, under the bucket's version.
    #[inline]
    fn overwrite(&mut self, found: &Found, value: &[u8], meta: &ItemMeta) -> Option<u64> {
        let region = self.writing.region();
        let header = region.array(found.item);
        let state = ItemState::of(header, self.now);
        let may_stay = found.slot.class_index() <= self.writing.engine.inline_class_max.index()
            && !M::is_move_due(self.writing.engine, &self.writing.partition.space, found.slot.link());
        if state.value_bytes() != value.len() || !may_stay {
            return None;
        }
        let body = self.words(body(found.item), state.key_bytes() + value.len());
        let item = Inline { header, body, state, slot: found.slot };
        let cas = self.writing.write_over(region.word(found.place.head), &item, value, meta, self.now);
        self.tell();
        Some(cas)
    }

    fn fits_in_place(&self, found: &Found, sizes: (usize, u64)) -> bool {
        found.slot.class_index() <= self.writing.engine.inline_class_max.index()
            && M::fits_in_place(&self.writing, found.slot, found.item, item_words(sizes.0, sizes.1))
    }

    /// Writes another value over that of a small item, under the bucket's version.
    fn update(&mut self, found: Found, value: &[&[u8]], meta: &ItemMeta, sizes: (usize, u64)) -> u64 {
        let cas = meta.cas.unwrap_or_else(|| self.writing.writer.next_cas());
        let region = self.writing.region();
        let generation = self.writing.partition.index.generation(region);
        let old = ItemState::load(region, found.item, self.now);
        let new = ItemState::new(meta, cas, sizes.0, sizes.1, generation, self.now);
        let slot = Slot::new(self.hash, sizes.1, found.slot.link());
        let words = self.words(body(found.item), sizes.0 + sizes.1 as usize);
        M::changes(&mut self.writing, found.slot);
        self.versioned(|region| {
            copy_parts(words, sizes.0, value);
            new.store(region, found.item);
            if slot != found.slot {
                found.place.cell(region).store(slot.0, Relaxed);
            }
        });
        self.writing.partition.counts.update(&old, &new);
        self.writing.engine.note_expiry(meta.expiry);
        self.found = Some(Found { slot, ..found });
        self.tell();
        cas
    }

    fn link(&mut self, placed: Placed, meta: &ItemMeta, sizes: (usize, u64)) -> Result<u64, OutOfMemory> {
        let cas = self.writing.describe(placed.item, meta, sizes, self.now);
        if M::IS_TIERED {
            // Making room may have moved or removed slots, and a dead item may have stayed.
            self.found = self.writing.find(self.hash, self.key);
        }
        match self.writing.link(self.hash, placed, self.found.map(|found| found.place)) {
            Ok(found) => {
                self.found = Some(found);
                self.tell();
                Ok(cas)
            }
            Err(OutOfMemory) => self.refuse(sizes.1),
        }
    }

    /// The words from `start` on that hold so many bytes.
    fn words(&self, start: Offset, bytes: usize) -> &'a [AtomicU64] {
        self.writing.region().words(start, words_for(bytes))
    }

    fn current(&self) -> Option<(Offset, ItemState)> {
        let item = self.found?.item;
        Some((item, ItemState::load(self.writing.region(), item, self.now)))
    }

    fn set_shape_flag(&mut self, flag: u64, is_set: bool) {
        self.rewrite(|state| state.shape = if is_set { state.shape | flag } else { state.shape & !flag });
    }

    /// Changes the header of the item, if there is one.
    fn rewrite(&mut self, change: impl FnOnce(&mut ItemState)) {
        let Some((item, mut state)) = self.current() else { return };
        let before = state;
        change(&mut state);
        let is_same = state.is_same_record(&before);
        if !is_same {
            self.changes();
        }
        self.versioned(|region| state.store(region, item));
        if !is_same {
            self.tell();
        }
    }

    /// The contents of the item are about to change.
    fn changes(&mut self) {
        if let Some(found) = self.found {
            M::changes(&mut self.writing, found.slot);
        }
    }

    /// Tells of a change that was just made.
    #[inline]
    fn tell(&self) {
        self.writing.tell(self.hash, self.key);
    }

    /// Runs `write` under the chain's version, so that concurrent readers retry.
    fn versioned(&self, write: impl FnOnce(&Region)) {
        let Some(found) = self.found else { return };
        let region = self.writing.region();
        versions::write::<A>(region.word(found.place.head), || write(region));
    }
}

/// Copies parts one after another into words, from byte `at` on.
fn copy_parts(words: &[AtomicU64], mut at: usize, parts: &[&[u8]]) {
    for part in parts {
        copy_in(words, at, part);
        at += part.len();
    }
}
