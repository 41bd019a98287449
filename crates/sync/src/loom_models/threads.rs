//! A cell that one thread gives up and the next one opens.

use super::{beside, explore, seen_before_unlinking};
use crate::{ThreadCell, ThreadGuard, version};
use loom::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    thread,
};

fn next_owner_beside(give_up: fn(&ThreadCell<u64>)) {
    explore(move || {
        let cell = Arc::new(ThreadCell::new(0));
        *cell.enter() = 1;
        let next = beside(&cell, |cell| {
            assert!(cell.is_free() || cell.try_enter().is_none(), "two owners");
            while !cell.is_free() {
                thread::yield_now();
            }
            *cell.enter()
        });
        *cell.enter() += 1;
        give_up(&cell);
        assert_eq!(next.join().unwrap(), 2);
    });
}

#[test]
fn the_next_owner_sees_what_the_one_before_did() {
    next_owner_beside(ThreadCell::give_up);
}

#[test]
#[should_panic(expected = "Causality violation")]
fn control_without_release_owners_race() {
    next_owner_beside(ThreadCell::give_up_without_order);
}

/// An owner unlinks a chunk and gives its cell up; the next owner writes to the chunk; a reader that still had the offset
/// must notice.
fn reuse_by_the_next_owner(enter: fn(&ThreadCell<bool>) -> ThreadGuard<'_, bool>) {
    explore(move || {
        let shared = Arc::new((AtomicU64::new(0), AtomicU64::new(1), ThreadCell::new(false)));
        drop(shared.2.enter());
        let next = beside(&shared, move |(_, chunk, cell)| {
            if cell.is_free() && *enter(cell) {
                chunk.store(2, Ordering::Relaxed);
            }
        });
        let reader = beside(&shared, |(version, chunk, _)| {
            let Some(seen) = version::begin_read(version) else { return };
            let value = chunk.load(Ordering::Relaxed);
            if seen_before_unlinking(version, seen) {
                assert_eq!(value, 1, "stale");
            }
        });
        let (version, _, cell) = &*shared;
        let mut is_unlinked = cell.enter();
        version::begin_write(version);
        version::end_write(version);
        *is_unlinked = true;
        drop(is_unlinked);
        cell.give_up();
        next.join().unwrap();
        reader.join().unwrap();
    });
}

#[test]
fn memory_from_the_owner_before_is_noticed() {
    reuse_by_the_next_owner(ThreadCell::enter);
}

#[test]
#[should_panic(expected = "stale")]
fn control_owner_without_fence() {
    reuse_by_the_next_owner(ThreadCell::enter_without_fence);
}
