//! Dropping everything, now or later.

use std::sync::atomic::{AtomicU32, Ordering};

use minos_base::{Exptime, Seconds};
use minos_engine::{Engine, Mode};
use minos_tier::SyncId;

use super::context::{Admin, Context};

/// Drops all items, now or at a later time.
///
/// As in memcached, a later flush replaces an earlier one that has not happened yet, a delayed one happens a
/// second early, and one due before the server's start never happens.
///
/// Above flash, returns the removal that the reply is to wait for.
pub(crate) fn flush<M: Mode, P>(cx: &Context<'_, M, P>, delay: Exptime) -> Option<SyncId> {
    if let Some(emptying) = cx.fetched.and_then(|fetched| fetched.emptying.take()) {
        return Some(emptying).filter(|&emptying| !cx.admin.is_emptied(emptying));
    }
    cx.counters.cmd_flush.count();
    let due = if delay.0 > 0 { delay.on(cx.clock, cx.now) } else { cx.now.saturating_add(1) } - 1;
    if due == 0 || due > cx.now {
        cx.admin.flush_at(due);
        return None;
    }
    cx.admin.flush_at(0);
    let emptying = cx.admin.empty_flash();
    if emptying.is_none() {
        cx.store.flush();
    }
    emptying
}

/// Drops all items if the time `due`, in seconds of the store's clock, has come. One caller does so, sets `due` to
/// zero, which means never, and gets true.
pub(crate) fn flush_if_due<M: Mode>(
    due: &AtomicU32,
    (store, admin): (&Engine<M>, &dyn Admin),
    now: Seconds,
) -> bool {
    // Relaxed: a thread that sees the new time late flushes late, within the same second.
    let due_s = due.load(Ordering::Relaxed);
    if due_s == 0
        || due_s > now
        || due.compare_exchange(due_s, 0, Ordering::Relaxed, Ordering::Relaxed).is_err()
    {
        return false;
    }
    if admin.empty_flash().is_none() {
        store.flush();
    }
    true
}
