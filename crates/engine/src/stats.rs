//! Statistics of a store.

use crate::{
    index::{BUCKET_WORDS, Index, SLOTS},
    item::ItemState,
    mode::Mode,
    partition::Partition,
    slot::Slot,
    store::Engine,
};
use minos_base::SizeClass;
use minos_sync::Access;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// A count that one thread at a time raises, and any thread reads.
#[derive(Debug, Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    // Relaxed, and no read-modify-write: there is one writer, and readers need only a number.
    #[inline]
    pub(crate) fn add(&self, count: u64) {
        self.0.store(self.0.load(Relaxed).wrapping_add(count), Relaxed);
    }

    #[inline]
    pub(crate) fn set(&self, count: u64) {
        self.0.store(count, Relaxed);
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
    key_bytes: Counter,
    value_bytes: Counter,
    pub(crate) splits: Counter,
    /// Stores that were refused because the chain was too long.
    pub(crate) chain_refusals: Counter,
    pub(crate) expired: Counter,
    pub(crate) flushed: Counter,
    /// Items that were lost when their part of the log was evicted.
    pub(crate) evicted_log: Counter,
    /// Items that were lost because their bucket was full.
    pub(crate) evicted_index: Counter,
    /// Items that were moved to the tail of the log when they were read.
    pub(crate) reinserted: Counter,
    by_class: Box<[ClassCounts]>,
}

/// Counts of the items of one size class.
#[derive(Debug, Default)]
struct ClassCounts {
    items: Counter,
    item_bytes: Counter,
    stored: Counter,
    /// Raised by any thread: a large value is refused before any writer is asked.
    refused: AtomicU64,
    expired: Counter,
    evicted: Counter,
    /// The longest time since an access, in seconds: in this pass of the
    /// sweep so far, and in the last whole one.
    ages_s: [Counter; 2],
}

impl Default for Counts {
    fn default() -> Self {
        Self {
            items: Counter::default(),
            key_bytes: Counter::default(),
            value_bytes: Counter::default(),
            splits: Counter::default(),
            chain_refusals: Counter::default(),
            expired: Counter::default(),
            flushed: Counter::default(),
            evicted_log: Counter::default(),
            evicted_index: Counter::default(),
            reinserted: Counter::default(),
            by_class: (0..SizeClass::COUNT).map(|_| ClassCounts::default()).collect(),
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
    #[inline]
    pub(crate) fn add(&self, state: &ItemState) {
        self.count(state, 1).stored.add(1);
    }

    /// An item was linked that was stored before.
    pub(crate) fn add_again(&self, state: &ItemState) {
        self.count(state, 1);
    }

    /// An item is no longer linked.
    #[inline]
    pub(crate) fn remove(&self, state: &ItemState) {
        self.count(state, 1u64.wrapping_neg());
    }

    /// The item of this slot got another value of the same length.
    #[inline]
    pub(crate) fn overwrite(&self, slot: Slot) {
        self.by_class[slot.class_index()].stored.add(1);
    }

    /// An item got another value in its place.
    pub(crate) fn update(&self, old: &ItemState, new: &ItemState) {
        if old.value_bytes() == new.value_bytes() {
            self.class(new).stored.add(1);
        } else {
            self.remove(old);
            self.add(new);
        }
    }

    /// An expired item was reclaimed.
    pub(crate) fn expire(&self, state: &ItemState) {
        self.expired.add(1);
        self.class(state).expired.add(1);
    }

    /// An item was lost when its part of the log was evicted.
    pub(crate) fn evict(&self, state: &ItemState) {
        self.evicted_log.add(1);
        self.class(state).evicted.add(1);
    }

    /// A value was refused for lack of memory. No lock is needed.
    pub(crate) fn refuse(&self, value_bytes: u64) {
        self.by_class[SizeClass::of(value_bytes).index()].refused.fetch_add(1, Relaxed);
    }

    /// A sweep has come by an item that stays.
    pub(crate) fn see(&self, state: &ItemState) {
        let [seen, _] = &self.class(state).ages_s;
        let age_s = state.access_age_s();
        if age_s > seen.value() {
            seen.set(age_s);
        }
    }

    /// A sweep has seen all items.
    pub(crate) fn end_pass(&self) {
        for ClassCounts { ages_s: [seen, whole], .. } in &self.by_class {
            whole.set(seen.value());
            seen.set(0);
        }
    }

    /// The counts that [`crate::check`] compares: items, bytes of keys, bytes of values, items by class.
    pub(crate) fn tally(&self) -> (u64, u64, u64, Vec<u64>) {
        let by_class = self.by_class.iter().map(|class| class.items.value()).collect();
        (self.items(), self.key_bytes.value(), self.value_bytes.value(), by_class)
    }

    /// Adds `items` like this one; wraps around, so that it can subtract
    /// too. Returns the counts of its class.
    fn count(&self, state: &ItemState, items: u64) -> &ClassCounts {
        let class = self.class(state);
        let (key_bytes, value_bytes) = (state.key_bytes() as u64, state.value_bytes() as u64);
        self.items.add(items);
        self.key_bytes.add(items.wrapping_mul(key_bytes));
        self.value_bytes.add(items.wrapping_mul(value_bytes));
        class.items.add(items);
        class.item_bytes.add(items.wrapping_mul(key_bytes + value_bytes));
        class
    }

    #[inline]
    fn class(&self, state: &ItemState) -> &ClassCounts {
        &self.by_class[SizeClass::of(state.value_bytes() as u64).index()]
    }
}

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

    fn add(&mut self, counts: &ClassCounts) {
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
    /// Bytes of buffers outside the memory, for large values whose place held small items before.
    pub buffer_bytes: u64,
    /// Times that there was no room for another one.
    pub buffer_refusals: u64,
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
        for partition in self.partition_list() {
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
        for Partition { counts, .. } in self.partition_list() {
            classes.iter_mut().zip(&counts.by_class).for_each(|(sum, counts)| sum.add(counts));
        }
        classes
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
        for class in &counts.by_class {
            self.items_stored += class.stored.value();
            self.out_of_memory += class.refused.load(Relaxed);
        }
        self.key_bytes += counts.key_bytes.value();
        self.value_bytes += counts.value_bytes.value();
        self.splits += counts.splits.value();
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
