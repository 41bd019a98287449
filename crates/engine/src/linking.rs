//! Finds, links and unlinks the items of a partition, for its writer.

use crate::{
    candidate::{Candidate, Staged, bucket_words},
    chain::{self, Place},
    index::Index,
    item::{HEADER_WORDS, ItemMeta, ItemState, has_key_bytes},
    partition::{OutOfMemory, Partition},
    parts::{Parts, Placed},
    relink,
    settled::key_of,
    slot::Slot,
    store::Writing,
};
use minos_base::{FlashSlot, KeyHash, Seconds};
use minos_region::{Offset, Region};
use minos_sync::{Access, tags, words};
use std::{mem, sync::atomic::Ordering::Relaxed};

/// Insertions to let pass before growing is tried again, after there was no memory for it.
const GROWTH_PAUSE: u32 = 64;

/// Doublings of the table for which a slot on flash says where it goes.
const DOUBLINGS: u32 = 8;

#[derive(Clone, Copy, Debug)]
pub(crate) struct Found {
    pub(crate) place: Place,
    pub(crate) slot: Slot,
    pub(crate) item: Offset,
}

impl<M: Parts, A: Access> Writing<'_, M, A> {
    /// The item with this key, dead or alive.
    #[inline]
    pub(crate) fn find(&self, hash: KeyHash, key: &[u8]) -> Option<Found> {
        let region = self.region();
        let head = self.head(hash);
        let mut bucket = head;
        loop {
            let words = bucket_words(region, bucket);
            for word in tags::matching(words, hash.tag()) {
                let slot = Slot(words[word].load(Relaxed));
                if let Some(item) = M::locate(&self.partition.space, region, slot)
                    && has_key(region, item, key)
                {
                    return Some(Found { place: Place { head, bucket, word }, slot, item });
                }
            }
            bucket = chain::following(words[0].load(Relaxed))?;
        }
    }

    /// The item that an earlier stage found for this key in the first bucket, if it is still current.
    #[inline]
    pub(crate) fn confirm(&self, head: Offset, staged: &Staged<'_>, key: &[u8]) -> Option<Found> {
        let Candidate { slot, item, .. } = staged.candidate?;
        let region = self.region();
        // The slot itself, so that its item was not evicted and the index has not grown over it.
        let word =
            bucket_words(region, head).iter().skip(1).position(|word| word.load(Relaxed) == slot.0)? + 1;
        let is_there = M::locate(&self.partition.space, region, slot) == Some(item);
        (is_there && has_key(region, item, key)).then_some(Found {
            place: Place { head, bucket: head, word },
            slot,
            item,
        })
    }

    /// The first bucket of the chain of `hash`.
    #[inline]
    pub(crate) fn head(&self, hash: KeyHash) -> Offset {
        let (region, index) = (self.region(), &self.partition.index);
        index.bucket_of(region, index.buckets(region), hash)
    }

    /// Writes the header of a new item.
    #[inline]
    pub(crate) fn describe(
        &mut self,
        item: Offset,
        meta: &ItemMeta,
        sizes: (usize, u64),
        now: Seconds,
    ) -> u64 {
        let cas = meta.cas.unwrap_or_else(|| self.writer.next_cas());
        let generation = self.partition.index.generation(self.region());
        ItemState::new(meta, cas, sizes.0, sizes.1, generation, now).store(self.region(), item);
        cas
    }

    /// Links an item whose header is written, in place of `old` if there is one.
    pub(crate) fn link(
        &mut self,
        hash: KeyHash,
        placed: Placed,
        old: Option<Place>,
    ) -> Result<Found, OutOfMemory> {
        let region = self.region();
        let state = ItemState::load(region, placed.item, 0);
        let slot = Slot::new(hash, state.value_bytes() as u64, placed.link);
        let place = match old {
            Some(place) => {
                let replaced = place.slot(region);
                relink::replace::<A>(region, place, slot);
                self.retire(replaced);
                place
            }
            None => {
                M::shadow(self, hash)?;
                self.grow_if_due();
                M::append(self, self.head(hash), slot)?
            }
        };
        self.partition.counts.add(&state);
        self.engine.note_expiry(state.expiry());
        Ok(Found { place, slot, item: placed.item })
    }

    /// Removes an item from the index; frees its memory once no reader uses it.
    pub(crate) fn unlink(&mut self, place: Place) {
        if let Some(place) = M::leaves(self, place) {
            self.unlink_alone(place);
        }
    }

    /// As [`Writing::unlink`], whatever else there is of its key.
    pub(crate) fn unlink_alone(&mut self, place: Place) {
        let slot = place.slot(self.region());
        relink::remove::<A>(self.region(), &self.partition.index, place);
        self.retire(slot);
    }

    /// Uncounts an unlinked item and frees its memory. Does nothing if it
    /// was evicted: eviction has done both.
    pub(crate) fn retire(&mut self, slot: Slot) {
        let Some(item) = M::locate(&self.partition.space, self.region(), slot) else { return };
        let state = ItemState::load(self.region(), item, 0);
        self.partition.counts.remove(&state, self.partition.index.generation(self.region()));
        M::retire(self, slot, item);
    }

    /// Splits one chain if there are more items than the buckets are meant for.
    pub(crate) fn grow_if_due(&mut self) {
        let (region, partition) = (self.region(), self.partition);
        let index = &partition.index;
        let buckets = index.buckets(region);
        let items = partition.counts.items() + if M::IS_TIERED { partition.counts.cold.value() } else { 0 };
        if items * 2 < buckets * M::ITEMS_PER_TWO_BUCKETS {
            return;
        }
        if M::IS_TIERED && self.is_past_growth(buckets) {
            partition.counts.tier.unsplit.add(1);
            return;
        }
        if self.writer.growth_pause > 0 {
            self.writer.growth_pause -= 1;
            return;
        }
        let memory = self.engine.memory();
        let new =
            index.prepare(memory).or_else(|| if M::make_room(self) { index.prepare(memory) } else { None });
        match new {
            Some(new) => self.split(buckets, new),
            None => self.writer.growth_pause = GROWTH_PAUSE,
        }
    }

    /// Splits one chain if there are fewer buckets than for so many items, and room for another; false if not.
    pub(crate) fn grow_for(&mut self, items: u64) -> bool {
        let (region, index) = (self.region(), &self.partition.index);
        let buckets = index.buckets(region);
        if items * 2 < buckets * M::ITEMS_PER_TWO_BUCKETS || self.is_past_growth(buckets) {
            return false;
        }
        let new = index.prepare(self.engine.memory());
        new.into_iter().for_each(|new| self.split(buckets, new));
        new.is_some()
    }

    /// Deals the slots of the next chain to it and to the bucket `new`.
    fn split(&mut self, buckets: u64, new: Offset) {
        let region = self.region();
        let Partition { index, space, counts, .. } = self.partition;
        let old = index.split_source(region);
        let mut splitting = mem::take(&mut self.writer.splitting);
        splitting.clear();
        splitting.extend(chain::places(region, old).map(|place| (place.slot(region), false)));
        // All misses at once, then the hashing: a split costs about one miss, not one an item.
        let item = |slot: &Slot| M::locate(space, region, *slot);
        splitting.iter().filter_map(|(slot, _)| item(slot)).for_each(|item| region.prefetch(item));
        splitting.retain_mut(|(slot, moves)| {
            // A slot on flash says itself where it goes.
            if M::IS_TIERED
                && let Some(cold) = FlashSlot::decode(slot.0)
            {
                *moves = cold.growth_bit(buckets.ilog2());
                return true;
            }
            let Some(item) = item(slot) else { return false };
            // A direction changes nothing here: the partition stays.
            *moves = Index::moves(buckets, self.engine.hashing.hash(key_of(self, item)));
            true
        });
        if M::IS_TIERED {
            // What memory has comes first, as where items are appended.
            splitting.sort_unstable_by_key(|(slot, _)| slot.is_on_flash());
        }
        relink::split::<A>(region, index, old, new, &splitting);
        self.writer.splitting = splitting;
        counts.splits.add(1);
    }

    /// True if a split needs more bits of hashes than the slots on flash have.
    ///
    /// The index then grows no more, and its chains get longer: a store is refused where one is as long as it
    /// may be.
    fn is_past_growth(&self, buckets: u64) -> bool {
        let levels = self.partition.index.levels(self.region(), buckets);
        self.partition.counts.cold.value() > 0 && buckets.ilog2() >= *levels.start() + DOUBLINGS
    }
}

#[inline(always)]
fn has_key(region: &Region, item: Offset, key: &[u8]) -> bool {
    let words = region.words(item, HEADER_WORDS + words::words_for(key.len()));
    words
        .split_first_chunk()
        .is_some_and(|(header, body)| has_key_bytes(header, key.len()) && words::eq_key(body, key))
}
