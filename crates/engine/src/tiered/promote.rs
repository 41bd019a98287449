//! Records that come back to memory.

use super::{
    cold::twin_of,
    switches::{Safeguard, is_on},
    tier::{Flash, LogMode, Tier},
};
use crate::{
    chain::Place,
    item::{ItemMeta, ItemState, body, item_words},
    partition::OutOfMemory,
    parts::{Parts, Placed},
    position::PositionBits,
    relink,
    slot::Slot,
    store::{Engine, Writing},
};
use minos_base::{FlashSlot, KeyHash, Seconds};
use minos_sync::{
    Access,
    words::{copy_in, words_for},
};

/// A record as it was read.
#[derive(Clone, Copy, Debug)]
pub struct Cold<'a> {
    /// The slot that named it.
    pub slot: FlashSlot,
    /// All slots that the look-up gave.
    pub seen: &'a [FlashSlot],
    /// The record's sequence.
    pub sequence: u64,
    /// The value.
    pub value: &'a [u8],
    /// Everything else; its CAS unique included.
    pub meta: ItemMeta,
}

/// The result of a promotion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Promotion {
    /// The item is in memory, and remembers its record.
    Promoted,
    /// Memory has an item of this key already.
    Present,
    /// The index no longer names the record, or names others beside those that were seen: look it up again.
    Changed,
    /// The record is dead: flushed or expired. The index has forgotten it.
    Dead,
}

impl<B: PositionBits, A: Access> Engine<LogMode<B, Flash>, A> {
    /// Takes the item of a record into memory, if nothing has changed since the look-up.
    ///
    /// The caller has compared the keys of all candidates, and holds the epoch of the look-up.
    ///
    /// # Errors
    /// There is no room in memory.
    pub fn promote(
        &self,
        hash: KeyHash,
        key: &[u8],
        cold: &Cold<'_>,
        now: Seconds,
    ) -> Result<Promotion, OutOfMemory> {
        self.writing(hash).promote(hash, key, cold, now)
    }
}

impl<B: PositionBits, T: Tier, A: Access> Writing<'_, LogMode<B, T>, A> {
    fn promote(
        &mut self,
        hash: KeyHash,
        key: &[u8],
        cold: &Cold<'_>,
        now: Seconds,
    ) -> Result<Promotion, OutOfMemory> {
        self.writer.now = now;
        let is_checked = is_on(Safeguard::Promotion);
        if let Some(there) = self.find(hash, key) {
            let is_dead = self.is_dead(there.slot, there.item, now);
            let is_back = is_dead && self.go_back(there.place);
            if !is_back && (!is_dead || is_checked) {
                return Ok(Promotion::Present);
            }
        }
        if let Some(place) = self.named(hash, cold) {
            let expiry = cold.meta.expiry;
            if cold.sequence <= self.flushed_sequence() || (expiry != 0 && expiry <= now) {
                self.remove_cold(place);
                self.partition.counts.tier.dropped.add(1);
                self.tell_gone(hash, key);
                return Ok(Promotion::Dead);
            }
        } else if is_checked {
            return Ok(Promotion::Changed);
        }
        let placed = self.place_record(key, cold)?;
        self.describe(placed.item, &cold.meta, (key.len(), cold.value.len() as u64), now);
        self.link_record(hash, placed, cold)
    }

    /// Puts the item of a record, which has its place in memory, into the record's slot.
    fn link_record(
        &mut self,
        hash: KeyHash,
        placed: Placed,
        cold: &Cold<'_>,
    ) -> Result<Promotion, OutOfMemory> {
        let is_checked = is_on(Safeguard::Promotion);
        let slot = Slot::new(hash, cold.value.len() as u64, placed.link);
        // Making room may have removed the record's slot.
        let place = match self.named(hash, cold) {
            Some(place) => place,
            None if is_checked => {
                // Nobody has counted it, and nobody but this frees its large value.
                LogMode::<B, T>::retire(self, slot, placed.item);
                return Ok(Promotion::Changed);
            }
            None => {
                self.link(hash, placed, None)?;
                return Ok(Promotion::Promoted);
            }
        };
        let region = self.region();
        self.set_copy(placed.item, twin_of(cold.slot.place()));
        let cold_slot = place.slot(region);
        relink::replace::<A>(region, place, slot);
        self.bring_forward(place);
        let counts = &self.partition.counts;
        counts.remove_cold(cold_slot);
        counts.add_again(&ItemState::load(region, placed.item, 0));
        counts.tier.promoted.add(1);
        self.engine.note_expiry(cold.meta.expiry);
        Ok(Promotion::Promoted)
    }

    /// Where the slot of a record is, if no others of this hash are named than were seen.
    fn named(&self, hash: KeyHash, cold: &Cold<'_>) -> Option<Place> {
        let mut named = None;
        for (place, slot) in self.cold_places(hash) {
            if !cold.seen.contains(&slot) {
                return None;
            }
            if slot == cold.slot {
                named = Some(place);
            }
        }
        named
    }

    /// Memory with the key and the value of a record.
    fn place_record(&mut self, key: &[u8], cold: &Cold<'_>) -> Result<Placed, OutOfMemory> {
        let (engine, region, bytes) = (self.engine, self.region(), cold.value.len() as u64);
        if engine.is_inline(bytes) {
            let placed = LogMode::allocate(self, item_words(key.len(), bytes)).ok_or(OutOfMemory)?;
            let words = region.words(body(placed.item), words_for(key.len() + cold.value.len()));
            copy_in(words, 0, key);
            copy_in(words, key.len(), cold.value);
            return Ok(placed);
        }
        let settled = LogMode::<B, T>::take_large(engine, key.len(), bytes).ok_or(OutOfMemory)?;
        let chunk = settled.into_chunk();
        let at = LogMode::<B, T>::large_value_at(key.len());
        copy_in(region.words(chunk, words_for(at + cold.value.len())), at, cold.value);
        let placed = LogMode::<B, T>::place_large(self, chunk, key, bytes);
        placed.ok_or_else(|| {
            engine.memory().free_settled(chunk);
            OutOfMemory
        })
    }
}
