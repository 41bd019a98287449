//! Reads: without a lock, bounded, then under it (MICA §4.3.2).

use crate::{
    chain::following,
    index::BUCKET_WORDS,
    item::{HEADER_WORDS, ItemState, ItemView, SHAPE, body},
    partition::{Partition, Writer},
    pinned::BorrowedPin,
    slot::Slot,
    store::Store,
};
use minos_base::{KeyHash, Seconds, SizeClass};
use minos_region::{Offset, Region};
use minos_sync::{version, words};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Reads that are tried without a lock.
const ATTEMPTS_MAX: u32 = 16;

/// Buckets of a chain that are walked without a lock.
///
/// A walk that races with a split may wander over spare buckets of other chains; this bounds it.
const CHAIN_BUCKETS_MAX: usize = 32;

/// What one attempt without a lock has shown.
enum Attempt<T> {
    Found(T),
    Missing,
    /// A writer was there.
    Disturbed,
    /// It has to be looked at under the lock: a large item, or a very long chain.
    Locked,
}

impl Store {
    /// Reads the live item with this key; `None` if there is none.
    ///
    /// `f` sees the item before it is known that no writer interfered. It may run more than once and must
    /// discard what it did before (begin by truncating its output). Attempts are bounded; after them it runs
    /// under the partition's lock, which is fair: it must not use the store. Lengths are right whenever it runs.
    ///
    /// Values above the store's optimistic bound are read under a pin, in which case `f` runs once.
    ///
    /// The first read of an item, and one a minute, is written down (`was_fetched`, `last_access`), unless
    /// a writer is busy in the partition just then.
    #[inline]
    pub fn read<R>(
        &self,
        hash: KeyHash,
        key: &[u8],
        now: Seconds,
        mut f: impl FnMut(&ItemView<'_>) -> R,
    ) -> Option<R> {
        let partition = self.partition(hash);
        for _ in 0..ATTEMPTS_MAX {
            match self.attempt(partition, hash, key, now, &mut f) {
                Attempt::Found((result, due)) => {
                    if let Some(item) = due {
                        self.record_access(partition, hash, key, item, now);
                    }
                    return Some(result);
                }
                Attempt::Missing => return None,
                Attempt::Disturbed => disturbed(partition),
                Attempt::Locked => break,
            }
        }
        self.read_locked(partition, hash, key, now, f)
    }

    /// The size class of the value with this key, from the index alone: the item is not touched.
    ///
    /// Keys are told apart by their tags only, so that rarely the class of another item is returned, or
    /// one for a key that is not there. `None` also if writers leave no moment for an answer.
    #[inline]
    pub fn size_class(&self, hash: KeyHash) -> Option<SizeClass> {
        self.tag_match(hash).and_then(Slot::class)
    }

    /// Stage 2 of a lookup: asks for the cache line of the key's item, whose bucket should be near by now.
    #[inline]
    pub fn prefetch_item(&self, hash: KeyHash) {
        let region = self.memory().region();
        let index = &self.partition(hash).index;
        // No version is looked at: whatever the slot says, asking for a line does no harm.
        let head = index.bucket_of(region, index.buckets(region), hash);
        if let Some(slot) = chain_tag_match(region, head, hash.tag()) {
            // Key and value of small items begin behind header and tag, often on the line after.
            region.prefetch(slot.item());
            region.prefetch(slot.item().plus(HEADER_WORDS as u64 + 1));
        }
    }

    #[inline]
    fn attempt<R>(
        &self,
        partition: &Partition,
        hash: KeyHash,
        key: &[u8],
        now: Seconds,
        f: &mut impl FnMut(&ItemView<'_>) -> R,
    ) -> Attempt<(R, Option<Offset>)> {
        let region = self.memory().region();
        let index = &partition.index;
        let buckets = index.buckets(region);
        let mut bucket = bucket_words(region, index.bucket_of(region, buckets, hash));
        let version = &bucket[0];
        let Some(seen) = version::begin_read(version) else { return Attempt::Disturbed };
        let mut next = following(u64::from(seen.payload()) << 32);
        for _ in 0..CHAIN_BUCKETS_MAX {
            for word in &bucket[1..] {
                let slot = Slot(word.load(Relaxed));
                if !slot.has_tag(hash.tag()) {
                    continue;
                }
                if slot.class_index() > self.class_optimistic_max.index() {
                    return Attempt::Locked;
                }
                let state = ItemState::load(region, slot.item(), now);
                if state.key_bytes() != key.len() {
                    continue;
                }
                // From here on the lengths are those of a linked item, so that they can be used.
                if !version::still(version, seen) {
                    return Attempt::Disturbed;
                }
                let body = region.words(body(slot.item()), state.body_words());
                if !words::eq_bytes(body, 0, key) {
                    continue;
                }
                if !state.is_live(index.generation(region)) {
                    return missing(version::still(version, seen));
                }
                let result = f(&ItemView::new(state, body));
                if !version::still(version, seen) {
                    return Attempt::Disturbed;
                }
                return Attempt::Found((result, state.is_access_due().then(|| slot.item())));
            }
            let Some(spare) = next else {
                // The key may have moved to a new bucket while this one was searched.
                return missing(version::still(version, seen) && index.buckets(region) == buckets);
            };
            bucket = bucket_words(region, spare);
            next = following(bucket[0].load(Relaxed));
        }
        Attempt::Locked
    }

    #[cold]
    fn read_locked<R>(
        &self,
        partition: &Partition,
        hash: KeyHash,
        key: &[u8],
        now: Seconds,
        mut f: impl FnMut(&ItemView<'_>) -> R,
    ) -> Option<R> {
        let mut writer = partition.writer.lock();
        let (item, state) = self.find_live(&writer, hash, key, now)?;
        let region = self.memory().region();
        let view = ItemView::new(state, region.words(body(item), state.body_words()));
        note_access(region, item, &state, now);
        if SizeClass::of(state.value_bytes() as u64) <= self.class_optimistic_max {
            partition.fallbacks.fetch_add(1, Relaxed);
            return Some(f(&view));
        }
        let Some(pin) = writer.pin(self.memory(), item) else { return Some(f(&view)) };
        drop(writer);
        let _pin = BorrowedPin { store: self, hash, item, pin };
        Some(f(&view))
    }

    /// The live item with this key.
    pub(crate) fn find_live(
        &self,
        writer: &Writer,
        hash: KeyHash,
        key: &[u8],
        now: Seconds,
    ) -> Option<(Offset, ItemState)> {
        let region = self.memory().region();
        let item = writer.find(self.memory(), hash, key)?.slot(region).item();
        let state = ItemState::load(region, item, now);
        state.is_live(writer.index.generation(region)).then_some((item, state))
    }

    /// Writes down that `item` was read, if it still is the item of this key and nobody is writing.
    #[cold]
    fn record_access(&self, partition: &Partition, hash: KeyHash, key: &[u8], item: Offset, now: Seconds) {
        let Some(writer) = partition.writer.try_lock() else { return };
        if let Some((found, state)) = self.find_live(&writer, hash, key, now)
            && found == item
        {
            note_access(self.memory().region(), item, &state, now);
        }
    }

    /// The first slot with the tag of `hash`.
    #[inline]
    fn tag_match(&self, hash: KeyHash) -> Option<Slot> {
        let region = self.memory().region();
        let index = &self.partition(hash).index;
        for _ in 0..ATTEMPTS_MAX {
            let buckets = index.buckets(region);
            let head = index.bucket_of(region, buckets, hash);
            let version = region.word(head);
            let Some(seen) = version::begin_read(version) else {
                std::hint::spin_loop();
                continue;
            };
            let slot = chain_tag_match(region, head, hash.tag());
            if version::still(version, seen) && (slot.is_some() || index.buckets(region) == buckets) {
                return slot;
            }
        }
        None
    }
}

#[inline]
fn chain_tag_match(region: &Region, head: Offset, tag: u16) -> Option<Slot> {
    let mut bucket = bucket_words(region, head);
    for _ in 0..CHAIN_BUCKETS_MAX {
        for word in &bucket[1..] {
            let slot = Slot(word.load(Relaxed));
            if slot.has_tag(tag) {
                return Some(slot);
            }
        }
        bucket = bucket_words(region, following(bucket[0].load(Relaxed))?);
    }
    None
}

/// The words of a bucket, as an array so that walking it needs no further checks.
#[inline]
fn bucket_words(region: &Region, bucket: Offset) -> &[AtomicU64; BUCKET_WORDS] {
    region.array(bucket)
}

#[inline]
fn missing<T>(is_sure: bool) -> Attempt<T> {
    if is_sure { Attempt::Missing } else { Attempt::Disturbed }
}

#[cold]
fn disturbed(partition: &Partition) {
    partition.retries.fetch_add(1, Relaxed);
    std::hint::spin_loop();
}

/// Marks an item as fetched now, if that is worth a write. Under the partition's lock.
pub(crate) fn note_access(region: &Region, item: Offset, state: &ItemState, now: Seconds) {
    if state.is_access_due() {
        shape_word(region, item).store(state.accessed(now), Relaxed);
    }
}

fn shape_word(region: &Region, item: Offset) -> &AtomicU64 {
    region.word(item.plus(SHAPE))
}
