//! Writes down that items were read, for eviction and for their clients.

use crate::{
    candidate::Candidate,
    item::{ItemState, SHAPE},
    mode::Mode,
    partition::Partition,
    slot::Slot,
    store::{Engine, Writing},
};
use minos_base::{KeyHash, Seconds};
use minos_region::{Offset, Region};
use minos_sync::{Access, ReadWord};
use std::sync::atomic::Ordering::Relaxed;

impl<M: Mode, A: Access> Engine<M, A> {
    /// Writes down that an item was read, if that is worth it.
    #[inline(always)]
    pub(crate) fn note_read(
        &self,
        partition: &Partition<M, A>,
        (hash, key): (KeyHash, &[u8]),
        state: &ItemState,
        candidate: &Candidate<'_>,
        now: Seconds,
    ) {
        if !A::IS_OPEN {
            // Its owner records what it reads itself.
            return;
        }
        if M::is_move_due(self, &partition.space, candidate.slot.link()) {
            self.record_access(partition, hash, key, candidate.slot, now);
        } else if state.is_access_due() {
            if candidate.is_in_first_bucket() {
                self.mark_access(partition, candidate.cell, (candidate.slot, candidate.item), now);
            } else {
                self.record_access(partition, hash, key, candidate.slot, now);
            }
        }
    }

    /// Marks a candidate as read if its slot is unchanged and the writer's lock is free.
    ///
    /// An unchanged slot is enough: it refers to a linked item, and if another item has taken the same place,
    /// that one is marked instead. This holds for first buckets only; spare buckets may join other chains.
    #[cold]
    fn mark_access(
        &self,
        partition: &Partition<M, A>,
        cell: &ReadWord,
        (slot, item): (Slot, Offset),
        now: Seconds,
    ) {
        let Some(_writer) = A::try_enter(&partition.writer) else { return };
        let region = self.memory().region();
        let is_linked =
            cell.load(Relaxed) == slot.0 && M::locate(&partition.space, region, slot) == Some(item);
        if is_linked {
            let state = ItemState::load(region, item, now);
            note_access(region, item, &state, now);
        }
    }

    /// True if the read of an item should be recorded.
    #[inline]
    pub(crate) fn is_note_due(&self, partition: &Partition<M, A>, state: &ItemState, slot: Slot) -> bool {
        state.is_access_due() || M::is_move_due(self, &partition.space, slot.link())
    }

    /// Writes down that an item was read, if it still is the item of this key and its writer may be had.
    #[cold]
    fn record_access(
        &self,
        partition: &Partition<M, A>,
        hash: KeyHash,
        key: &[u8],
        slot: Slot,
        now: Seconds,
    ) {
        if let Some(writer) = A::try_enter(&partition.writer) {
            Writing { engine: self, partition, writer }.record_access(hash, key, slot, now);
        }
    }
}

impl<M: Mode, A: Access> Writing<'_, M, A> {
    /// Writes down that an item was read, if `slot` still is that of this key.
    pub(crate) fn record_access(&mut self, hash: KeyHash, key: &[u8], slot: Slot, now: Seconds) {
        self.writer.now = now;
        // Moving appends: without this, reads alone could bring the positions of a log round.
        M::settle_debts(self);
        let Some(found) = self.find(hash, key).filter(|found| found.slot == slot) else { return };
        let state = ItemState::load(self.region(), found.item, now);
        note_access(self.region(), found.item, &state, now);
        if M::is_move_due(self.engine, &self.partition.space, slot.link()) {
            M::move_away(self, found.place);
        }
    }
}

/// Marks an item as fetched now, if that is worth a write. The caller must be the item's only writer.
fn note_access(region: &Region, item: Offset, state: &ItemState, now: Seconds) {
    if state.is_access_due() {
        region.word(item.plus(SHAPE)).store(state.accessed(now), Relaxed);
    }
}
