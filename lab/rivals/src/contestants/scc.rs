//! scc: buckets, each with a lock for readers and writers.

use crate::{
    contestant::{Shared, Tally},
    workload::{Op, value},
};
use foldhash::fast::RandomState;
use scc::HashMap;

pub(super) type Map<const KEY: usize, const VALUE: usize> = HashMap<[u8; KEY], [u8; VALUE], RandomState>;

impl<const KEY: usize, const VALUE: usize> Shared<KEY, VALUE> for Map<KEY, VALUE> {
    const NAME: &'static str = "scc";

    fn with_capacity(items: usize) -> Self {
        Self::with_capacity_and_hasher(items, RandomState::default())
    }

    fn put(&self, key: [u8; KEY], value: [u8; VALUE]) {
        self.upsert_sync(key, value);
    }

    fn run(&self, batch: &[Op<KEY>], out: &mut [u8; VALUE], tally: &mut Tally) {
        for op in batch {
            if op.is_put {
                self.upsert_sync(op.key, value(&op.key));
                continue;
            }
            match self.read_sync(&op.key, |_, found| *out = *found) {
                Some(()) => tally.found(out),
                None => tally.missed(),
            }
        }
    }
}
