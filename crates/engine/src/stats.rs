//! Statistics of a store.

use crate::{
    counts::{ClassCounts, Counts},
    index::SLOTS,
};
use std::sync::atomic::Ordering::Relaxed;

/// Counts of the items whose values are of one size class.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClassStats {
    /// Items linked, those that are expired or flushed but not yet reclaimed included.
    pub items: u64,
    /// Bytes of their keys and values.
    pub item_bytes: u64,
    /// Items ever stored.
    pub stored: u64,
    /// Stores that were refused for lack of memory.
    pub refused: u64,
    /// Expired items that were reclaimed.
    pub expired_reclaimed: u64,
    /// Live items that were lost with the oldest part of a log. Cache mode.
    pub evicted: u64,
    /// Seconds since the last access to the longest idle item, as of the last whole sweep; exact to a minute.
    pub age_s: u64,
}

impl ClassStats {
    /// True if the class holds items or ever held one.
    pub fn is_used(&self) -> bool {
        *self != Self::default()
    }

    pub(crate) fn add(&mut self, counts: &ClassCounts) {
        self.items += counts.items.value();
        self.item_bytes += counts.item_bytes.value();
        self.stored += counts.stored.value();
        self.refused += counts.refused.load(Relaxed);
        self.expired_reclaimed += counts.expired.value();
        self.evicted += counts.evicted.value();
        self.age_s = self.age_s.max(counts.ages_s[1].value());
    }
}

/// Contents and event counts of a store, summed over all partitions.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct StoreStats {
    /// Items linked, those that are expired or flushed but not yet reclaimed included.
    pub items: u64,
    /// Items ever stored.
    pub items_stored: u64,
    /// Slots that name records on flash; a few of these are hidden by items in memory, or dead.
    pub cold_items: u64,
    /// Bytes of these records with their headers, by rough lengths.
    pub cold_bytes: u64,
    /// Bytes of all keys.
    pub key_bytes: u64,
    /// Bytes of all values.
    pub value_bytes: u64,
    /// Size of the region in bytes.
    pub memory_bytes: u64,
    /// Bytes of items, index and headers, with the heap's overhead.
    pub used_bytes: u64,
    /// Bytes not used by items or index; some of them lie in arenas of partitions.
    pub free_bytes: u64,
    /// Bytes of index segments and of the spare buckets of chains.
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
    /// Reads that were answered as if there was no item, because a writer did not end.
    pub read_abandoned: u64,
    /// Stores that were refused for lack of memory or room in the index.
    pub out_of_memory: u64,
    /// Those of them for which the chain of the key was as long as it may be. Store mode.
    pub chain_refusals: u64,
    /// Bytes of buffers outside the memory, for large values whose place held small items before.
    pub buffer_bytes: u64,
    /// Times that there was no room for another one.
    pub buffer_refusals: u64,
    /// Expired items that were reclaimed.
    pub expired_reclaimed: u64,
    /// Items among [`StoreStats::items`] that a flush has made dead, and whose memory is to be reclaimed.
    pub dead_items: u64,
    /// Flushed items that were reclaimed.
    pub flushed_reclaimed: u64,
    /// Live items that were lost with the oldest part of a log. Cache mode.
    pub evictions_log: u64,
    /// Live items that were lost because their bucket was full. Cache mode.
    pub evictions_index: u64,
    /// Large values that were evicted to make room. Cache mode.
    pub evictions_large: u64,
    /// Items that were moved to the tail of their log when they were read. Cache mode.
    pub reinserted: u64,
    /// Bytes from heads to tails of all logs. Cache mode.
    pub log_bytes: u64,
    /// Bytes of all segments that logs hold. Cache mode.
    pub log_capacity_bytes: u64,
    /// Large values, which lie outside the logs. Cache mode.
    pub extents: u64,
    /// Bytes of those. Cache mode.
    pub extent_bytes: u64,
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

    /// Items and values evicted for any reason.
    pub fn evictions(&self) -> u64 {
        self.evictions_log + self.evictions_index + self.evictions_large
    }

    /// Average overhead of an item beside its key and value, in bytes: header, heap, index. 0 without items.
    pub fn overhead_bytes_per_item(&self) -> f64 {
        per(self.used_bytes.saturating_sub(self.item_bytes()), self.items)
    }

    /// Average bytes of an item, with all overhead. 0 without items.
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

impl StoreStats {
    pub(crate) fn add_counts(&mut self, counts: &Counts) {
        self.items += counts.items();
        self.cold_items += counts.cold.value();
        self.cold_bytes += counts.cold_bytes.value();
        for class in &counts.by_class {
            self.items_stored += class.stored.value();
            self.out_of_memory += class.refused.load(Relaxed);
        }
        self.key_bytes += counts.key_bytes.value();
        self.value_bytes += counts.value_bytes.value();
        self.splits += counts.splits.value();
        self.chain_refusals += counts.chain_refusals.value();
        self.expired_reclaimed += counts.expired.value();
        self.dead_items += counts.dead();
        self.flushed_reclaimed += counts.flushed.value();
        self.evictions_log += counts.evicted_log.value();
        self.evictions_index += counts.evicted_index.value();
        self.reinserted += counts.reinserted.value();
    }

    /// Slots of the index that could be filled without growing it.
    pub fn slots(&self) -> u64 {
        (self.buckets + self.spare_buckets) * SLOTS as u64
    }
}
