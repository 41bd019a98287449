//! Counts of one partition, kept by its writer.

use crate::{generation::Generation, item::ItemState, slot::Slot};
use minos_base::{FlashSlot, SizeClass};
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
    /// Of these, the ones that a flush has made dead.
    dead: Counter,
    pub(crate) key_bytes: Counter,
    pub(crate) value_bytes: Counter,
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
    /// Slots that name records on flash, and bytes of these records, about.
    pub(crate) cold: Counter,
    pub(crate) cold_bytes: Counter,
    pub(crate) tier: TierCounts,
    pub(crate) by_class: Box<[ClassCounts]>,
}

/// Counts of the way between memory and flash.
#[derive(Debug, Default)]
pub(crate) struct TierCounts {
    pub(crate) written: Counter,
    pub(crate) put_back: Counter,
    pub(crate) unwritten: Counter,
    pub(crate) superseded: Counter,
    pub(crate) promoted: Counter,
    pub(crate) dropped: Counter,
    pub(crate) unsplit: Counter,
    pub(crate) unadopted: Counter,
    pub(crate) tombstones: Counter,
    pub(crate) tombstones_lost: Counter,
    /// Items in memory whose copies on flash are the same, and bytes of their keys and values.
    pub(crate) twins: Counter,
    pub(crate) twin_bytes: Counter,
}

impl TierCounts {
    /// The copy of an item is the same from now on, or no longer.
    pub(crate) fn count_twin(&self, state: &ItemState, is_same: bool) {
        let bytes = (state.key_bytes() + state.value_bytes()) as u64;
        let signed = |count: u64| if is_same { count } else { count.wrapping_neg() };
        self.twins.add(signed(1));
        self.twin_bytes.add(signed(bytes));
    }
}

#[derive(Debug, Default)]
pub(crate) struct ClassCounts {
    pub(crate) items: Counter,
    pub(crate) item_bytes: Counter,
    pub(crate) stored: Counter,
    /// Raised by any thread: a large value is refused before any writer is asked.
    pub(crate) refused: AtomicU64,
    pub(crate) expired: Counter,
    pub(crate) evicted: Counter,
    /// The longest time since an access, in seconds: in this pass of the
    /// sweep so far, and in the last whole one.
    pub(crate) ages_s: [Counter; 2],
}

impl Default for Counts {
    fn default() -> Self {
        Self {
            items: Counter::default(),
            dead: Counter::default(),
            key_bytes: Counter::default(),
            value_bytes: Counter::default(),
            splits: Counter::default(),
            chain_refusals: Counter::default(),
            expired: Counter::default(),
            flushed: Counter::default(),
            evicted_log: Counter::default(),
            evicted_index: Counter::default(),
            reinserted: Counter::default(),
            cold: Counter::default(),
            cold_bytes: Counter::default(),
            tier: TierCounts::default(),
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

    /// Items that are linked, and dead since a flush.
    pub(crate) fn dead(&self) -> u64 {
        self.dead.value()
    }

    /// A flush has made all items dead.
    pub(crate) fn flush(&self) {
        self.dead.set(self.items());
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

    /// A slot was linked that names a record on flash.
    pub(crate) fn add_cold(&self, slot: Slot) {
        self.cold.add(1);
        self.cold_bytes.add(record_bytes(slot));
    }

    /// A slot that names a record on flash is no longer linked.
    pub(crate) fn remove_cold(&self, slot: Slot) {
        self.cold.add(1u64.wrapping_neg());
        self.cold_bytes.add(record_bytes(slot).wrapping_neg());
    }

    /// An item is no longer linked, in the partition's `generation`.
    #[inline]
    pub(crate) fn remove(&self, state: &ItemState, generation: Generation) {
        self.count(state, 1u64.wrapping_neg());
        // After a restart, those that were dead before are not known.
        if state.is_flushed(generation) && self.dead.value() > 0 {
            self.dead.add(1u64.wrapping_neg());
        }
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
            self.count(old, 1u64.wrapping_neg());
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

    /// The counts that [`crate::check`] compares: items, bytes of keys, of values; slots on flash, bytes of their
    /// records; items by class.
    pub(crate) fn tally(&self) -> ([u64; 5], Vec<u64>) {
        let by_class = self.by_class.iter().map(|class| class.items.value()).collect();
        let sums = [&self.items, &self.key_bytes, &self.value_bytes, &self.cold, &self.cold_bytes];
        (sums.map(Counter::value), by_class)
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

/// Bytes of the record that a slot names, about.
fn record_bytes(slot: Slot) -> u64 {
    FlashSlot::decode(slot.0).map_or(0, |slot| slot.length.bytes_typical())
}
