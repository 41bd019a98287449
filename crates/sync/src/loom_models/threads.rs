//! A cell that one thread gives up and the next one opens.

use super::{beside, explore};
use crate::ThreadCell;
use loom::{sync::Arc, thread};

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
