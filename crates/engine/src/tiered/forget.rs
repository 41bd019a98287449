//! Slots on flash that are adopted, moved and forgotten.

use super::{
    CANDIDATES_MAX,
    cold::{place_of_twin, twin_of},
    room::Tombstones,
    tier::{Flash, LogMode, Tier},
};
use crate::{
    chain::{self, Place},
    item::ItemState,
    log::Twin,
    mode::SEEN_MAX,
    partition::OutOfMemory,
    parts::Parts,
    places::Places,
    position::PositionBits,
    relink,
    slot::Slot,
    store::{Engine, Writing},
};
use minos_base::{FlashPlace, FlashSlot, KeyHash, Seconds};
use minos_region::Offset;
use minos_sync::Access;

/// What a record on flash is to the index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// No slot and no item names it: it is dead.
    Dead,
    /// A slot names it, or an item in memory that is the same.
    Named,
    /// An item in memory that was read names it.
    Read,
}

pub(super) enum Namer {
    Slot(Place),
    Item(Offset, Slot),
}

impl<B: PositionBits, A: Access> Engine<LogMode<B, Flash>, A> {
    /// A record that recovery found, for memory without items: the one with the highest sequence of its hash. Its slot
    /// is added, unless the index names it already.
    ///
    /// # Errors
    /// There is no room in the index, or it names eight other records with these hash bits. The record stays where
    /// it is, unnamed, and is counted (`unadopted`): compaction takes it for dead.
    pub fn adopt(&self, hash: KeyHash, place: FlashPlace, sequence: u64) -> Result<(), OutOfMemory> {
        let mut writing = self.writing(hash);
        let adopted = writing.adopt(hash, place, sequence);
        writing.partition.counts.tier.unadopted.add(u64::from(adopted.is_err()));
        adopted
    }

    /// Asks for a cache line of a key's chain; those before it should be near by now. As stages of a look-up of what is
    /// on flash, whose chains are longer than those of tables in memory.
    pub fn prefetch_line(&self, hash: KeyHash, number: usize) {
        let (region, index) = (self.memory().region(), &self.partition(hash).index);
        let head = index.bucket_of(region, index.buckets(region), hash);
        chain::buckets(region, head).nth(number).into_iter().for_each(|bucket| region.prefetch(bucket));
    }

    /// So many records will be adopted: lets the index grow to their number before, because a slot on flash says
    /// where it goes in so many splits only.
    pub fn expect_cold(&self, records: u64) {
        for partition in 0..self.partitions() {
            let mut writing = self.writing_at(partition);
            while writing.grow_for(records.div_ceil(self.partitions() as u64)) {}
        }
    }

    /// Later sequences and CAS uniques of all partitions are higher than this one, that of a dead record.
    pub fn pass_sequence(&self, sequence: u64) {
        for partition in 0..self.partitions() {
            self.writing_at(partition).writer.raise_cas(sequence);
        }
    }

    /// As [`Engine::pass_sequence`] with the highest sequence that recovery found, for memory that was new before it: what is
    /// lost may have had higher CAS uniques, so many are left out.
    pub fn pass_lost_sequences(&self, found: u64) {
        for partition in 0..self.partitions() {
            self.writing_at(partition).writer.skip_cas(found);
        }
    }

    /// Forgets a record that turned out to be dead; false if the index did not name it.
    ///
    /// With the sequence of an older record of this key a tombstone becomes due: what killed the record may not
    /// outlive it, if compaction has moved it since.
    pub fn drop_cold(&self, hash: KeyHash, slot: FlashSlot, older: Option<u64>) -> bool {
        let mut writing = self.writing(hash);
        let place = writing.cold_places(hash).find(|(_, other)| *other == slot).map(|(place, _)| place);
        if let Some(place) = place {
            writing.forget(place);
            older.into_iter().for_each(|sequence| writing.bury_at(hash, sequence, slot.place(), true));
        }
        place.is_some()
    }

    /// What the record of `hash` in `page` is to the index, which forgets it if memory has a newer item.
    pub fn standing(&self, hash: KeyHash, page: u32) -> Standing {
        let mut writing = self.writing(hash);
        loop {
            match writing.namer(hash, page) {
                None => return Standing::Dead,
                // An older record of the key may have been in that page too: the item may name it all the same.
                Some(Namer::Slot(place)) if writing.has_item(hash) => writing.forget(place),
                Some(Namer::Slot(_)) => return Standing::Named,
                Some(Namer::Item(item, _)) => {
                    let state = ItemState::load(writing.region(), item, 0);
                    return if state.was_fetched() { Standing::Read } else { Standing::Named };
                }
            }
        }
    }

    /// True if forgetting the record of `hash` in `page` uncovers none that may be an older one of its key. An item in
    /// memory hides others; a table that may lose items names no older ones.
    pub fn uncovers_nothing(&self, hash: KeyHash, page: u32) -> bool {
        let writing = self.writing(hash);
        let is_alone = || writing.cold_places(hash).all(|(_, slot)| slot.page == page);
        !writing.writer.room.tier.config.is_lossless || writing.has_item(hash) || is_alone()
    }

    /// Names the new place of the record of `hash` in `page`; false if the index does not name that.
    pub fn move_cold(&self, hash: KeyHash, page: u32, to: FlashPlace) -> bool {
        let mut writing = self.writing(hash);
        let region = writing.region();
        match writing.namer(hash, page) {
            None => false,
            Some(Namer::Item(item, _)) => {
                writing.set_copy(item, twin_of(to));
                true
            }
            Some(Namer::Slot(place)) => match writing.slot_for(hash, to) {
                Some(slot) => {
                    writing.partition.counts.remove_cold(place.slot(region));
                    relink::replace::<A>(region, place, slot);
                    writing.partition.counts.add_cold(slot);
                    writing.forget_page(hash, page);
                    true
                }
                None => {
                    writing.forget(place);
                    writing.tell_lost(hash);
                    false
                }
            },
        }
    }

    /// Forgets the record of `hash` in `page`, which flash gave up; false if the index does not name it.
    pub fn forget_cold(&self, hash: KeyHash, page: u32) -> bool {
        let mut writing = self.writing(hash);
        match writing.namer(hash, page) {
            None => return false,
            Some(Namer::Item(item, slot)) => {
                writing.set_copy(item, Twin::None);
                writing.copy_again(slot);
            }
            Some(Namer::Slot(place)) => {
                writing.forget(place);
                writing.tell_lost(hash);
            }
        }
        true
    }

    /// Tells the observer that an item on flash is gone, whose record was dropped ([`Engine::drop_cold`]) because it is dead.
    pub fn tell_lost(&self, hash: KeyHash) {
        self.writing(hash).tell_lost(hash);
    }

    /// Forgets the records in pages that flash gave up, in up to `buckets_max` chains of a partition from
    /// `cursor` on, which is 0 at first. Returns the number of items that only flash had, and the next cursor, `None`
    /// after the last chain. Items that memory has too are copied again.
    ///
    /// # Panics
    /// If there is no such partition.
    pub fn forget_pages(
        &self,
        partition: usize,
        cursor: u64,
        buckets_max: usize,
        is_gone: impl Fn(u32) -> bool,
    ) -> (u64, Option<u64>) {
        let mut writing = self.writing_at(partition);
        let buckets = writing.partition.index.buckets(writing.region());
        let end = buckets.min(cursor.saturating_add(buckets_max as u64));
        let forgotten = (cursor..end).map(|number| writing.forget_chain(number, &is_gone)).sum();
        (forgotten, (end < buckets).then_some(end))
    }

    /// A dead item hides records that may be older ones of its key. The caller has read `seen`, dropped those
    /// of this key ([`Engine::drop_cold`]), and found that the others are other keys'. Returns true if that
    /// freed the item.
    pub fn resolve(&self, hash: KeyHash, key: &[u8], seen: &[FlashSlot], now: Seconds) -> bool {
        let mut writing = self.writing(hash);
        let Some(found) = writing.find(hash, key) else { return false };
        let is_known = writing.cold_places(hash).all(|(_, slot)| seen.contains(&slot));
        let is_free = is_known && writing.is_dead(found.slot, found.item, now);
        if is_free {
            writing.unlink_alone(found.place);
        }
        is_free
    }

    /// Tombstones of a partition that are due, at most `max`.
    ///
    /// # Panics
    /// If there is no such partition.
    pub fn take_tombstones(&self, partition: usize, max: usize) -> Tombstones {
        self.writing_at(partition).writer.room.tier.tombstones.take(max)
    }

    /// The records of a partition up to this sequence were flushed.
    ///
    /// # Panics
    /// If there is no such partition.
    pub fn flushed_up_to(&self, partition: usize) -> u64 {
        self.writing_at(partition).flushed_sequence()
    }
}

impl<B: PositionBits, T: Tier, A: Access> Writing<'_, LogMode<B, T>, A> {
    fn adopt(&mut self, hash: KeyHash, place: FlashPlace, sequence: u64) -> Result<(), OutOfMemory> {
        self.writer.raise_cas(sequence);
        let mut is_named = false;
        let count = self.cold_places(hash).inspect(|(_, slot)| is_named |= slot.page == place.page).count();
        if is_named {
            return Ok(());
        }
        let is_lossless = self.writer.room.tier.config.is_lossless;
        if is_lossless && count >= SEEN_MAX {
            return Err(OutOfMemory);
        }
        if !is_lossless && count >= CANDIDATES_MAX {
            self.forget_others(hash, 0);
        }
        self.grow_if_due();
        self.remember_level();
        let slot = self.slot_for(hash, place).ok_or(OutOfMemory)?;
        LogMode::append(self, self.head(hash), slot)?;
        self.partition.counts.add_cold(slot);
        Ok(())
    }

    /// Who names the record of `hash` in `page`.
    pub(super) fn namer(&self, hash: KeyHash, page: u32) -> Option<Namer> {
        let (region, log) = (self.region(), self.partition.space);
        if let Some((place, _)) = self.cold_places(hash).find(|(_, slot)| slot.page == page) {
            return Some(Namer::Slot(place));
        }
        chain::places(region, self.head(hash)).find_map(|place| {
            let slot = place.slot(region);
            let item = LogMode::<B, T>::locate(&log, region, slot).filter(|_| slot.has_tag(hash.tag()))?;
            match log.copy_of(region, item) {
                Twin::Same(word) if place_of_twin(word)?.page == page => Some(Namer::Item(item, slot)),
                _ => None,
            }
        })
    }

    /// True if memory has an item with this hash, dead or alive.
    fn has_item(&self, hash: KeyHash) -> bool {
        let region = self.region();
        let slots = chain::places(region, self.head(hash)).map(|place| place.slot(region));
        let mut items = slots.filter(|slot| slot.has_tag(hash.tag())).filter_map(|slot| self.item_at(slot));
        items.any(|(own, _)| own == hash)
    }

    fn forget(&mut self, place: Place) {
        self.remove_cold(place);
        self.partition.counts.tier.dropped.add(1);
    }

    /// Forgets further slots of this hash that name a page: they were those of older records of its key, because records
    /// of keys that look alike never begin in one page.
    fn forget_page(&mut self, hash: KeyHash, page: u32) {
        loop {
            let Some((place, _)) = self.cold_places(hash).find(|(_, slot)| slot.page == page) else { return };
            self.forget(place);
        }
    }

    /// Forgets the records of a chain that are gone. Returns the number of slots.
    fn forget_chain(&mut self, number: u64, is_gone: &impl Fn(u32) -> bool) -> u64 {
        let (region, log) = (self.region(), self.partition.space);
        let head = self.partition.index.bucket(region, number);
        let is_gone_slot =
            |place: &Place| FlashSlot::decode(place.slot(region).0).is_some_and(|slot| is_gone(slot.page));
        // The slot that fills a gap may be unchecked: start again.
        let mut forgotten = 0;
        while let Some(place) = chain::places(region, head).find(is_gone_slot) {
            self.forget(place);
            forgotten += 1;
            self.writer.observer.iter().for_each(|observer| observer.lost_some());
        }
        let generation = self.partition.index.generation(region);
        for place in chain::places(region, head) {
            let slot = place.slot(region);
            let Some(item) = LogMode::<B, T>::locate(&log, region, slot) else { continue };
            if let Twin::Same(word) = log.copy_of(region, item)
                && place_of_twin(word).is_some_and(|place| is_gone(place.page))
            {
                self.set_copy(item, Twin::None);
                if !ItemState::load(region, item, 0).is_flushed(generation) {
                    self.copy_again(slot);
                }
            }
        }
        forgotten
    }
}
