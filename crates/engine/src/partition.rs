//! One partition: an index, a heap, and a lock for whoever writes.

use crate::{
    chain::{self, Place},
    index::Index,
    item::{ItemMeta, ItemState, PINNED, SHAPE, body, item_words},
    slot::Slot,
    stats::PartitionCounts,
};
use minos_base::{KeyHash, Seconds, SizeClass};
use minos_region::{Heap, Memory, Offset};
use minos_sync::{Pin, PinTable, SpinLock, Unpinned, words};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Twice the items for which there is one bucket, before the index grows.
const ITEMS_PER_TWO_BUCKETS: u64 = 9;

/// Insertions to let pass before growing is tried again, after there was no memory for it.
const GROWTH_PAUSE: u32 = 64;

/// There is no memory, or no room in the index, for another item. The old value is still there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("out of memory")]
pub struct OutOfMemory;

/// What readers and writers of a partition share.
#[derive(Debug)]
pub(crate) struct Partition {
    pub(crate) index: Index,
    pub(crate) writer: SpinLock<Writer>,
    /// Reads that were repeated because of a writer.
    pub(crate) retries: AtomicU64,
    /// Reads that took the lock in the end.
    pub(crate) fallbacks: AtomicU64,
}

/// What belongs to whoever holds the lock of a partition.
#[derive(Debug)]
pub(crate) struct Writer {
    pub(crate) index: Index,
    pub(crate) heap: Heap,
    pub(crate) pins: PinTable,
    pub(crate) counts: PartitionCounts,
    pub(crate) sweep: crate::sweep::Progress,
    /// The next CAS unique; every partition counts in steps of their number.
    cas_next: u64,
    cas_step: u64,
    growth_pause: u32,
    /// Slots of the chain that is being split.
    splitting: Vec<(Slot, bool)>,
}

impl Writer {
    pub(crate) fn new(index: Index, heap: Heap, partition: usize, partitions: usize) -> Self {
        Self {
            index,
            heap,
            pins: PinTable::default(),
            counts: PartitionCounts::default(),
            sweep: crate::sweep::Progress::default(),
            // Never zero, which means "no CAS" in the protocol.
            cas_next: (partitions + partition) as u64,
            cas_step: partitions as u64,
            growth_pause: 0,
            splitting: Vec::new(),
        }
    }

    /// The place of the item with this key, dead or alive.
    pub(crate) fn find(&self, memory: &Memory, hash: KeyHash, key: &[u8]) -> Option<Place> {
        let region = memory.region();
        let head = self.head(memory, hash);
        chain::places(region, head).find(|place| {
            let slot = place.slot(region);
            slot.has_tag(hash.tag()) && has_key(memory, slot.item(), key)
        })
    }

    /// A CAS unique that no other item of the store has had.
    pub(crate) fn next_cas(&mut self) -> u64 {
        let cas = self.cas_next;
        self.cas_next += self.cas_step;
        cas
    }

    /// Writes the header of a new item whose memory is `item`.
    pub(crate) fn describe(
        &mut self,
        memory: &Memory,
        item: Offset,
        meta: &ItemMeta,
        sizes: (usize, u64),
        now: Seconds,
    ) -> u64 {
        let cas = meta.cas.unwrap_or_else(|| self.next_cas());
        let generation = self.index.generation(memory.region());
        ItemState::new(meta, cas, sizes.0, sizes.1, generation, now).store(memory.region(), item);
        cas
    }

    /// Links an item whose header is written, in place of `old` if there is one.
    pub(crate) fn link(
        &mut self,
        memory: &Memory,
        hash: KeyHash,
        hasher: impl Fn(&[u8]) -> KeyHash,
        item: Offset,
        old: Option<Place>,
    ) -> Result<Place, OutOfMemory> {
        let region = memory.region();
        let state = ItemState::load(region, item, 0);
        let slot = Slot::new(hash, state.value_bytes() as u64, item);
        let place = match old {
            Some(place) => {
                let replaced = place.slot(region);
                chain::replace(region, place, slot);
                self.retire(memory, replaced);
                place
            }
            None => {
                self.grow_if_due(memory, hasher);
                let head = self.head(memory, hash);
                chain::append(memory, &self.index, head, slot).ok_or(OutOfMemory)?
            }
        };
        self.counts.add(&state, slot);
        Ok(place)
    }

    /// Takes an item out of the index and gives its memory back, when nobody reads it any more.
    pub(crate) fn unlink(&mut self, memory: &Memory, place: Place) {
        let slot = place.slot(memory.region());
        chain::remove(memory.region(), &self.index, place);
        self.retire(memory, slot);
    }

    /// Counts one more reader of an item; `None` when too many items are pinned.
    pub(crate) fn pin(&mut self, memory: &Memory, item: Offset) -> Option<Pin> {
        let word = memory.region().word(item.plus(SHAPE));
        // Relaxed: the bit is for holders of the lock.
        let shape = word.load(Relaxed);
        let pin = self.pins.pin(item.words(), shape & PINNED != 0)?;
        word.store(shape | PINNED, Relaxed);
        Some(pin)
    }

    pub(crate) fn unpin(&mut self, memory: &Memory, item: Offset, pin: &Pin) {
        match self.pins.unpin(pin) {
            Unpinned::StillPinned => {}
            Unpinned::Free => {
                let shape = memory.region().word(item.plus(SHAPE));
                shape.store(shape.load(Relaxed) & !PINNED, Relaxed);
            }
            Unpinned::Retired => memory.free(&mut self.heap, item),
        }
    }

    pub(crate) fn head(&self, memory: &Memory, hash: KeyHash) -> Offset {
        let region = memory.region();
        self.index.bucket_of(region, self.index.buckets(region), hash)
    }

    fn retire(&mut self, memory: &Memory, slot: Slot) {
        let item = slot.item();
        let state = ItemState::load(memory.region(), item, 0);
        self.counts.remove(&state, slot);
        if !(state.is_pinned() && self.pins.retire(item.words())) {
            memory.free(&mut self.heap, item);
        }
    }

    /// Splits one chain if there are more items than the buckets are meant for.
    fn grow_if_due(&mut self, memory: &Memory, hasher: impl Fn(&[u8]) -> KeyHash) {
        let region = memory.region();
        let buckets = self.index.buckets(region);
        if self.counts.items * 2 < buckets * ITEMS_PER_TWO_BUCKETS {
            return;
        }
        if self.growth_pause > 0 {
            self.growth_pause -= 1;
            return;
        }
        let Some(new) = self.index.prepare(memory) else {
            self.growth_pause = GROWTH_PAUSE;
            return;
        };
        let old = self.index.split_source(region);
        // All misses at once, then the hashing: a split costs about one miss, not one an item.
        chain::places(region, old).for_each(|place| region.prefetch(place.slot(region).item()));
        self.splitting.clear();
        self.splitting.extend(chain::places(region, old).map(|place| {
            let slot = place.slot(region);
            (slot, Index::moves(buckets, hasher(key_of(memory, slot.item()))))
        }));
        chain::split(region, &self.index, old, new, &self.splitting);
        self.counts.splits += 1;
    }
}

/// Memory for an item that is read without a lock, or for a large one.
pub(crate) fn allocate(
    memory: &Memory,
    heap: &mut Heap,
    class_optimistic_max: SizeClass,
    sizes: (usize, u64),
) -> Option<Offset> {
    let words = item_words(sizes.0, sizes.1);
    if SizeClass::of(sizes.1) <= class_optimistic_max {
        return memory.allocate_shared(heap, words);
    }
    memory.allocate_settled(words).map(|settled| match settled {
        minos_region::Settled::Exclusive(exclusive) => exclusive.share(),
        minos_region::Settled::Shared(chunk) => chunk,
    })
}

/// The key of a linked item; under the partition's lock or a pin.
pub(crate) fn key_of(memory: &Memory, item: Offset) -> &[u8] {
    let state = ItemState::load(memory.region(), item, 0);
    memory.region().settled_bytes(body(item), 0, state.key_bytes())
}

fn has_key(memory: &Memory, item: Offset, key: &[u8]) -> bool {
    let region = memory.region();
    let state = ItemState::load(region, item, 0);
    state.key_bytes() == key.len() && words::eq_bytes(region.words(body(item), state.body_words()), 0, key)
}
