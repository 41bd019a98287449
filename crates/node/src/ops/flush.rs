//! Dropping everything, now or later.

use std::sync::atomic::{AtomicU32, Ordering};

use minos_base::{Exptime, Seconds};
use minos_engine::{Access, Engine, Mode};
use minos_sched::WorkerId;
use minos_tier::SyncId;

use super::context::{Admin, Context, Placement};

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
    if is_later(cx, delay) {
        cx.admin.flush_at(due(cx, delay));
        return None;
    }
    cx.admin.flush_at(0);
    let emptying = cx.admin.empty_flash();
    if emptying.is_none() {
        cx.store.flush();
    }
    emptying
}

/// As [`flush`], one owner of partitions after another. Returns the worker that goes on, which is given `flushed` again:
/// the owners that have dropped theirs.
pub(crate) fn flush_in_turn<M: Mode, P: Placement>(
    cx: &Context<'_, M, P>,
    delay: Exptime,
    flushed: &mut usize,
) -> Option<WorkerId> {
    if is_later(cx, delay) {
        flush(cx, delay);
        return None;
    }
    let here = cx.placement.worker().index();
    if here != *flushed {
        return Some(WorkerId(*flushed as u16));
    }
    if here == 0 {
        cx.counters.cmd_flush.count();
        cx.admin.flush_at(0);
    }
    cx.store.flush_of(here);
    *flushed = (here + 1) % cx.store.owners();
    Some(WorkerId(*flushed as u16)).filter(|_| *flushed > 0)
}

/// The second of a flush on the store's clock.
fn due<M: Mode, P>(cx: &Context<'_, M, P>, delay: Exptime) -> Seconds {
    (if delay.0 > 0 { delay.on(cx.clock, cx.now) } else { cx.now.saturating_add(1) }) - 1
}

/// True if a flush happens later, or never.
fn is_later<M: Mode, P>(cx: &Context<'_, M, P>, delay: Exptime) -> bool {
    let due = due(cx, delay);
    due == 0 || due > cx.now
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
    // Owners of partitions see it by the number of such flushes.
    if !M::Access::IS_BY_THREAD && admin.empty_flash().is_none() {
        store.flush();
    }
    true
}
