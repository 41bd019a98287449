//! Reclaiming what is dead, a bounded slice at a time.

use crate::{
    chain::{self, Place},
    item::{GENERATIONS, ItemState},
    mode::Mode,
    partition::Writing,
    read::bucket_words,
    slot::Slot,
    store::Engine,
};
use minos_base::Seconds;
use minos_region::Offset;
use minos_sync::{Access, AnyWriter};
use std::sync::atomic::Ordering::Relaxed;

/// Chains by which a sweep looks ahead, so that their cache misses overlap with its work.
const AHEAD_BUCKETS: u64 = 4;

/// Buckets that a flush sweeps while it holds a lock, when it must sweep itself.
const FLUSH_SLICE_BUCKETS: usize = 64;

/// Where the sweep of a partition is. Under the partition's lock.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    /// The next bucket.
    bucket: u64,
    /// The flush generation when the pass began.
    pass_generation: u64,
    /// Items of older generations than this one are all gone.
    clean_generation: u64,
}

/// What one slice of a sweep has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Swept {
    /// Chains that were looked at.
    pub buckets: usize,
    /// Expired items whose memory was given back.
    pub expired: u64,
    /// Flushed items whose memory was given back.
    pub flushed: u64,
    /// Whether the slice ended with the last bucket of the partition; the next one begins anew.
    pub pass_ended: bool,
}

impl<M: Mode, A: AnyWriter> Engine<M, A> {
    /// Reclaims dead items in the next `buckets_max` chains of a partition.
    ///
    /// It holds the partition's writers up for that long: some cache misses a chain.
    ///
    /// # Panics
    /// If there is no such partition.
    pub fn sweep(&self, partition: usize, buckets_max: usize, now: Seconds) -> Swept {
        self.writing_at(partition).sweep_slice(buckets_max, now)
    }

    /// Everything stored so far is dead from now on. Its memory comes back with the next sweeps.
    ///
    /// An item can tell four generations apart. A flush that comes so soon after others that some dead
    /// items might be taken for new ones sweeps them first.
    pub fn flush(&self) {
        for partition in 0..self.partitions() {
            while !self.writing_at(partition).flush_slice() {}
        }
    }
}

impl Progress {
    /// After everything older than this generation was removed.
    pub(crate) fn clean(generation: u64) -> Self {
        Self { bucket: 0, pass_generation: generation, clean_generation: generation }
    }

    /// For the next process.
    pub(crate) fn to_words(&self) -> [u64; 3] {
        [self.bucket, self.pass_generation, self.clean_generation]
    }

    /// What [`Progress::to_words`] said.
    pub(crate) fn from_words([bucket, pass_generation, clean_generation]: [u64; 3]) -> Self {
        Self { bucket, pass_generation, clean_generation }
    }

    /// Whether one more generation can be told from all that may still be there.
    fn may_flush(&self, generation: u64) -> bool {
        generation + 1 - self.clean_generation < GENERATIONS
    }
}

impl<M: Mode, A: Access> Writing<'_, M, A> {
    /// Begins a new generation, or does a part of what must be done before; whether it has begun.
    pub(crate) fn flush_slice(&mut self) -> bool {
        let (region, index) = (self.region(), &self.partition.index);
        let generation = index.generation(region);
        let may_flush = self.writer.sweep.may_flush(generation);
        if may_flush {
            index.set_generation(region, generation + 1);
        } else {
            // The clock stands at zero: only flushed items are looked for.
            self.sweep_slice(FLUSH_SLICE_BUCKETS, 0);
        }
        may_flush
    }

    pub(crate) fn sweep_slice(&mut self, buckets_max: usize, now: Seconds) -> Swept {
        let (region, partition) = (self.region(), self.partition);
        let index = &partition.index;
        M::settle_debts(self);
        let mut swept = Swept::default();
        for _ in 0..buckets_max {
            // The index may have grown since the last slice; it never shrinks.
            if self.writer.sweep.bucket == 0 {
                self.writer.sweep.pass_generation = index.generation(region);
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
            self.engine.prefetch_slot(self.partition, Slot(word.load(Relaxed)));
        }
    }

    fn sweep_chain(&mut self, head: Offset, now: Seconds, swept: &mut Swept) {
        let (region, partition) = (self.region(), self.partition);
        let counts = &partition.counts;
        let (expired, flushed) = (counts.expired.value(), counts.flushed.value());
        // Another slot fills the gap of one that is removed, and has to be looked at too.
        while let Some(place) =
            chain::places(region, head).find(|place| self.is_reclaimable(place.slot(region), now))
        {
            self.reclaim_if_dead(place, now);
        }
        swept.expired += counts.expired.value() - expired;
        swept.flushed += counts.flushed.value() - flushed;
    }

    /// Whether what a slot refers to is of no use any more.
    fn is_reclaimable(&self, slot: Slot, now: Seconds) -> bool {
        M::locate(&self.partition.space, self.region(), slot.link())
            .is_none_or(|item| self.is_dead(slot, item, now))
    }

    /// Whether an item is expired, flushed, or has lost its large value.
    #[inline]
    pub(crate) fn is_dead(&self, slot: Slot, item: Offset, now: Seconds) -> bool {
        let region = self.region();
        let state = ItemState::load(region, item, now);
        !state.is_live(self.partition.index.generation(region))
            || slot.class_index() > self.engine.inline_class_max.index()
                && !M::has_large_value(self.engine, item, &state)
    }

    /// Unlinks an item that is expired, flushed or evicted; whether it was.
    pub(crate) fn reclaim_if_dead(&mut self, place: Place, now: Seconds) -> bool {
        let (region, partition) = (self.region(), self.partition);
        let slot = place.slot(region);
        let Some(item) = M::locate(&partition.space, region, slot.link()) else {
            // It was counted when it was evicted.
            chain::remove::<A>(region, &partition.index, place);
            return true;
        };
        if !self.is_dead(slot, item, now) {
            return false;
        }
        let state = ItemState::load(region, item, now);
        if state.is_flushed(partition.index.generation(region)) {
            partition.counts.flushed.add(1);
        } else if state.is_expired() {
            partition.counts.expired.add(1);
        }
        self.unlink(place);
        true
    }
}
