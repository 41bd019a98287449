//! quick_cache: shards with S3-FIFO, with room for twice the items, so that it need not evict.

use crate::{
    contestant::{Shared, Tally},
    workload::{Op, value},
};
use foldhash::fast::RandomState;
use quick_cache::{
    UnitWeighter,
    sync::{Cache, DefaultLifecycle},
};

pub(super) type Map<const KEY: usize, const VALUE: usize> =
    Cache<[u8; KEY], [u8; VALUE], UnitWeighter, RandomState>;

impl<const KEY: usize, const VALUE: usize> Shared<KEY, VALUE> for Map<KEY, VALUE> {
    const NAME: &'static str = "quick_cache";
    const IS_LOSSY: bool = true;

    fn with_capacity(items: usize) -> Self {
        let (hasher, lifecycle) = (RandomState::default(), DefaultLifecycle::default());
        Self::with(items, 2 * items as u64, UnitWeighter, hasher, lifecycle)
    }

    fn put(&self, key: [u8; KEY], value: [u8; VALUE]) {
        self.insert(key, value);
    }

    fn run(&self, batch: &[Op<KEY>], out: &mut [u8; VALUE], tally: &mut Tally) {
        for op in batch {
            if op.is_put {
                self.insert(op.key, value(&op.key));
                continue;
            }
            match self.get(&op.key) {
                Some(found) => {
                    *out = found;
                    tally.found(out);
                }
                None => tally.missed(),
            }
        }
    }
}
