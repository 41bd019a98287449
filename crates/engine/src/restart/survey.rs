//! The survey of all items of a table that an earlier process has left.
//!
//! In a closed table, any inconsistency is an error. In an unclosed one, a chain with an odd version was
//! being written and is dropped as a whole; an invalid item is dropped alone.

use super::reopen::Survey;
use crate::{
    chain::{self, Place, following},
    index::{BUCKET_WORDS, FREE_SPARE, clear_bucket},
    item::{HEADER_WORDS, ItemState},
    mode::Mode,
    partition::Progress,
    relink,
    saved::CAS_NEXT,
    settled::key_of,
    slot::Slot,
    store::Writing,
};
use minos_base::{KeyHash, SizeClass, VALUE_BYTES_MAX, limits::ITEM_KEY_BYTES_MAX};
use minos_region::{ChunkKind, Offset, Region};
use minos_sync::Access;
use std::{collections::HashSet, sync::atomic::Ordering::Relaxed};

/// Larger ones were set by clients, and are not counted on from.
const CAS_OWN_MAX: u64 = 1 << 62;

/// In every slot of a spare bucket that is free, when a table is closed.
const FREE_SLOT: u64 = u64::from_le_bytes(*b"a spare.");

enum Verdict {
    /// An item that belongs there.
    Item(ItemState),
    /// A record on flash: its key is not known here.
    Cold,
    /// Nothing: the item was evicted or dropped.
    Nothing,
    /// An item that is dead, or whose value is gone: it hid older records of its key.
    Dead,
    /// An inconsistency.
    Wrong(&'static str),
}

struct Found<E> {
    entries: E,
    /// The highest CAS unique that the table itself may have given.
    cas_max: Option<u64>,
    /// Items of the current chain, with the hashes of their keys.
    chain: Vec<(KeyHash, Offset)>,
    places: Vec<Place>,
    /// Slots of that chain that hid records.
    hid: Vec<Slot>,
}

impl Survey {
    /// Surveys one partition, counts its items, and restores its writer.
    ///
    /// # Errors
    /// The reason why the partition is unusable.
    pub(crate) fn partition<M: Mode, A: Access>(
        &mut self,
        writing: &mut Writing<'_, M, A>,
    ) -> Result<(), String> {
        let (region, index) = (writing.region(), writing.partition.index);
        let mut spares = self.chains(writing)?;
        self.free_spares(writing, &mut spares)?;
        let entries = M::entries(writing, self)?;
        let mut found =
            Found { entries, cas_max: None, chain: Vec::new(), places: Vec::new(), hid: Vec::new() };
        for number in 0..index.buckets(region) {
            self.chain(writing, index.bucket(region, number), &mut found)?;
        }
        M::finish(found.entries, writing, self)?;
        for segment in index.segments(region) {
            self.keep(segment, index.segment_words(), ChunkKind::Forever);
        }
        for spare in spares {
            self.keep(spare, BUCKET_WORDS as u64, ChunkKind::Forever);
        }
        self.items += writing.partition.counts.items();
        if self.is_closed {
            return writing.partition.saved.restore(writing);
        }
        self.resume(writing, found.cas_max);
        Ok(())
    }

    /// Restores a writer after a repair, which leaves no flushed items.
    fn resume<M: Mode, A: Access>(&self, writing: &mut Writing<'_, M, A>, cas_max: Option<u64>) {
        let region = writing.region();
        let Writing { partition, writer, .. } = writing;
        let saved = partition.saved.word(region, CAS_NEXT);
        match (cas_max.max(self.own_cas(saved.load(Relaxed))), &self.uniques) {
            // It has given none of these yet. To leave some out would take them from tables that begin later.
            (None, Some(uniques)) => writer.raise_cas(uniques.start),
            (cas_max, _) => writer.skip_cas(cas_max.unwrap_or_default()),
        }
        // Saved at once, in case the next start is a repair too.
        saved.store(writer.cas_next, Relaxed);
        // Everything older was removed.
        let generation = partition.index.generation(region).number();
        writer.sweep = Progress { bucket: 0, pass_generation: generation, clean_generation: generation };
    }

    /// A CAS unique, if the table itself may have given it.
    fn own_cas(&self, cas: u64) -> Option<u64> {
        let is_own = self.uniques.as_ref().map_or(cas <= CAS_OWN_MAX, |own| own.contains(&cas));
        is_own.then_some(cas)
    }

    /// Something is wrong: that is the end if the table was closed.
    fn fault(&self, what: &str) -> Result<(), String> {
        if self.is_closed { Err(what.to_owned()) } else { Ok(()) }
    }

    /// Empties chains that are none; the spare buckets of the others.
    fn chains<M: Mode, A: Access>(&mut self, writing: &Writing<'_, M, A>) -> Result<HashSet<Offset>, String> {
        let (region, index) = (writing.region(), writing.partition.index);
        let mut spares = HashSet::new();
        for number in 0..index.buckets(region) {
            let head = index.bucket(region, number);
            let is_whole = minos_sync::version::begin_read(region.word(head)).is_some();
            if !is_whole || !add_spares(region, head, &mut spares) {
                self.fault("a chain is broken")?;
                let slots = slots(region, head).filter(|slot| !slot.is_empty());
                self.dropped += slots.count() as u64;
                clear_bucket(region, head);
            }
        }
        Ok(spares)
    }

    /// Checks the list of free spare buckets, and cuts it off at the first fault.
    fn free_spares<M: Mode, A: Access>(
        &mut self,
        writing: &Writing<'_, M, A>,
        spares: &mut HashSet<Offset>,
    ) -> Result<(), String> {
        let region = writing.region();
        let first = writing.partition.index.word(region, FREE_SPARE);
        let mut next = first.load(Relaxed) << 32;
        let mut last = None;
        while let Some(spare) = following(next) {
            let is_free = |spare| !self.is_closed || slots(region, spare).all(|slot| slot.0 == FREE_SLOT);
            if !is_bucket(region, spare) || !is_free(spare) || !spares.insert(spare) {
                self.fault("the list of free buckets is broken")?;
                last.map_or(first, |last| region.word(last)).store(0, Relaxed);
                break;
            }
            next = region.word(spare).load(Relaxed);
            last = Some(spare);
        }
        Ok(())
    }

    fn chain<M: Mode, A: Access>(
        &mut self,
        writing: &Writing<'_, M, A>,
        head: Offset,
        found: &mut Found<M::Entries>,
    ) -> Result<(), String> {
        let (region, partition) = (writing.region(), writing.partition);
        found.chain.clear();
        found.places.clear();
        found.places.extend(chain::places(region, head));
        for place in &found.places {
            writing.engine.reader(partition).prefetch_slot(place.slot(region));
        }
        // From the last to the first: the item that fills a gap was checked before.
        for at in (0..found.places.len()).rev() {
            let place = found.places[at];
            let slot = place.slot(region);
            match self.judge(writing, place, found) {
                Verdict::Item(state) => {
                    found.cas_max = found.cas_max.max(self.own_cas(state.cas()));
                    partition.counts.add_again(&state);
                    M::count_again(writing, slot, &state);
                    continue;
                }
                Verdict::Cold => {
                    partition.counts.add_cold(slot);
                    continue;
                }
                // The running table frees dangling slots by scans, whose
                // progress is known only if it was closed.
                Verdict::Nothing if self.is_closed => continue,
                Verdict::Nothing => {}
                Verdict::Dead => found.hid.push(slot),
                Verdict::Wrong(what) => {
                    self.fault(what)?;
                    self.dropped += 1;
                    found.hid.push(slot);
                }
            }
            relink::remove::<A>(region, &partition.index, place);
        }
        if M::IS_TIERED {
            found.hid.drain(..).for_each(|slot| forget_hidden(writing, head, slot));
        }
        Ok(())
    }

    fn judge<M: Mode, A: Access>(
        &mut self,
        writing: &Writing<'_, M, A>,
        place: Place,
        found: &mut Found<M::Entries>,
    ) -> Verdict {
        let (region, partition) = (writing.region(), writing.partition);
        let slot = place.slot(region);
        if M::IS_TIERED && slot.is_on_flash() {
            return Verdict::Cold;
        }
        let Some(item) = M::locate(&partition.space, region, slot) else { return Verdict::Nothing };
        let room = M::room_words(&found.entries, writing, slot.link(), item);
        let state = match header(writing, slot, item, room) {
            Ok(state) => state,
            Err(what) => return Verdict::Wrong(what),
        };
        let key = key_of(writing, item);
        let hash = writing.engine.hash(key);
        let is_at_home = writing.engine.partition_of(hash) == partition.number
            && writing.head(hash) == place.head
            && slot.has_tag(hash.tag());
        if !is_at_home {
            return Verdict::Wrong("an item is in the wrong place of the index");
        }
        let is_there = |&(other, there): &(KeyHash, Offset)| {
            there == item || other == hash && key_of(writing, there) == key
        };
        if found.chain.iter().any(is_there) {
            return Verdict::Wrong("an item is linked twice");
        }
        if !self.is_closed && state.is_flushed(partition.index.generation(region)) {
            // Which generations may still be present is not known. Older records of its key were flushed as well; those
            // of other keys that look like it were perhaps written later.
            return Verdict::Nothing;
        }
        match M::claim(&mut found.entries, writing, self, (slot, item, &state)) {
            Ok(true) => {}
            Ok(false) if !self.is_closed => return Verdict::Dead,
            // Closing a table removes items that have lost their value.
            Ok(false) => return Verdict::Wrong("a large value is not there"),
            Err(what) => return Verdict::Wrong(what),
        }
        found.chain.push((hash, item));
        Verdict::Item(state)
    }
}

/// Forgets the records on flash that may be older ones of the key of an item that is no longer in its slot. Nothing
/// tells their keys apart.
fn forget_hidden<M: Mode, A: Access>(writing: &Writing<'_, M, A>, head: Offset, slot: Slot) {
    let (region, partition) = (writing.region(), writing.partition);
    let is_hidden = |other: Slot| other.is_on_flash() && other.has_tag(slot.tag());
    while let Some(place) = chain::places(region, head).find(|place| is_hidden(place.slot(region))) {
        partition.counts.remove_cold(place.slot(region));
        relink::remove::<A>(region, &partition.index, place);
    }
}

/// The header of an item that has `room` words, if it is one that this slot may refer to.
fn header<M: Mode, A: Access>(
    writing: &Writing<'_, M, A>,
    slot: Slot,
    item: Offset,
    room: u64,
) -> Result<ItemState, &'static str> {
    if room < HEADER_WORDS as u64 {
        return Err("a slot refers to no item");
    }
    let state = ItemState::try_load(writing.region(), item, 0).ok_or("an item lies outside")?;
    let (key_bytes, value_bytes) = (state.key_bytes(), state.value_bytes() as u64);
    if key_bytes > ITEM_KEY_BYTES_MAX || value_bytes > VALUE_BYTES_MAX {
        return Err("an item is longer than possible");
    }
    if SizeClass::of(value_bytes).index() != slot.class_index() {
        return Err("an item has not the size that its slot says");
    }
    let words = M::words_beside(key_bytes, value_bytes, writing.engine);
    if words > room || writing.region().try_words(item, words as usize).is_none() {
        return Err("an item is longer than its memory");
    }
    Ok(state)
}

/// Adds the spare buckets of a chain; if it is no chain, none.
fn add_spares(region: &Region, head: Offset, spares: &mut HashSet<Offset>) -> bool {
    let (mut bucket, mut added) = (head, Vec::new());
    let is_chain = loop {
        let Some(next) = following(region.word(bucket).load(Relaxed)) else { break true };
        // Only the last one may have empty slots, and a spare one is not empty.
        let is_full = slots(region, bucket).all(|slot| !slot.is_empty());
        if !is_full || !is_bucket(region, next) || !spares.insert(next) {
            break false;
        }
        added.push(next);
        bucket = next;
    };
    let mut last = slots(region, bucket).skip_while(|slot| !slot.is_empty());
    let is_dense =
        last.all(Slot::is_empty) && (added.is_empty() || !slots(region, bucket).all(Slot::is_empty));
    if !is_chain || !is_dense {
        for spare in &added {
            spares.remove(spare);
        }
    }
    is_chain && is_dense
}

/// True if a bucket at this offset would lie within the region.
fn is_bucket(region: &Region, bucket: Offset) -> bool {
    region.try_words(bucket, BUCKET_WORDS).is_some()
}

fn slots(region: &Region, bucket: Offset) -> impl Iterator<Item = Slot> + '_ {
    region.words(bucket, BUCKET_WORDS)[1..].iter().map(|word| Slot(word.load(Relaxed)))
}

/// Marks the spare buckets that are free, so that the next process knows them.
pub(super) fn mark_free_spares<M: Mode, A: Access>(writing: &Writing<'_, M, A>) {
    let region = writing.region();
    let mut next = writing.partition.index.word(region, FREE_SPARE).load(Relaxed) << 32;
    while let Some(spare) = following(next) {
        let words = region.words(spare, BUCKET_WORDS);
        words[1..].iter().for_each(|word| word.store(FREE_SLOT, Relaxed));
        next = words[0].load(Relaxed);
    }
}
