//! What a store says about itself.

use crate::{
    index::{BUCKET_WORDS, Index, SLOTS},
    item::ItemState,
    slot::Slot,
    store::Store,
};
use minos_base::SizeClass;
use minos_region::HeapStats;
use std::sync::atomic::Ordering::Relaxed;

/// Counts of one partition, kept by the holders of its lock.
#[derive(Clone, Debug)]
pub(crate) struct PartitionCounts {
    pub(crate) items: u64,
    pub(crate) items_stored: u64,
    pub(crate) key_bytes: u64,
    pub(crate) value_bytes: u64,
    pub(crate) splits: u64,
    pub(crate) out_of_memory: u64,
    pub(crate) expired: u64,
    pub(crate) flushed: u64,
    /// Items by size class.
    pub(crate) by_class: Box<[u32]>,
}

impl Default for PartitionCounts {
    fn default() -> Self {
        Self {
            items: 0,
            items_stored: 0,
            key_bytes: 0,
            value_bytes: 0,
            splits: 0,
            out_of_memory: 0,
            expired: 0,
            flushed: 0,
            by_class: vec![0; SizeClass::COUNT].into(),
        }
    }
}

impl PartitionCounts {
    pub(crate) fn add(&mut self, state: &ItemState, slot: Slot) {
        self.items += 1;
        self.items_stored += 1;
        self.key_bytes += state.key_bytes() as u64;
        self.value_bytes += state.value_bytes() as u64;
        if let Some(items) = self.by_class.get_mut(slot.class_index()) {
            *items += 1;
        }
    }

    pub(crate) fn remove(&mut self, state: &ItemState, slot: Slot) {
        self.items -= 1;
        self.key_bytes -= state.key_bytes() as u64;
        self.value_bytes -= state.value_bytes() as u64;
        if let Some(items) = self.by_class.get_mut(slot.class_index()) {
            *items -= 1;
        }
    }
}

/// How a store is filled and what happened to it; sums over all partitions.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct StoreStats {
    /// Items linked, those that are expired or flushed but not yet reclaimed included.
    pub items: u64,
    /// Items ever stored.
    pub items_stored: u64,
    /// Bytes of all keys.
    pub key_bytes: u64,
    /// Bytes of all values.
    pub value_bytes: u64,
    /// Size of the region in bytes.
    pub memory_bytes: u64,
    /// Bytes that items, index and headers take, what the heap adds included.
    pub used_bytes: u64,
    /// Bytes that no item or index has; some of them lie in arenas of partitions.
    pub free_bytes: u64,
    /// Bytes of index segments.
    pub index_bytes: u64,
    /// Buckets in use, spare ones not counted.
    pub buckets: u64,
    /// Spare buckets that extend a chain. Counted in a sample of the chains.
    pub spare_buckets: u64,
    /// Buckets of the longest chain in the sample.
    pub chain_buckets_max: u64,
    /// Times the index grew by a bucket.
    pub splits: u64,
    /// Reads that were repeated because of a writer.
    pub read_retries: u64,
    /// Reads that took a lock after too many repetitions.
    pub read_fallbacks: u64,
    /// Stores that were refused for lack of memory.
    pub out_of_memory: u64,
    /// Expired items that were reclaimed.
    pub expired_reclaimed: u64,
    /// Flushed items that were reclaimed.
    pub flushed_reclaimed: u64,
    /// Items that are pinned, deleted ones included.
    pub pinned: u64,
    /// About the largest chunk that could be had, in bytes.
    pub largest_free_bytes: u64,
}

impl StoreStats {
    /// Bytes of keys and values.
    pub fn item_bytes(&self) -> u64 {
        self.key_bytes + self.value_bytes
    }

    /// Bytes that an item takes on average beside its key and value: header, heap, index. 0 without
    /// items.
    pub fn overhead_bytes_per_item(&self) -> f64 {
        per(self.used_bytes.saturating_sub(self.item_bytes()), self.items)
    }

    /// Bytes that an item takes on average, all told. 0 without items.
    pub fn bytes_per_item(&self) -> f64 {
        per(self.used_bytes, self.items)
    }

    /// The share of the free memory that is not in the largest free chunk, from 0 to 1.
    pub fn fragmentation(&self) -> f64 {
        if self.free_bytes == 0 { 0.0 } else { 1.0 - per(self.largest_free_bytes, self.free_bytes) }
    }
}

fn per(bytes: u64, count: u64) -> f64 {
    if count == 0 { 0.0 } else { bytes as f64 / count as f64 }
}

/// Chains of each partition that are looked at for [`StoreStats::spare_buckets`].
const CHAINS_SAMPLED: u64 = 256;

impl Store {
    /// How the store is filled and what happened to it. Takes each partition's lock for a moment.
    pub fn stats(&self) -> StoreStats {
        let memory_bytes = self.memory().geometry().memory_bytes;
        let mut stats = StoreStats { memory_bytes, ..StoreStats::default() };
        let mut heaps = HeapStats::default();
        for partition in self.partition_list() {
            stats.read_retries += partition.retries.load(Relaxed);
            stats.read_fallbacks += partition.fallbacks.load(Relaxed);
            self.add_index(&mut stats, &partition.index);
            let writer = partition.writer.lock();
            stats.add_counts(&writer.counts);
            stats.pinned += writer.pins.len() as u64;
            heaps.add(&self.memory().partition_stats(&writer.heap));
        }
        let root = self.memory().stats();
        stats.free_bytes = (root.free_words + heaps.free_words) * 8;
        stats.used_bytes = memory_bytes.saturating_sub(stats.free_bytes);
        stats.largest_free_bytes = root.largest_free_words.max(heaps.largest_free_words) * 8;
        stats
    }

    /// Items by size class of their value, smallest first; [`SizeClass::COUNT`] numbers.
    pub fn size_histogram(&self) -> Vec<u64> {
        let mut histogram = vec![0; SizeClass::COUNT];
        for partition in self.partition_list() {
            let writer = partition.writer.lock();
            for (sum, items) in histogram.iter_mut().zip(&writer.counts.by_class) {
                *sum += u64::from(*items);
            }
        }
        histogram
    }

    /// Counts buckets, and spare ones in a sample of chains scaled up to all.
    fn add_index(&self, stats: &mut StoreStats, index: &Index) {
        let region = self.memory().region();
        let buckets = index.buckets(region);
        stats.buckets += buckets;
        stats.index_bytes += index.bytes(region);
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
        stats.spare_buckets += spares * buckets / sample;
    }
}

impl StoreStats {
    fn add_counts(&mut self, counts: &PartitionCounts) {
        self.items += counts.items;
        self.items_stored += counts.items_stored;
        self.key_bytes += counts.key_bytes;
        self.value_bytes += counts.value_bytes;
        self.splits += counts.splits;
        self.out_of_memory += counts.out_of_memory;
        self.expired_reclaimed += counts.expired;
        self.flushed_reclaimed += counts.flushed;
    }

    /// Slots of the index that could be filled without growing it.
    pub fn slots(&self) -> u64 {
        (self.buckets + self.spare_buckets) * SLOTS as u64
    }

    /// Bytes of spare buckets.
    pub fn spare_bytes(&self) -> u64 {
        self.spare_buckets * (BUCKET_WORDS * 8) as u64
    }
}
