//! papaya: open addressing without locks; old values are reclaimed when no reader is left.

use crate::{
    contestant::{Shared, Tally},
    workload::{Op, value},
};
use foldhash::fast::RandomState;
use papaya::HashMap;

pub(super) type Map<const KEY: usize, const VALUE: usize> = HashMap<[u8; KEY], [u8; VALUE], RandomState>;

impl<const KEY: usize, const VALUE: usize> Shared<KEY, VALUE> for Map<KEY, VALUE> {
    const NAME: &'static str = "papaya";

    fn with_capacity(items: usize) -> Self {
        Self::with_capacity_and_hasher(items, RandomState::default())
    }

    fn put(&self, key: [u8; KEY], value: [u8; VALUE]) {
        self.pin().insert(key, value);
    }

    fn run(&self, batch: &[Op<KEY>], out: &mut [u8; VALUE], tally: &mut Tally) {
        // One guard for a batch, as its authors recommend.
        let map = self.pin();
        for op in batch {
            if op.is_put {
                map.insert(op.key, value(&op.key));
                continue;
            }
            match map.get(&op.key).map(|found| *out = *found) {
                Some(()) => tally.found(out),
                None => tally.missed(),
            }
        }
    }
}
