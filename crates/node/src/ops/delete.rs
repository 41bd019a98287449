//! Deletion.

use minos_base::Exptime;
use minos_engine::{Entry, Mode};

use super::context::Context;

/// A deletion without its key.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DeleteOperation {
    /// Required CAS unique of the item.
    pub(crate) unique: Option<u64>,
    /// Keep the item, marked stale and with a new CAS unique.
    pub(crate) invalidate: bool,
    /// New expiry of the item that is kept.
    pub(crate) exptime: Option<Exptime>,
}

/// How a deletion ended.
pub(crate) enum Deleted {
    /// The item is deleted or marked stale.
    Done,
    /// There is no such item.
    NotFound,
    /// The item's CAS unique differs.
    OtherCas,
}

/// Removes the item of `entry` or marks it stale, and counts.
pub(crate) fn delete<M: Mode, P>(
    cx: &Context<'_, M, P>,
    operation: &DeleteOperation,
    entry: &mut Entry<'_, M>,
) -> Deleted {
    let cas = entry.item().map(|item| item.cas());
    match cas {
        None => {
            cx.counters.delete_misses.count();
            Deleted::NotFound
        }
        Some(cas) if operation.unique.is_some_and(|unique| unique != cas) => {
            cx.counters.delete_misses.count();
            Deleted::OtherCas
        }
        Some(_) if operation.invalidate => {
            if let Some(exptime) = operation.exptime {
                entry.set_expiry(exptime.on(cx.clock, cx.now));
            }
            entry.set_stale(true);
            // The next client that reads the item wins the right to store it anew.
            entry.set_win_sent(false);
            entry.renew_cas();
            Deleted::Done
        }
        Some(_) => {
            entry.remove();
            cx.counters.delete_hits.count();
            Deleted::Done
        }
    }
}
