//! hashbrown with foldhash: the fastest single-threaded map, and the same behind a mutex.

use crate::{
    contestant::{Contestant, Setup, Shared, Tally, Worker},
    workload::{Op, Routing, load_order, value},
};
use foldhash::fast::RandomState;
use hashbrown::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

type Map<const KEY: usize, const VALUE: usize> = HashMap<[u8; KEY], [u8; VALUE], RandomState>;

/// Without any lock, for one thread.
pub(super) fn alone<const KEY: usize, const VALUE: usize>(setup: &Setup) -> Contestant<KEY> {
    let mut map = Map::with_capacity_and_hasher(setup.items as usize, RandomState::default());
    map.extend(load_order(setup.items).map(|key: [u8; KEY]| (key, value(&key))));
    Contestant {
        name: "hashbrown, one thread".to_owned(),
        routing: Routing::Any,
        is_lossy: false,
        workers: vec![Box::new(Alone::<KEY, VALUE> { map, out: [0; VALUE] })],
    }
}

struct Alone<const KEY: usize, const VALUE: usize> {
    map: Map<KEY, VALUE>,
    out: [u8; VALUE],
}

impl<const KEY: usize, const VALUE: usize> Worker<KEY> for Alone<KEY, VALUE> {
    fn run(&mut self, ops: &[Op<KEY>]) -> Tally {
        let mut tally = Tally::default();
        for op in ops {
            run_one(&mut self.map, op, &mut self.out, &mut tally);
        }
        tally
    }
}

/// Behind one mutex, taken for each operation.
pub(super) struct Locked<const KEY: usize, const VALUE: usize>(Mutex<Map<KEY, VALUE>>);

impl<const KEY: usize, const VALUE: usize> Locked<KEY, VALUE> {
    fn lock(&self) -> MutexGuard<'_, Map<KEY, VALUE>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<const KEY: usize, const VALUE: usize> Shared<KEY, VALUE> for Locked<KEY, VALUE> {
    const NAME: &'static str = "hashbrown, one mutex";

    fn with_capacity(items: usize) -> Self {
        Self(Mutex::new(Map::with_capacity_and_hasher(items, RandomState::default())))
    }

    fn put(&self, key: [u8; KEY], value: [u8; VALUE]) {
        self.lock().insert(key, value);
    }

    fn run(&self, batch: &[Op<KEY>], out: &mut [u8; VALUE], tally: &mut Tally) {
        for op in batch {
            run_one(&mut self.lock(), op, out, tally);
        }
    }
}

#[inline]
fn run_one<const KEY: usize, const VALUE: usize>(
    map: &mut Map<KEY, VALUE>,
    op: &Op<KEY>,
    out: &mut [u8; VALUE],
    tally: &mut Tally,
) {
    if op.is_put {
        map.insert(op.key, value(&op.key));
        return;
    }
    match map.get(&op.key) {
        Some(found) => {
            *out = *found;
            tally.found(out);
        }
        None => tally.missed(),
    }
}
