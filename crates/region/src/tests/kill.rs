//! Stops work on a heap before a given store, as the end of the process would.

use std::{
    cell::Cell,
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
};

thread_local! {
    /// Stores that are still done; `None` for no stop.
    static STORES_LEFT: Cell<Option<u64>> = const { Cell::new(None) };
}

/// The payload of the panic; no message is printed for it.
struct Killed;

pub(crate) fn before_store() {
    let Some(left) = STORES_LEFT.get() else { return };
    if left == 0 {
        STORES_LEFT.set(None);
        resume_unwind(Box::new(Killed));
    }
    STORES_LEFT.set(Some(left - 1));
}

/// Runs `work` up to `stores` stores; returns true if it ended by itself.
pub(super) fn after(stores: u64, work: impl FnOnce()) -> bool {
    STORES_LEFT.set(Some(stores));
    let result = catch_unwind(AssertUnwindSafe(work));
    STORES_LEFT.set(None);
    match result {
        Ok(()) => true,
        Err(payload) if payload.is::<Killed>() => false,
        Err(payload) => resume_unwind(payload),
    }
}
