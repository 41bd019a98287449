//! Segcache (NSDI'21): items with the same time to live are in segments, which are evicted as a whole.

use crate::{
    contestant::{Shared, Tally},
    workload::{Op, value},
};
use segcache::{Policy, Segcache, Value};
use std::time::Duration;

/// Memory beside key and value, in bytes: the item's header and its alignment.
const ITEM_OVERHEAD_BYTES: usize = 24;

/// Replaced items stay until their segment is evicted; room for so many copies of each.
const COPIES: usize = 2;

const SEGMENT_BYTES: i32 = 1 << 20;

pub(super) struct Map<const KEY: usize, const VALUE: usize>(Segcache);

impl<const KEY: usize, const VALUE: usize> Map<KEY, VALUE> {
    #[inline]
    fn insert(&self, key: &[u8; KEY], value: &[u8; VALUE]) {
        // An item without room is lost, as in any cache.
        let _ = self.0.insert(key, &value[..], None, Duration::ZERO);
    }
}

impl<const KEY: usize, const VALUE: usize> Shared<KEY, VALUE> for Map<KEY, VALUE> {
    const NAME: &'static str = "segcache";
    const IS_LOSSY: bool = true;

    fn with_capacity(items: usize) -> Self {
        let bytes = COPIES * items * (KEY + VALUE + ITEM_OVERHEAD_BYTES);
        // 7 of 8 slots hold items; the factor of 2 allows for unevenly filled buckets.
        let hash_power = (2 * items).next_power_of_two().ilog2().max(10) as u8;
        let builder = Segcache::builder().hash_power(hash_power).segment_size(SEGMENT_BYTES);
        let built = builder.heap_size(bytes.max(16 << 20)).eviction(Policy::Fifo).build();
        Self(built.expect("memory for Segcache"))
    }

    fn put(&self, key: [u8; KEY], value: [u8; VALUE]) {
        self.insert(&key, &value);
    }

    fn run(&self, batch: &[Op<KEY>], out: &mut [u8; VALUE], tally: &mut Tally) {
        for op in batch {
            if op.is_put {
                self.insert(&op.key, &value(&op.key));
                continue;
            }
            let Some(item) = self.0.get(&op.key) else {
                tally.missed();
                continue;
            };
            match item.value() {
                Value::Bytes(found) => out.copy_from_slice(found),
                Value::U64(found) => out[..8].copy_from_slice(&found.to_le_bytes()),
            }
            tally.found(out);
        }
    }
}
