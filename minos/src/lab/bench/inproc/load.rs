//! Filling a table before it is measured.

use std::ops::Range;

use minos_base::{KeyHash, limits::BURST_MAX};
use minos_engine::{Access, Engine, ItemMeta, Mode};
use minos_workload::Workload;

use super::seat::{NOW, Seat};

/// Memory for each item beside its key and value, in bytes: header, heap or log, and its share of the index.
const OVERHEAD_BYTES: u64 = 80;

/// Memory of a table beside its items, in bytes: partly filled arenas and segments.
const SPARE_BYTES: u64 = 24 << 20;

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Loaded {
    pub(super) items: u64,
    /// Items that were refused for lack of memory.
    pub(super) refused: u64,
}

/// The sizes of all items.
#[derive(Clone, Copy, Debug)]
pub(super) struct Extent {
    /// Bytes of all keys and values.
    pub(super) bytes: u64,
    pub(super) value_bytes_max: u64,
}

impl Extent {
    pub(super) fn of(workload: &Workload) -> Self {
        let mut extent = Self { bytes: 0, value_bytes_max: 0 };
        let mut key = Vec::new();
        for item in 0..workload.item_count() {
            key.clear();
            workload.write_key(item, &mut key);
            let value_bytes = workload.value_bytes(item);
            extent.bytes += key.len() as u64 + value_bytes;
            extent.value_bytes_max = extent.value_bytes_max.max(value_bytes);
        }
        extent
    }

    /// Memory for `items` items: no store refuses one of them, and a cache keeps nearly all.
    pub(super) fn memory_bytes(&self, items: u64) -> u64 {
        // An eighth of a cache is reserved for large values; the rest allows for fragmentation.
        let items_bytes = (self.bytes + items * OVERHEAD_BYTES) * 4 / 3;
        items_bytes + SPARE_BYTES + 4 * self.value_bytes_max
    }
}

/// Stores this seat's share of the items, marked as fetched: their first reads then write nothing.
pub(super) fn load<M: Mode, A: Access>(seat: &Seat<'_, M, A>, workload: &Workload) -> Loaded {
    let mut loaded = Loaded::default();
    let mut waiting = Waiting::default();
    for item in 0..workload.item_count() {
        let start = waiting.keys.len();
        workload.write_key(item, &mut waiting.keys);
        let hash = seat.engine.hash(&waiting.keys[start..]);
        if !seat.loads(hash) {
            waiting.keys.truncate(start);
            continue;
        }
        seat.engine.prefetch_bucket(hash);
        let key = start..waiting.keys.len();
        waiting.items.push((hash, key, workload.value_bytes(item) as usize));
        if waiting.items.len() == BURST_MAX {
            waiting.store(seat.engine, &mut loaded);
        }
    }
    waiting.store(seat.engine, &mut loaded);
    loaded
}

/// Items whose buckets are being prefetched.
#[derive(Default)]
struct Waiting {
    keys: Vec<u8>,
    /// Hash, place of the key, and bytes of the value of each.
    items: Vec<(KeyHash, Range<usize>, usize)>,
    value: Vec<u8>,
}

impl Waiting {
    fn store<M: Mode, A: Access>(&mut self, engine: &Engine<M, A>, loaded: &mut Loaded) {
        for (hash, key, value_bytes) in self.items.drain(..) {
            self.value.resize(value_bytes, b'm');
            // As in the driver, a value begins with the hash of its key.
            let marked = value_bytes.min(8);
            self.value[..marked].copy_from_slice(&hash.0.to_le_bytes()[..marked]);
            let mut entry = engine.entry(hash, &self.keys[key], NOW);
            loaded.items += 1;
            match entry.insert(&[&self.value], ItemMeta::default()) {
                Ok(_) => entry.mark_fetched(NOW),
                Err(_) => loaded.refused += 1,
            }
        }
        self.keys.clear();
    }
}
