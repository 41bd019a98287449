//! Gathers the statistics of a whole table.

use crate::{
    index::{BUCKET_WORDS, Index},
    mode::Mode,
    partition::Partition,
    stats::{ClassStats, StoreStats},
    store::Engine,
};
use minos_base::SizeClass;
use minos_sync::Access;
use std::sync::atomic::Ordering::Relaxed;

/// Chains of each partition sampled for [`StoreStats::spare_buckets`].
const CHAINS_SAMPLED: u64 = 256;

impl<M: Mode, A: Access> Engine<M, A> {
    /// The table's contents and event counts. Blocks no other thread.
    pub fn stats(&self) -> StoreStats {
        let memory_bytes = self.memory().geometry().memory_bytes;
        let mut stats = StoreStats { memory_bytes, ..StoreStats::default() };
        let root = self.memory().stats();
        let mut free_words = root.free_words;
        let mut largest_free_words = root.largest_free_words;
        for partition in &self.partitions {
            stats.read_retries += partition.retries.load(Relaxed);
            stats.read_fallbacks += partition.fallbacks.load(Relaxed);
            stats.read_abandoned += partition.abandoned.load(Relaxed);
            self.add_index(&mut stats, &partition.index);
            stats.add_counts(&partition.counts);
            let room = M::room_stats(self, partition);
            free_words += room.free_words;
            largest_free_words = largest_free_words.max(room.largest_free_words);
        }
        M::add_stats(self, &mut stats);
        self.buffers.add_stats(&mut stats);
        stats.free_bytes = free_words * 8;
        stats.used_bytes = memory_bytes.saturating_sub(stats.free_bytes);
        stats.largest_free_bytes = largest_free_words * 8;
        stats
    }

    /// Counts by size class, smallest first; [`SizeClass::COUNT`] of them.
    pub fn class_stats(&self) -> Vec<ClassStats> {
        let mut classes = vec![ClassStats::default(); SizeClass::COUNT];
        for Partition { counts, .. } in &self.partitions {
            classes.iter_mut().zip(&counts.by_class).for_each(|(sum, counts)| sum.add(counts));
        }
        classes
    }

    /// Counts buckets, and spare ones in a sample of chains scaled up to all.
    fn add_index(&self, stats: &mut StoreStats, index: &Index) {
        let region = self.memory().region();
        let buckets = index.buckets(region);
        stats.buckets += buckets;
        let sample = buckets.min(CHAINS_SAMPLED);
        let mut spares = 0;
        for number in 0..sample {
            // Spread over the index, because split and unsplit chains differ in length.
            let head = index.bucket(region, number * buckets / sample);
            // Bounded, because a writer may be changing the chain.
            let chain = crate::chain::buckets(region, head).take(1 << 10).count() as u64;
            spares += chain - 1;
            stats.chain_buckets_max = stats.chain_buckets_max.max(chain);
        }
        let spares = spares * buckets / sample;
        stats.spare_buckets += spares;
        stats.index_bytes += index.bytes(region) + spares * (BUCKET_WORDS * 8) as u64;
    }
}
