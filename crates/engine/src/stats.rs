//! What a store says about itself.

use crate::{
    index::{BUCKET_WORDS, Index, SLOTS},
    item::ItemState,
    mode::Mode,
    partition::Partition,
    store::Engine,
};
use minos_base::SizeClass;
use minos_sync::Access;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

/// A count that one thread at a time raises, and any thread reads.
#[derive(Debug, Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    // Relaxed, and no read-modify-write: whoever writes is the only writer; whoever reads wants a number.
    #[inline]
    pub(crate) fn add(&self, count: u64) {
        self.0.store(self.0.load(Relaxed).wrapping_add(count), Relaxed);
    }

    #[inline]
    pub(crate) fn subtract(&self, count: u64) {
        self.add(count.wrapping_neg());
    }

    #[inline]
    pub(crate) fn value(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

/// Counts of one partition, kept by its writer.
#[derive(Debug)]
pub(crate) struct Counts {
    items: Counter,
    pub(crate) items_stored: Counter,
    key_bytes: Counter,
    value_bytes: Counter,
    pub(crate) splits: Counter,
    pub(crate) out_of_memory: Counter,
    /// Those of them for which the chain was too long.
    pub(crate) chain_refusals: Counter,
    pub(crate) expired: Counter,
    pub(crate) flushed: Counter,
    /// Items that were lost when their part of the log was evicted.
    pub(crate) evicted_log: Counter,
    /// Items that were lost because their bucket was full.
    pub(crate) evicted_index: Counter,
    /// Items that were moved to the tail of the log when they were read.
    pub(crate) reinserted: Counter,
    /// Items by size class.
    by_class: Box<[AtomicU32]>,
}

impl Default for Counts {
    fn default() -> Self {
        Self {
            items: Counter::default(),
            items_stored: Counter::default(),
            key_bytes: Counter::default(),
            value_bytes: Counter::default(),
            splits: Counter::default(),
            out_of_memory: Counter::default(),
            chain_refusals: Counter::default(),
            expired: Counter::default(),
            flushed: Counter::default(),
            evicted_log: Counter::default(),
            evicted_index: Counter::default(),
            reinserted: Counter::default(),
            by_class: (0..SizeClass::COUNT).map(|_| AtomicU32::new(0)).collect(),
        }
    }
}

impl Counts {
    /// Items that are linked.
    #[inline]
    pub(crate) fn items(&self) -> u64 {
        self.items.value()
    }

    /// An item was linked.
    pub(crate) fn add(&self, state: &ItemState) {
        self.items_stored.add(1);
        self.add_again(state);
    }

    /// An item that was counted out is linked once more.
    pub(crate) fn add_again(&self, state: &ItemState) {
        self.items.add(1);
        self.key_bytes.add(state.key_bytes() as u64);
        self.value_bytes.add(state.value_bytes() as u64);
        self.count_class(state, 1);
    }

    /// An item is no longer linked.
    pub(crate) fn remove(&self, state: &ItemState) {
        self.items.subtract(1);
        self.key_bytes.subtract(state.key_bytes() as u64);
        self.value_bytes.subtract(state.value_bytes() as u64);
        self.count_class(state, -1);
    }

    /// An item got another value in its place.
    #[inline]
    pub(crate) fn update(&self, old: &ItemState, new: &ItemState) {
        self.items_stored.add(1);
        if old.value_bytes() != new.value_bytes() {
            self.value_bytes.subtract(old.value_bytes() as u64);
            self.value_bytes.add(new.value_bytes() as u64);
            self.count_class(old, -1);
            self.count_class(new, 1);
        }
    }

    /// What [`crate::check`] compares: items, bytes of keys and of values, items by class.
    pub(crate) fn tally(&self) -> (u64, u64, u64, Vec<u32>) {
        let by_class = self.by_class.iter().map(|items| items.load(Relaxed)).collect();
        (self.items(), self.key_bytes.value(), self.value_bytes.value(), by_class)
    }

    fn count_class(&self, state: &ItemState, items: i32) {
        let class = SizeClass::of(state.value_bytes() as u64);
        if let Some(count) = self.by_class.get(class.index()) {
            count.store(count.load(Relaxed).wrapping_add_signed(items), Relaxed);
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
    /// Reads that were answered as if there was no item, because a writer did not end.
    pub read_abandoned: u64,
    /// Stores that were refused for lack of memory or room in the index.
    pub out_of_memory: u64,
    /// Those of them for which the chain of the key was as long as it may be. Store mode.
    pub chain_refusals: u64,
    /// Expired items that were reclaimed.
    pub expired_reclaimed: u64,
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
    /// Large values that lie beside the logs. Cache mode.
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

    /// Items and values that were lost to make room, whatever the reason.
    pub fn evictions(&self) -> u64 {
        self.evictions_log + self.evictions_index + self.evictions_large
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

impl<M: Mode, A: Access> Engine<M, A> {
    /// How the table is filled and what happened to it. Nobody is held up.
    pub fn stats(&self) -> StoreStats {
        let memory_bytes = self.memory().geometry().memory_bytes;
        let mut stats = StoreStats { memory_bytes, ..StoreStats::default() };
        let root = self.memory().stats();
        let mut free_words = root.free_words;
        let mut largest_free_words = root.largest_free_words;
        for partition in self.partition_list() {
            stats.read_retries += partition.retries.load(Relaxed);
            stats.read_fallbacks += partition.fallbacks.load(Relaxed);
            stats.read_abandoned += partition.abandoned.load(Relaxed);
            self.add_index(&mut stats, &partition.index);
            stats.add_counts(&partition.counts);
            stats.out_of_memory += partition.refused.load(Relaxed);
            let room = M::room_stats(self, partition);
            free_words += room.free_words;
            largest_free_words = largest_free_words.max(room.largest_free_words);
        }
        M::add_stats(self, &mut stats);
        stats.free_bytes = free_words * 8;
        stats.used_bytes = memory_bytes.saturating_sub(stats.free_bytes);
        stats.largest_free_bytes = largest_free_words * 8;
        stats
    }

    /// Items by size class of their value, smallest first; [`SizeClass::COUNT`] numbers.
    pub fn size_histogram(&self) -> Vec<u64> {
        let mut histogram = vec![0; SizeClass::COUNT];
        for Partition { counts, .. } in self.partition_list() {
            for (sum, items) in histogram.iter_mut().zip(&counts.by_class) {
                *sum += u64::from(items.load(Relaxed));
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
    fn add_counts(&mut self, counts: &Counts) {
        self.items += counts.items();
        self.items_stored += counts.items_stored.value();
        self.key_bytes += counts.key_bytes.value();
        self.value_bytes += counts.value_bytes.value();
        self.splits += counts.splits.value();
        self.out_of_memory += counts.out_of_memory.value();
        self.chain_refusals += counts.chain_refusals.value();
        self.expired_reclaimed += counts.expired.value();
        self.flushed_reclaimed += counts.flushed.value();
        self.evictions_log += counts.evicted_log.value();
        self.evictions_index += counts.evicted_index.value();
        self.reinserted += counts.reinserted.value();
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
