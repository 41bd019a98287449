//! Writes down that items were read, for eviction and for their clients.

use crate::{
    candidate::Candidate,
    chain::{self, Place},
    item::{ItemState, SHAPE},
    mode::Mode,
    partition::Partition,
    slot::Slot,
    store::{Engine, Writing},
};
use arrayvec::ArrayVec;
use minos_base::{KeyHash, Seconds, limits::BURST_MAX};
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
        if M::is_move_due(self, &partition.space, candidate.slot.link()) {
            self.record_access(partition, hash, key, candidate.slot, now);
        } else if state.is_access_due() {
            if candidate.is_in_first_bucket() {
                // By value: a reference would keep all of it in memory for a call that is rare.
                let words = (candidate.version, candidate.cell);
                self.mark_access((partition, hash), words, (candidate.slot, candidate.item), now);
            } else {
                self.record_access(partition, hash, key, candidate.slot, now);
            }
        }
    }

    /// Marks a candidate as read if its slot is unchanged and the writer's lock is free.
    ///
    /// An unchanged slot is enough: it refers to a linked item, and if another item has taken the same place,
    /// that one is marked instead. This holds for first buckets only; spare buckets may join other chains. Nor may it be
    /// in another partition, for whose key it was staged: only the writer of this one is kept away.
    #[cold]
    fn mark_access(
        &self,
        (partition, hash): (&Partition<M, A>, KeyHash),
        (version, cell): (&ReadWord, &ReadWord),
        (slot, item): (Slot, Offset),
        now: Seconds,
    ) {
        let Some(_writer) = A::try_enter(&partition.writer) else { return };
        let region = self.memory().region();
        let is_linked = self.reader(partition).is_chain_of(hash, version)
            && cell.load(Relaxed) == slot.0
            && M::locate(&partition.space, region, slot) == Some(item);
        if is_linked {
            let state = ItemState::load(region, item, now);
            note_access(region, item, &state, now);
        }
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

/// The read of an item by another process: the key's hash, and the item's slot at that time.
type Noted = (KeyHash, Slot);

impl<M: Mode, A: Access> Engine<M, A> {
    /// Writes down what other processes have read: hashes of keys, each with [`crate::ItemView::slot_word`]. Nothing
    /// happens to an item that has been replaced or moved since, and any other word is harmless. Waits for the writers
    /// of the partitions, each for at most a burst. Where partitions belong to threads, reads in others' are passed over.
    pub fn note_reads(&self, reads: &[(KeyHash, u64)], now: Seconds) {
        // In groups whose cache misses overlap.
        for reads in reads.chunks(BURST_MAX) {
            let mut noted: ArrayVec<Noted, BURST_MAX> =
                reads.iter().map(|&(hash, word)| (hash, Slot(word))).collect();
            noted.iter().for_each(|(hash, _)| self.prefetch_bucket(*hash));
            for (hash, slot) in &noted {
                self.reader(self.partition(*hash)).prefetch_slot(*slot);
            }
            // Each writer is entered once.
            noted.sort_unstable_by_key(|(hash, _)| self.partition_of(*hash));
            for noted in
                noted.chunk_by(|(one, _), (next, _)| self.partition_of(*one) == self.partition_of(*next))
            {
                let partition = self.partition(noted[0].0);
                if let Some(writer) = A::enter_if_own(&partition.writer) {
                    Writing { engine: self, partition, writer }.note_reads(noted, now);
                }
            }
        }
    }
}

impl<M: Mode, A: Access> Writing<'_, M, A> {
    /// Writes down the reads of items of this partition by other processes.
    fn note_reads(&mut self, noted: &[Noted], now: Seconds) {
        self.writer.now = now;
        M::settle_debts(self);
        noted.iter().for_each(|&(hash, slot)| self.note_read(hash, slot, now));
    }

    fn note_read(&mut self, hash: KeyHash, slot: Slot, now: Seconds) {
        let region = self.region();
        // An equal slot of the chain is enough: it refers to the item that was read, wherever it stands now.
        let place = chain::places(region, self.head(hash)).find(|place| place.slot(region) == slot);
        let item = M::locate(&self.partition.space, region, slot);
        let (Some(place), Some(item)) = (place, item) else { return };
        let state = ItemState::load(region, item, now);
        if state.is_live(self.partition.index.generation(region)) {
            self.note_item(place, (slot, item), &state, now);
        }
    }

    /// Writes down that an item was read, if `slot` still is that of this key.
    fn record_access(&mut self, hash: KeyHash, key: &[u8], slot: Slot, now: Seconds) {
        self.writer.now = now;
        // Moving appends: without this, reads alone could bring the positions of a log round.
        M::settle_debts(self);
        let Some(found) = self.find(hash, key).filter(|found| found.slot == slot) else { return };
        let state = ItemState::load(self.region(), found.item, now);
        self.note_item(found.place, (slot, found.item), &state, now);
    }

    fn note_item(&mut self, place: Place, (slot, item): (Slot, Offset), state: &ItemState, now: Seconds) {
        note_access(self.region(), item, state, now);
        if M::is_move_due(self.engine, &self.partition.space, slot.link()) {
            M::move_away(self, place);
        }
    }
}

/// Marks an item as fetched now, if that is worth a write. The caller must be the item's only writer.
fn note_access(region: &Region, item: Offset, state: &ItemState, now: Seconds) {
    if state.is_access_due() {
        region.word(item.plus(SHAPE)).store(state.accessed(now), Relaxed);
    }
}
