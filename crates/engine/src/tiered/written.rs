//! What becomes of an item when its copy was written.

use super::{
    cold::twin_of,
    forget::Namer,
    switches::{Safeguard, is_on},
    tier::{Flash, LogMode, Tier},
    walk::Ticket,
};
use crate::{
    chain::Place,
    item::ItemState,
    log::Twin,
    position::{Position, PositionBits},
    store::{Engine, Writing},
};
use minos_base::{FlashPlace, KeyHash};
use minos_sync::Access;

/// The result of a written copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Written {
    /// The index names the record: the item has left memory, or remembers it.
    Linked,
    /// The item was changed, deleted or given up meanwhile. The record is dead, and a tombstone is due.
    Superseded,
    /// Too many records have the hash bits of this key. In a table that may lose nothing: find out which of
    /// them are this key's ([`Engine::drop_cold`]), and try again with the same ticket.
    Crowded,
}

impl<B: PositionBits, A: Access> Engine<LogMode<B, Flash>, A> {
    /// The copy of an item is on flash: its slot names the record from now on, if the item is unchanged.
    pub fn written(&self, ticket: &Ticket, place: FlashPlace) -> Written {
        self.writing_at(ticket.partition).written(ticket, place)
    }

    /// The copy of an item could not be written. A table that may lose items gives up one that leaves memory,
    /// and comes back to another; a table that may lose nothing keeps the ticket, and false says that the copy
    /// must be written again.
    pub fn failed(&self, ticket: &Ticket, place: FlashPlace) -> bool {
        self.writing_at(ticket.partition).failed(ticket, place)
    }

    /// True if an item had to leave memory before its copy in this page was written.
    pub fn awaits(&self, hash: KeyHash, page: u32) -> bool {
        self.writing(hash).writer.room.tier.awaits(page)
    }
}

impl<B: PositionBits, T: Tier, A: Access> Writing<'_, LogMode<B, T>, A> {
    fn written(&mut self, ticket: &Ticket, to: FlashPlace) -> Written {
        let counts = &self.partition.counts.tier;
        match self.copied(ticket) {
            Some(place) => {
                let position = Position::from_words(ticket.position);
                if !self.leaves(position, place.slot(self.region())) {
                    // It does not leave yet.
                    let (region, log) = (self.region(), self.partition.space);
                    let item = log.locate(region, position);
                    item.into_iter().for_each(|item| self.set_copy(item, twin_of(to)));
                } else if !self.flip(place, ticket.hash, to) {
                    return Written::Crowded;
                }
                counts.written.add(1);
                self.writer.room.tier.settle(ticket.number);
                Written::Linked
            }
            // It had to leave memory before.
            None if self.names_early(ticket.hash, to).is_some() => {
                counts.written.add(1);
                self.writer.room.tier.settle(ticket.number);
                Written::Linked
            }
            None => {
                counts.superseded.add(1);
                self.writer.room.tier.settle(ticket.number);
                self.bury_at(ticket.hash, ticket.sequence, to, true);
                Written::Superseded
            }
        }
    }

    fn failed(&mut self, ticket: &Ticket, to: FlashPlace) -> bool {
        let Some(place) = self.copied(ticket) else {
            self.writer.room.tier.settle(ticket.number);
            if let Some(Namer::Slot(place)) = self.names_early(ticket.hash, to) {
                self.remove_cold(place);
                self.partition.counts.tier.unwritten.add(1);
                self.tell_lost(ticket.hash);
            }
            return true;
        };
        if self.writer.room.tier.config.is_lossless {
            return false;
        }
        self.writer.room.tier.settle(ticket.number);
        if self.leaves(Position::from_words(ticket.position), place.slot(self.region())) {
            self.evict_unwritten(place);
        } else {
            self.part_from_copy(place.slot(self.region()), true);
        }
        true
    }

    /// Who names a copy that is no longer its item's: a table that may lose items names it when the item must leave.
    fn names_early(&self, hash: KeyHash, to: FlashPlace) -> Option<Namer> {
        let is_lossless = self.writer.room.tier.config.is_lossless;
        if is_lossless { None } else { self.namer(hash, to.page) }
    }

    /// Where the slot is of the item that was copied under this ticket, if it is unchanged.
    fn copied(&self, ticket: &Ticket) -> Option<Place> {
        let (region, log) = (self.region(), self.partition.space);
        if !is_on(Safeguard::Written) {
            return crate::chain::places(region, self.head(ticket.hash)).find(|place| {
                let slot = place.slot(region);
                !slot.is_on_flash() && slot.has_tag(ticket.hash.tag())
            });
        }
        if !self.writer.room.tier.is_open(ticket.number, ticket.position) {
            return None;
        }
        let position = Position::from_words(ticket.position);
        let item = log.locate(region, position)?;
        let place = self.place_at(ticket.hash, position)?;
        let state = ItemState::load(region, item, 0);
        let is_same = log.copy_of(region, item) == Twin::Begun(ticket.number);
        (is_same && !state.is_flushed(self.partition.index.generation(region))).then_some(place)
    }
}
