//! Reclaiming dead items, in bounded slices.

use crate::{
    candidate::bucket_words,
    chain::{self, Place},
    item::ItemState,
    mode::Mode,
    relink,
    slot::Slot,
    store::{Engine, Writing},
};
use minos_base::Seconds;
use minos_region::Offset;
use minos_sync::Access;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

/// Chains by which a sweep looks ahead, so that their cache misses overlap with its work.
const AHEAD_BUCKETS: u64 = 4;

/// Flushes within which a partition is swept if nothing else sweeps it: fewer than half of
/// the generations that items can distinguish, because items flushed behind the sweep wait
/// for the next pass, and the index may grow.
const FLUSHES_A_PASS: u64 = 1 << 18;

/// The result of one slice of a sweep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Swept {
    /// Chains checked.
    pub buckets: usize,
    /// Expired items whose memory was freed.
    pub expired: u64,
    /// Flushed items whose memory was freed.
    pub flushed: u64,
    /// Slots of these and of evicted items that were freed.
    pub slots: u64,
    /// First expiry of an item that was left in memory; [`Seconds::MAX`] if none has one.
    pub first_expiry: Seconds,
    /// True if the slice began at the partition's first bucket.
    pub from_start: bool,
    /// True if the slice reached the partition's last bucket; the next slice starts a new pass.
    pub pass_ended: bool,
    /// True if the partition may have more to give back below a lower limit of the memory, which takes further slices.
    pub gives_back: bool,
}

impl<M: Mode, A: Access> Engine<M, A> {
    /// Reclaims dead items in the next `buckets_max` chains of a partition. While a cache has more than a lower limit of
    /// its memory allows, a segment of the partition's log is evicted too; above flash as soon as its items are there, or
    /// if flash takes none and they may be lost.
    ///
    /// It blocks the partition's writers meanwhile: some cache misses a chain.
    ///
    /// # Panics
    /// If there is no such partition.
    pub fn sweep(&self, partition: usize, buckets_max: usize, now: Seconds) -> Swept {
        self.writing_at(partition).sweep_slice(buckets_max, now)
    }

    /// Makes everything stored so far dead. The next sweeps free its memory.
    ///
    /// Its time does not depend on earlier flushes: each flush sweeps enough chains that dead items are
    /// removed before their generation's number is used again.
    pub fn flush(&self) {
        let mut observer = None;
        for partition in 0..self.partitions() {
            let mut writing = self.writing_at(partition);
            writing.flush();
            observer = writing.writer.observer.clone();
        }
        if let Some(observer) = observer {
            observer.flushed();
        }
    }

    /// A number that each flush changes. What is read after it and stored in an [`Engine::entry`] that is taken while the
    /// number is still the same is older than no flush.
    pub fn flushes(&self) -> u64 {
        // Acquire: what is read next is not read before. The partition's lock orders the rest.
        self.flushes.load(Acquire)
    }

    /// Numbers of which one changes with each event behind which there are dead items: a flush, a large value that is evicted,
    /// another limit of the memory, and the first expiry of the items stored since it last changed.
    ///
    /// Sweeps of all partitions from their first buckets on, that began after the last change and have freed nothing, have
    /// seen all other items that may be dead by `now`, or have told of their first expiry.
    pub fn sweep_orders(&self, now: Seconds) -> [u64; 5] {
        let is_over_limit = self.memory().is_rest_over_limit().into();
        [self.flushes(), M::large_evictions(self), self.memory_limit(), is_over_limit, self.expiries(now)]
    }

    /// Changes once an item has expired that was stored since it last changed.
    fn expiries(&self, now: Seconds) -> u64 {
        if self.soonest.load(Relaxed) <= now {
            self.soonest.store(Seconds::MAX, Relaxed);
            // Release, and acquire: who finds the number changed, and then takes the lock of a partition, is not followed by a
            // writer there that goes by the old time and notes nothing. Before, its item is linked, and the sweep comes by.
            self.expiries.fetch_add(1, Release);
        }
        self.expiries.load(Acquire)
    }
}

impl<M: Mode, A: Access> Writing<'_, M, A> {
    /// Begins a new generation.
    pub(crate) fn flush(&mut self) {
        let (region, index) = (self.region(), &self.partition.index);
        let next = index.generation(region).next(self.writer.sweep.clean_generation);
        index.set_generation(region, next);
        self.engine.flushes.fetch_add(1, Relaxed);
        self.partition.counts.flush();
        let buckets = 1 + index.buckets(region) / FLUSHES_A_PASS;
        M::flushes(self);
        // At time zero no item counts as expired.
        self.sweep_slice(buckets as usize, 0);
    }

    pub(crate) fn sweep_slice(&mut self, buckets_max: usize, now: Seconds) -> Swept {
        let (region, partition) = (self.region(), self.partition);
        let index = &partition.index;
        M::settle_debts(self);
        let gives_back = M::heed_limit(self);
        let mut swept = Swept {
            buckets: 0,
            expired: 0,
            flushed: 0,
            slots: 0,
            first_expiry: Seconds::MAX,
            from_start: self.writer.sweep.bucket == 0,
            pass_ended: false,
            gives_back,
        };
        for _ in 0..buckets_max {
            // The index may have grown since the last slice; it never shrinks.
            if self.writer.sweep.bucket == 0 {
                self.writer.sweep.pass_generation = index.generation(region).number();
            }
            self.look_ahead(self.writer.sweep.bucket);
            let head = index.bucket(region, self.writer.sweep.bucket);
            self.sweep_chain(head, now, &mut swept);
            swept.buckets += 1;
            let progress = &mut self.writer.sweep;
            progress.bucket += 1;
            if progress.bucket >= index.buckets(region) {
                progress.bucket = 0;
                progress.clean_generation = progress.pass_generation;
                partition.counts.end_pass();
                swept.pass_ended = true;
                break;
            }
        }
        swept
    }

    /// Asks for the bucket that is swept some chains later, and for the items of one that comes before it.
    fn look_ahead(&self, bucket: u64) {
        let (region, index) = (self.region(), &self.partition.index);
        let last = index.buckets(region) - 1;
        region.prefetch(index.bucket(region, last.min(bucket + 2 * AHEAD_BUCKETS)));
        let head = index.bucket(region, last.min(bucket + AHEAD_BUCKETS));
        for word in &bucket_words(region, head)[1..] {
            self.engine.reader(self.partition).prefetch_slot(Slot(word.load(Relaxed)));
        }
    }

    fn sweep_chain(&mut self, head: Offset, now: Seconds, swept: &mut Swept) {
        let (region, partition) = (self.region(), self.partition);
        let counts = &partition.counts;
        let (expired, flushed) = (counts.expired.value(), counts.flushed.value());
        // Another slot fills the gap of a removed one, and must be checked too.
        while let Some(place) = chain::places(region, head).find(|place| self.is_reclaimable(*place, now)) {
            swept.slots += u64::from(self.reclaim_if_dead(place, now));
        }
        for place in chain::places(region, head) {
            if let Some(item) = M::locate(&partition.space, region, place.slot(region)) {
                let state = ItemState::load(region, item, now);
                counts.see(&state);
                if state.expiry() != 0 {
                    swept.first_expiry = swept.first_expiry.min(state.expiry());
                }
            }
        }
        swept.expired += counts.expired.value() - expired;
        swept.flushed += counts.flushed.value() - flushed;
    }

    /// True if a slot's item was evicted or is dead.
    fn is_reclaimable(&self, place: Place, now: Seconds) -> bool {
        let slot = place.slot(self.region());
        if M::IS_TIERED && slot.is_on_flash() {
            return false;
        }
        M::locate(&self.partition.space, self.region(), slot)
            .is_none_or(|item| self.is_dead(slot, item, now) && !M::is_kept(self, place))
    }

    /// True if an item has expired, was flushed, or has lost its large value.
    #[inline]
    pub(crate) fn is_dead(&self, slot: Slot, item: Offset, now: Seconds) -> bool {
        let region = self.region();
        let state = ItemState::load(region, item, now);
        !state.is_live(self.partition.index.generation(region))
            || slot.class_index() > self.engine.inline_class_max.index()
                && !M::has_large_value(self.engine, item, &state)
    }

    /// Unlinks an item that is expired, flushed or evicted, or has lost its large value; returns true if it was.
    pub(crate) fn reclaim_if_dead(&mut self, place: Place, now: Seconds) -> bool {
        let (region, partition) = (self.region(), self.partition);
        let slot = place.slot(region);
        if M::IS_TIERED && (slot.is_on_flash() || M::is_kept(self, place)) {
            return false;
        }
        let Some(item) = M::locate(&partition.space, region, slot) else {
            // It was counted when it was evicted.
            relink::remove::<A>(region, &partition.index, place);
            return true;
        };
        if !self.is_dead(slot, item, now) {
            return false;
        }
        if M::goes_back(self, place) {
            return true;
        }
        let state = ItemState::load(region, item, now);
        let is_flushed = state.is_flushed(partition.index.generation(region));
        if is_flushed {
            partition.counts.flushed.add(1);
        } else if state.is_expired() {
            partition.counts.expire(&state);
        }
        // The flush has told of its items.
        let key = if is_flushed { None } else { self.key_to_tell(item) };
        self.unlink(place);
        if let Some(key) = key {
            self.tell_gone(self.engine.hash(&key), &key);
        }
        true
    }
}
