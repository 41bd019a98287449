//! Visits all items in bounded slices, concurrently with writers: by copies of whole chains.

use crate::{
    candidate::Attempt,
    chain::{WALK_BUCKETS, following},
    generation::Generation,
    holding::Holding,
    item::{ItemState, body},
    mode::Mode,
    partition::Partition,
    reader::{FOREIGN_BUCKETS_MAX, Reader},
    slot::Slot,
    store::Engine,
    versions,
};
use minos_base::{FlashSlot, KeyHash, Seconds, limits::ITEM_KEY_BYTES_MAX};
use minos_region::Offset;
use minos_sync::{
    Access,
    words::{append_to, words_for},
};
use std::sync::atomic::Ordering::Relaxed;

impl<M: Mode, A: Access> Engine<M, A> {
    /// Calls `f` for the live items in up to `buckets_max` chains of a partition, from `cursor` on, which is
    /// 0 at first. Returns the next cursor, `None` after the last chain.
    ///
    /// Items that exist throughout are visited at least once; some are visited twice if the index grows
    /// meanwhile. Writers are not blocked, and `f` may use the table: it sees a consistent copy of a chain.
    ///
    /// # Panics
    /// If there is no such partition, or in EREW, if it is not this thread's: also once `f` has given it up.
    pub fn visit(
        &self,
        partition: usize,
        cursor: u64,
        buckets_max: usize,
        now: Seconds,
        mut f: impl FnMut(&[u8], &ItemState),
    ) -> Option<u64> {
        let partition = self.readable(&self.partitions[partition]);
        let reader = self.reader(partition);
        let buckets = reader.index.buckets(reader.region);
        let end = buckets.min(cursor.saturating_add(buckets_max as u64));
        let mut copy = ChainCopy::default();
        for number in cursor..end {
            self.readable(partition);
            let head = reader.index.bucket(reader.region, number);
            if partition.undisturbed(|| reader.copy_chain(Some(partition), head, now, &mut copy)).is_none() {
                copy.clear();
            }
            copy.items().for_each(|(key, state)| f(key, state));
        }
        reader.cursor_behind(cursor, end)
    }

    /// As [`Engine::visit`], for one chain, with the records on flash that it names, by the same copy. Nobody looks there:
    /// an item in memory may hide one, and some are dead.
    ///
    /// # Panics
    /// If there is no such partition.
    pub fn visit_with_cold(
        &self,
        partition: usize,
        cursor: u64,
        now: Seconds,
        items: impl FnMut((&[u8], &ItemState)),
        cold: &mut Vec<FlashSlot>,
    ) -> Option<u64> {
        let partition = self.readable(&self.partitions[partition]);
        let reader = self.reader(partition);
        let buckets = reader.index.buckets(reader.region);
        if cursor >= buckets {
            return None;
        }
        let (head, mut copy) = (reader.index.bucket(reader.region, cursor), ChainCopy::default());
        if partition.undisturbed(|| reader.copy_chain(Some(partition), head, now, &mut copy)).is_some() {
            copy.items().for_each(items);
            cold.extend_from_slice(&copy.cold);
        }
        reader.cursor_behind(cursor, cursor + 1)
    }

    /// Calls `f` with the keys of all live items with this hash, by a consistent copy of their chain: mostly one.
    pub fn keys_with(&self, hash: KeyHash, now: Seconds, f: impl FnMut(&[u8])) {
        let partition = self.readable(self.partition(hash));
        let reader = self.reader(partition);
        let mut copy = ChainCopy::default();
        if partition.undisturbed(|| reader.copy_chain_of(Some(partition), hash, now, &mut copy)).is_some() {
            copy.keys().filter(|key| self.hash(key) == hash).for_each(f);
        }
    }
}

impl<M: Holding, A: Access, const IS_FOREIGN: bool> Reader<'_, M, A, IS_FOREIGN> {
    /// The cursor behind a slice of a walk that has visited the buckets from one up to another; `None` behind the last.
    ///
    /// The number of buckets is that of now: if the index has grown, keys may have left the slice before it was copied.
    /// Whoever has copied the chain that they left sees their new bucket.
    pub(crate) fn cursor_behind(self, cursor: u64, end: u64) -> Option<u64> {
        let buckets = self.index.buckets(self.region).min(self.index.buckets_max());
        // A slice without a bucket ends the walk: the number of a foreign index may be any, another one at each look.
        (cursor < end && end < buckets).then_some(end)
    }

    /// As [`Reader::copy_chain`], for the chain of a hash, which is the same afterwards.
    pub(crate) fn copy_chain_of(
        self,
        partition: Option<&Partition<M, A>>,
        hash: KeyHash,
        now: Seconds,
        copy: &mut ChainCopy,
    ) -> Attempt<()> {
        let buckets = self.index.buckets(self.region);
        match self.copy_chain(partition, self.head(hash), now, copy) {
            // The key may have moved to a new bucket meanwhile.
            Attempt::Found(()) if self.index.buckets(self.region) != buckets => Attempt::Disturbed,
            attempt => attempt,
        }
    }

    /// Copies the keys and headers of the live items of a chain, all of one moment. Without the partition, which only its
    /// owner's process has, large items are copied without care.
    pub(crate) fn copy_chain(
        self,
        partition: Option<&Partition<M, A>>,
        head: Offset,
        now: Seconds,
        copy: &mut ChainCopy,
    ) -> Attempt<()> {
        copy.clear();
        let Some(mut bucket) = self.bucket(head) else { return Attempt::Disturbed };
        let version = &bucket[0];
        let Some(seen) = versions::begin_read::<A>(version) else { return Attempt::Disturbed };
        let generation = self.index.generation(self.region);
        let is_linked = || versions::still::<A>(version, seen);
        for walked in 1.. {
            let slots = bucket[1..].iter().map(|word| Slot(word.load(Relaxed)));
            slots
                .take_while(|slot| !slot.is_empty())
                .for_each(|slot| self.copy_item((partition, slot, &is_linked), generation, now, copy));
            let Some(spare) = following(bucket[0].load(Relaxed)) else { break };
            let may_stray = walked % WALK_BUCKETS == 0 && !is_linked();
            let next = self.bucket(spare).filter(|_| !IS_FOREIGN || walked < FOREIGN_BUCKETS_MAX);
            let Some(words) = next.filter(|_| !may_stray) else { return Attempt::Disturbed };
            bucket = words;
        }
        if is_linked() { Attempt::Found(()) } else { Attempt::Disturbed }
    }

    /// Copies the key and header of an item, if it is live. One that is impossible is being written, which the
    /// chain's version shows; otherwise it is left out, as are items evicted meanwhile.
    fn copy_item(
        self,
        (partition, slot, is_linked): (Option<&Partition<M, A>>, Slot, &impl Fn() -> bool),
        generation: Generation,
        now: Seconds,
        copy: &mut ChainCopy,
    ) {
        if M::IS_TIERED
            && let Some(cold) = FlashSlot::decode(slot.0)
        {
            return copy.cold.push(cold);
        }
        let Some(item) = M::locate(self.space, self.region, slot) else { return };
        let keys = &mut copy.keys;
        let state = match partition {
            // Its memory may be lent out as plain bytes once it is unlinked: see `Engine::header_for`.
            Some(partition) if A::IS_SHARED && M::LARGE_HEADERS_ARE_LENT && self.is_large(slot) => {
                M::look_at_large(partition, is_linked, || self.copy_key(item, now, keys)).flatten()
            }
            _ => self.copy_key(item, now, keys),
        };
        let Some(state) = state else { return };
        let end = copy.keys.len();
        if M::is_there(self.space, self.region, slot.link()) && state.is_live(generation) {
            copy.items.push((end - state.key_bytes()..end, state));
        }
    }

    /// The header of an item whose key is appended to `keys`; `None` if it cannot be one.
    fn copy_key(self, item: Offset, now: Seconds, keys: &mut Vec<u8>) -> Option<ItemState> {
        let state = ItemState::try_load(self.region, item, now)?;
        let words = self.region.try_words(body(item), words_for(state.key_bytes()))?;
        if state.key_bytes() > ITEM_KEY_BYTES_MAX {
            return None;
        }
        append_to(words, 0, state.key_bytes(), keys);
        Some(state)
    }
}

/// A copy of one chain's items for the visitor; empty if its writer does not finish.
#[derive(Default)]
pub(crate) struct ChainCopy {
    keys: Vec<u8>,
    /// The range of each key in `keys`, and the item's state.
    items: Vec<(std::ops::Range<usize>, ItemState)>,
    /// The slots that name records on flash.
    cold: Vec<FlashSlot>,
}

/// What a slot names.
#[derive(Clone, Copy, Debug)]
pub enum Named<'a> {
    /// A live item in memory, by its key.
    Key(&'a [u8]),
    /// A record on flash.
    Record(FlashSlot),
}

impl ChainCopy {
    fn clear(&mut self) {
        self.keys.clear();
        self.items.clear();
        self.cold.clear();
    }

    pub(crate) fn named(&self) -> impl Iterator<Item = Named<'_>> {
        self.keys().map(Named::Key).chain(self.cold.iter().copied().map(Named::Record))
    }

    pub(crate) fn keys(&self) -> impl Iterator<Item = &[u8]> {
        self.items().map(|(key, _)| key)
    }

    fn items(&self) -> impl Iterator<Item = (&[u8], &ItemState)> {
        self.items.iter().map(|(key, state)| (&self.keys[key.clone()], state))
    }
}
