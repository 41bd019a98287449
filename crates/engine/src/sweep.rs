//! Reclaiming what is dead, a bounded slice at a time.

use crate::{
    chain::{self, Place},
    item::{GENERATIONS, ItemState},
    partition::Writer,
    store::Store,
};
use minos_base::Seconds;
use minos_region::Memory;

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

impl Store {
    /// Reclaims dead items in the next `buckets_max` chains of a partition.
    ///
    /// It holds the partition's lock for that long: some cache misses a chain.
    ///
    /// # Panics
    /// If there is no such partition.
    pub fn sweep(&self, partition: usize, buckets_max: usize, now: Seconds) -> Swept {
        let mut writer = self.partition_list()[partition].writer.lock();
        writer.sweep_slice(self.memory(), buckets_max, now)
    }

    /// Everything stored so far is dead from now on. Its memory comes back with the next sweeps.
    ///
    /// An item can tell four generations apart. A flush that comes so soon after others that some dead
    /// items might be taken for new ones sweeps them first.
    pub fn flush(&self) {
        for partition in self.partition_list() {
            let mut writer = partition.writer.lock();
            while !writer.sweep.may_flush(writer.index.generation(self.memory().region())) {
                // The clock stands at zero: only flushed items are looked for.
                writer.sweep_slice(self.memory(), FLUSH_SLICE_BUCKETS, 0);
                drop(writer);
                writer = partition.writer.lock();
            }
            let region = self.memory().region();
            writer.index.set_generation(region, writer.index.generation(region) + 1);
        }
    }
}

impl Progress {
    /// Whether one more generation can be told from all that may still be there.
    fn may_flush(&self, generation: u64) -> bool {
        generation + 1 - self.clean_generation < GENERATIONS
    }
}

impl Writer {
    fn sweep_slice(&mut self, memory: &Memory, buckets_max: usize, now: Seconds) -> Swept {
        let region = memory.region();
        let mut swept = Swept::default();
        for _ in 0..buckets_max {
            // The index may have grown since the last slice; it never shrinks.
            if self.sweep.bucket == 0 {
                self.sweep.pass_generation = self.index.generation(region);
            }
            let head = self.index.bucket(region, self.sweep.bucket);
            self.sweep_chain(memory, head, now, &mut swept);
            swept.buckets += 1;
            self.sweep.bucket += 1;
            if self.sweep.bucket >= self.index.buckets(region) {
                self.sweep.bucket = 0;
                self.sweep.clean_generation = self.sweep.pass_generation;
                swept.pass_ended = true;
                break;
            }
        }
        swept
    }

    fn sweep_chain(&mut self, memory: &Memory, head: minos_region::Offset, now: Seconds, swept: &mut Swept) {
        let region = memory.region();
        chain::places(region, head).for_each(|place| region.prefetch(place.slot(region).item()));
        let (expired, flushed) = (self.counts.expired, self.counts.flushed);
        // From the last slot to the first: what fills the gap of a removed slot was looked at before.
        let mut at = chain::places(region, head).count();
        while at > 0 {
            at -= 1;
            if let Some(place) = chain::places(region, head).nth(at) {
                self.reclaim_if_dead(memory, place, now);
            }
        }
        swept.expired += self.counts.expired - expired;
        swept.flushed += self.counts.flushed - flushed;
    }

    /// Unlinks an item that is expired or flushed; whether it was.
    pub(crate) fn reclaim_if_dead(&mut self, memory: &Memory, place: Place, now: Seconds) -> bool {
        let region = memory.region();
        let state = ItemState::load(region, place.slot(region).item(), now);
        if state.is_flushed(self.index.generation(region)) {
            self.counts.flushed += 1;
        } else if state.is_expired() {
            self.counts.expired += 1;
        } else {
            return false;
        }
        self.unlink(memory, place);
        true
    }
}
