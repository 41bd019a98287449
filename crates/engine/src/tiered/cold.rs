//! Slots on flash in the chains of a partition, for its writer.

use super::{
    CANDIDATES_MAX,
    room::Tombstone,
    switches::{Safeguard, is_on},
    tier::{LogMode, Tier},
};
use crate::{
    candidate::bucket_words,
    chain::{self, Place},
    index::SLOTS,
    item::ItemState,
    log::Twin,
    mode::SEEN_MAX,
    partition::OutOfMemory,
    places::Places,
    position::{Position, PositionBits},
    relink,
    saved::FLUSHED,
    settled::key_of,
    slot::Slot,
    store::Writing,
    versions,
};
use minos_base::{FlashPlace, FlashSlot, KeyHash, RoughLength, growth_bits};
use minos_region::Offset;
use minos_sync::{Access, tags};
use std::{ops::RangeInclusive, sync::atomic::Ordering::Relaxed};

/// The expiry of an item that is dead, and stays in memory to hide records on flash.
const LONG_AGO: u32 = 1;

/// Bits of a page in the place that a tag holds.
const PAGE_BITS: u32 = 30;

/// A place as the tag of an entry holds it; never 0, because page 0 is the superblock's.
pub(super) fn twin_of(place: FlashPlace) -> Twin {
    Twin::Same(u64::from(place.length.code()) << PAGE_BITS | u64::from(place.page))
}

/// The inverse of [`twin_of`].
pub(super) fn place_of_twin(word: u64) -> Option<FlashPlace> {
    let length = RoughLength::from_code((word >> PAGE_BITS) as u8)?;
    Some(FlashPlace { page: word as u32 & ((1 << PAGE_BITS) - 1), length })
}

/// True if a slot may be one of a key with this hash, made at one of these levels.
///
/// The bits that a slot holds beyond those of the present level, or the bits of its bucket instead.
pub(super) fn may_be(slot: FlashSlot, hash: KeyHash, mut levels: RangeInclusive<u32>) -> bool {
    slot.tag == hash.tag() && levels.any(|level| slot.growth == growth_bits(hash, level))
}

impl<B: PositionBits, T: Tier, A: Access> Writing<'_, LogMode<B, T>, A> {
    /// The slots on flash that may be those of a key with this hash.
    pub(super) fn cold_places(
        &self,
        hash: KeyHash,
    ) -> impl Iterator<Item = (Place, FlashSlot)> + use<'_, B, T, A> {
        let (region, index) = (self.region(), &self.partition.index);
        let (head, levels) = (self.head(hash), index.levels(region, index.buckets(region)));
        let places = chain::buckets(region, head).flat_map(move |bucket| {
            let words = tags::matching(bucket_words(region, bucket), hash.tag());
            words.map(move |word| Place { head, bucket, word })
        });
        places.filter_map(move |place| {
            let slot = FlashSlot::decode(place.slot(region).0)?;
            may_be(slot, hash, levels.clone()).then_some((place, slot))
        })
    }

    /// Where the slot of a live entry is.
    pub(super) fn place_at(&self, hash: KeyHash, position: Position<B>) -> Option<Place> {
        let region = self.region();
        chain::places(region, self.head(hash)).find(|place| {
            let slot = place.slot(region);
            !slot.is_on_flash() && slot.link() == position.words()
        })
    }

    /// The hash of the item of a slot in memory, and the item.
    pub(super) fn item_at(&self, slot: Slot) -> Option<(KeyHash, Offset)> {
        let item = LogMode::<B, T>::locate(&self.partition.space, self.region(), slot)?;
        Some((self.engine.hash(key_of(self, item)), item))
    }

    /// The slot for a record of a key, made now; `None` if its page is beyond what slots can name.
    pub(super) fn slot_for(&self, hash: KeyHash, place: FlashPlace) -> Option<Slot> {
        let (region, index) = (self.region(), &self.partition.index);
        let growth = growth_bits(hash, index.buckets(region).ilog2());
        let slot = FlashSlot { tag: hash.tag(), length: place.length, growth, page: place.page };
        slot.encode().map(Slot)
    }

    /// A slot on flash is made at the present level of the index.
    pub(super) fn remember_level(&self) {
        let is_only = self.partition.counts.cold.value() == 0;
        self.partition.index.remember_level(self.region(), is_only);
    }

    /// Brings the item at a place into the first bucket of its chain, in exchange for a record on flash, so that
    /// GETs find what is in memory there. Returns where it is then.
    pub(crate) fn bring_forward(&self, place: Place) -> Place {
        let (region, head) = (self.region(), place.head);
        if place.bucket == head || place.slot(region).is_on_flash() {
            return place;
        }
        let mut first = (1..=SLOTS).map(|word| Place { head, bucket: head, word });
        match first.find(|first| first.slot(region).is_on_flash()) {
            Some(first) => {
                relink::exchange::<A>(region, place, first);
                first
            }
            None => place,
        }
    }

    /// Takes a slot on flash out of its chain.
    pub(super) fn remove_cold(&mut self, place: Place) {
        let slot = place.slot(self.region());
        relink::remove::<A>(self.region(), &self.partition.index, place);
        self.partition.counts.remove_cold(slot);
    }

    pub(super) fn bury(&mut self, hash: KeyHash, place: FlashPlace, is_forgotten: bool) {
        let sequence = self.writer.next_cas();
        self.bury_at(hash, sequence, place, is_forgotten);
    }

    /// A tombstone with this sequence becomes due.
    pub(super) fn bury_at(&mut self, hash: KeyHash, sequence: u64, place: FlashPlace, is_forgotten: bool) {
        if !is_on(Safeguard::Tombstones) {
            return;
        }
        let counts = &self.partition.counts.tier;
        let room = &mut self.writer.room.tier;
        counts.tombstones.add(1);
        if room.config.is_lossless || room.tombstones.len() < room.config.tombstones_max {
            room.tombstones.push(Tombstone { hash, sequence, place, is_forgotten });
        } else {
            counts.tombstones_lost.add(1);
            room.tombstones.give_up(place.page);
        }
        if room.tombstones.len() <= 1 {
            self.engine.common.ring();
        }
    }

    /// Notes what is known of the copy of an item, which has not changed yet.
    pub(crate) fn set_copy(&self, item: Offset, copy: Twin) {
        let (region, log) = (self.region(), self.partition.space);
        let [was_same, is_same] = [log.copy_of(region, item), copy].map(|copy| matches!(copy, Twin::Same(_)));
        log.set_copy(region, item, copy);
        if was_same != is_same {
            self.partition.counts.tier.count_twin(&ItemState::load(region, item, 0), is_same);
        }
    }

    /// The item of a slot changes, or goes unless it stays: its copy on flash is no longer the same.
    pub(crate) fn part_from_copy(&mut self, slot: Slot, stays: bool) {
        let (region, log) = (self.region(), self.partition.space);
        let Some(item) = LogMode::<B, T>::locate(&log, region, slot) else { return };
        let copy = log.copy_of(region, item);
        if copy == Twin::None || !is_on(Safeguard::Written) {
            return;
        }
        self.set_copy(item, Twin::None);
        if let Twin::Same(word) = copy {
            let hash = self.engine.hash(key_of(self, item));
            place_of_twin(word).into_iter().for_each(|place| self.bury(hash, place, true));
        }
        if !stays {
            return;
        }
        if matches!(copy, Twin::Begun(_)) {
            self.writer
                .room
                .tier
                .settle_again(slot.link(), log.segment_of(Position::from_words(slot.link())));
        } else {
            self.copy_again(slot);
        }
    }

    /// An item has no copy any more: if a walk has passed it, another one is to copy it.
    pub(super) fn copy_again(&mut self, slot: Slot) {
        let position: Position<B> = Position::from_words(slot.link());
        if self.writer.room.tier.copied().is_some_and(|copied| position.is_before(copied)) {
            let segment = self.partition.space.segment_of(position);
            self.writer.room.tier.settle_again(slot.link(), segment);
        }
    }

    /// A key gets an item in memory, which hides records that may be its own: after a power loss they must
    /// not come back.
    ///
    /// A table that may lose items forgets them, so that the index never names two records of a key: the newer one may
    /// be dropped first, and would uncover the other.
    pub(crate) fn hide_candidates(&mut self, hash: KeyHash) -> Result<(), OutOfMemory> {
        let config = self.writer.room.tier.config;
        if !config.is_lossless {
            if self.cold_places(hash).next().is_some() {
                self.forget_candidates(hash);
            }
            return Ok(());
        }
        if self.writer.room.tier.tombstones.len() >= config.tombstones_max {
            return Err(OutOfMemory);
        }
        let hidden: arrayvec::ArrayVec<_, SEEN_MAX> =
            self.cold_places(hash).map(|(_, slot)| slot.place()).take(SEEN_MAX).collect();
        for place in hidden {
            self.bury(hash, place, false);
        }
        Ok(())
    }

    /// Forgets all records that may be those of a key with this hash, which has no others from now on.
    pub(crate) fn forget_candidates(&mut self, hash: KeyHash) {
        let sequence = self.writer.next_cas();
        self.forget_others(hash, sequence);
    }

    /// Forgets all records that may be those of a key with this hash; those up to `sequence` are dead. In a table that may
    /// lose items, some may be other keys'.
    pub(super) fn forget_others(&mut self, hash: KeyHash, sequence: u64) {
        let mut has_forgotten = false;
        loop {
            let next = self.cold_places(hash).next();
            let Some((place, slot)) = next else { break };
            self.remove_cold(place);
            self.partition.counts.tier.dropped.add(1);
            self.bury_at(hash, sequence, slot.place(), true);
            has_forgotten = true;
        }
        if has_forgotten {
            self.tell_lost_alike(hash);
        }
    }

    /// True if the item at a place hides records that may be older ones of its key, which must not be lost
    /// if they are another key's.
    pub(crate) fn is_hiding(&self, place: Place) -> bool {
        let (region, slot) = (self.region(), place.slot(self.region()));
        if !self.writer.room.tier.config.is_lossless {
            return false;
        }
        let Some((hash, item)) = self.item_at(slot) else { return false };
        let state = ItemState::load(region, item, 0);
        !state.is_flushed(self.partition.index.generation(region)) && self.cold_places(hash).next().is_some()
    }

    /// The item at a place is about to be unlinked; where it is then, `None` if it stays.
    pub(crate) fn leave(&mut self, place: Place) -> Option<Place> {
        let (region, slot) = (self.region(), place.slot(self.region()));
        let Some((hash, item)) = self.item_at(slot) else { return Some(place) };
        let state = ItemState::load(region, item, 0);
        if state.is_flushed(self.partition.index.generation(region)) {
            // Nothing older is alive either.
            return Some(place);
        }
        if !self.is_hiding(place) {
            self.forget_candidates(hash);
            let position = Position::from_words(slot.link());
            return self.place_at(hash, position);
        }
        self.part_from_copy(slot, true);
        versions::write::<A>(region.word(place.head), || state.expiring(LONG_AGO, 0).store(region, item));
        None
    }

    /// The item at `place` leaves memory: its slot names its record, which is written. False if too many
    /// records have its hash bits.
    pub(super) fn flip(&mut self, place: Place, hash: KeyHash, to: FlashPlace) -> bool {
        let region = self.region();
        let memory = place.slot(region);
        if self.cold_places(hash).count() >= CANDIDATES_MAX {
            if self.writer.room.tier.config.is_lossless {
                return false;
            }
            self.forget_others(hash, 0);
        }
        let Some(place) = self.place_at(hash, Position::from_words(memory.link())) else { return false };
        self.remember_level();
        let Some(cold) = self.slot_for(hash, to) else { return false };
        if let Some((_, item)) = self.item_at(memory) {
            self.set_copy(item, Twin::None);
        }
        relink::replace::<A>(region, place, cold);
        self.partition.counts.add_cold(cold);
        self.retire(memory);
        true
    }

    /// An item whose large value was evicted leaves memory, if its record is the same.
    pub(crate) fn go_back(&mut self, place: Place) -> bool {
        let (region, slot) = (self.region(), place.slot(self.region()));
        let Some((hash, item)) = self.item_at(slot) else { return false };
        let state = ItemState::load(region, item, self.writer.now);
        let Twin::Same(word) = self.partition.space.copy_of(region, item) else { return false };
        let is_live = state.is_live(self.partition.index.generation(region));
        let is_back = is_live && place_of_twin(word).is_some_and(|to| self.flip(place, hash, to));
        self.partition.counts.tier.put_back.add(u64::from(is_back));
        is_back
    }

    /// Everything stored so far is dead, records on flash too.
    pub(crate) fn flush_flash(&mut self) {
        let sequence = self.writer.next_cas();
        self.partition.saved.word(self.region(), FLUSHED).store(sequence, Relaxed);
    }

    /// The records up to this sequence were flushed.
    pub(super) fn flushed_sequence(&self) -> u64 {
        self.partition.saved.seen(self.region(), FLUSHED)
    }
}
