//! The short path of most stores: overwrites a small item's value in place with one of the same length.

use crate::{
    burst::Put,
    candidate::{Candidate, Staged},
    entry::Entry,
    inline::Inline,
    item::{HEADER_WORDS, ItemState},
    mode::Mode,
    partition::OutOfMemory,
    store::{Engine, Writing},
};
use minos_base::Seconds;
use minos_sync::{
    Access,
    words::{eq_key, words_for},
};
use std::sync::atomic::Ordering::Relaxed;

impl<M: Mode, A: Access> Engine<M, A> {
    /// Stage 3 of a store: as [`crate::Entry::insert`], with the result of
    /// [`Engine::stage`] for the same hash; that for another one helps nothing.
    #[inline]
    pub fn put_staged(&self, staged: &Staged<'_>, put: &Put<'_>, now: Seconds) -> Result<u64, OutOfMemory> {
        let partition = self.partition(put.hash);
        let writing = Writing { engine: self, partition, writer: A::enter(&partition.writer) };
        // Only the writer of this partition has been entered.
        match &staged.candidate {
            Some(candidate) if !self.reader(partition).is_chain_of(put.hash, candidate.version) => {
                writing.put_found(&Staged { candidate: None }, put, now)
            }
            _ => writing.put_staged(staged, put, now),
        }
    }
}

impl<'a, M: Mode, A: Access> Writing<'a, M, A> {
    /// Stage three of a store.
    #[inline]
    pub(crate) fn put_staged(
        mut self,
        staged: &Staged<'_>,
        put: &Put<'a>,
        now: Seconds,
    ) -> Result<u64, OutOfMemory> {
        M::settle_debts(&mut self);
        if let Some(candidate) = &staged.candidate
            && let Some(cas) = self.overwrite_seen(candidate, put, now)
        {
            return Ok(cas);
        }
        self.put_found(staged, put, now)
    }

    /// A store that is not so simple.
    #[inline(never)]
    fn put_found(self, staged: &Staged<'_>, put: &Put<'a>, now: Seconds) -> Result<u64, OutOfMemory> {
        let head = self.head(put.hash);
        Entry::find_staged(self, (head, staged), put.hash, put.key, now).insert(&[put.value], put.meta)
    }
}

impl<M: Mode, A: Access> Writing<'_, M, A> {
    /// Overwrites the staged item in place, if nothing else has to change; returns the CAS unique.
    #[inline]
    fn overwrite_seen(&mut self, candidate: &Candidate<'_>, put: &Put<'_>, now: Seconds) -> Option<u64> {
        let (region, space, slot) = (self.region(), &self.partition.space, candidate.slot);
        // The slot itself, so that its item was not evicted and the index has not grown over it. Only first
        // buckets: a spare bucket may have joined another chain.
        let is_linked = candidate.cell.load(Relaxed) == slot.0
            && candidate.is_in_first_bucket()
            && M::locate(space, region, slot) == Some(candidate.item);
        let is_small = slot.class_index() <= self.engine.inline_class_max.index();
        if !is_linked || !is_small || M::is_move_due(self.engine, space, slot.link()) {
            return None;
        }
        let (key, value) = (put.key, put.value);
        // The words may lie beyond the region: the item may be another, shorter one.
        let words = region.try_words(candidate.item, HEADER_WORDS + words_for(key.len() + value.len()))?;
        let (header, body) = words.split_first_chunk()?;
        let state = ItemState::of(header, now);
        let is_same = (state.key_bytes(), state.value_bytes()) == (key.len(), value.len())
            && state.is_live(self.partition.index.generation(region))
            && eq_key(body, key);
        if !is_same {
            return None;
        }
        let item = Inline { header, body, state, slot };
        let cas = self.write_over(region.writable(candidate.version)?, &item, value, &put.meta, now);
        self.tell(put.hash, key);
        Some(cas)
    }
}
