//! What happens while flash is behind: a table that may lose items gives up the oldest.

use super::{
    tier::{LogMode, Tier},
    walk::Way,
};
use crate::{
    chain::Place,
    item::ItemState,
    log::Twin,
    position::{Position, PositionBits},
    settled::key_of,
    store::Writing,
};
use minos_base::FlashPlace;
use minos_sync::Access;

/// Words that are settled for each word appended while flash is behind.
const RATE: u64 = 4;

impl<B: PositionBits, T: Tier, A: Access> Writing<'_, LogMode<B, T>, A> {
    /// Loses an item for lack of room, with everything older of its key.
    pub(super) fn evict_unwritten(&mut self, place: Place) {
        let Some((hash, item)) = self.item_at(place.slot(self.region())) else { return };
        let key = self.key_to_tell(item);
        let counts = &self.partition.counts;
        counts.evict(&ItemState::load(self.region(), item, 0));
        counts.tier.unwritten.add(1);
        self.unlink(place);
        key.into_iter().for_each(|key| self.tell_gone(hash, &key));
    }

    /// Calls the thread that walks ahead, if a full log has taken another segment: more is due to leave.
    pub(crate) fn ring_if_due(&mut self) {
        let (region, log) = (self.region(), self.partition.space);
        let is_full = log.is_moving(region);
        let tail = log.tail_segment(region).words();
        if self.writer.room.tier.has_advanced(tail, is_full) && is_full {
            self.engine.common.ring();
        }
    }

    /// Flash is behind: settles a part of the oldest segment before an append of `words`.
    pub(crate) fn prepare_eviction(&mut self, words: u64) {
        let (region, log) = (self.region(), self.partition.space);
        if self.writer.room.tier.config.is_lossless || !log.is_near_the_end(region) {
            return;
        }
        let end = self.oldest_end();
        if !self.ahead().is_before(end) {
            return;
        }
        let goal = self.ahead().plus((words + 1) * RATE);
        self.walk((usize::MAX, if goal.is_before(end) { goal } else { end }), Way::Leave, None);
    }

    /// Settles the oldest segment without a wait for copies that are on their way; false if nothing may be lost.
    pub(crate) fn settle_oldest(&mut self) -> bool {
        if self.writer.room.tier.config.is_lossless {
            return false;
        }
        let end = self.oldest_end();
        self.walk((usize::MAX, end), Way::Leave, None);
        let (region, log) = (self.region(), self.partition.space);
        for (position, copy) in self.writer.room.tier.give_up(log.head_segment(region)) {
            let position = Position::from_words(position);
            let twin = copy.map_or(Twin::None, |(number, _)| Twin::Begun(number));
            if log.locate(region, position).is_some_and(|item| log.copy_of(region, item) == twin) {
                self.give_up(position, copy.map(|(_, to)| to));
            }
        }
        true
    }

    /// The end of the oldest segment, as far as it is in use.
    fn oldest_end(&self) -> Position<B> {
        let (region, log) = (self.region(), self.partition.space);
        let (end, tail) = (log.head_end(region, 1), log.tail(region));
        if end.is_before(tail) { end } else { tail }
    }

    /// Takes the item of an entry out of memory, if it is alive: it is lost unless a copy is on its way. The index names
    /// that at once, so that every change finds it; until it is written, a read is a miss.
    fn give_up(&mut self, position: Position<B>, to: Option<FlashPlace>) {
        let (region, log) = (self.region(), self.partition.space);
        if position != log.not_before_head(region, Some(position)) {
            return;
        }
        let entry = log.entry_at(region, position.minus(1)).0.filter(|entry| !entry.is_dead);
        if let Some(entry) = entry {
            let hash = self.engine.hash(key_of(self, entry.payload));
            if let Some(place) = self.place_at(hash, position)
                && !to.is_some_and(|to| self.flip(place, hash, to))
            {
                self.evict_unwritten(place);
            }
        }
    }
}
