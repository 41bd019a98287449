//! Dropping everything, now or later.

use std::sync::atomic::{AtomicU32, Ordering};

use minos_base::{Exptime, Seconds};
use minos_engine::{Engine, Mode};

use super::Context;

/// Drops everything, or says when that is to happen.
///
/// As in memcached, a later flush replaces an earlier one that has not happened yet, a delayed one
/// happens a second early, and one whose time lay before the server's start happens never.
pub(crate) fn flush<M: Mode, P>(cx: &Context<'_, M, P>, delay: Exptime) {
    cx.counters.cmd_flush.count();
    let due = if delay.0 > 0 { delay.on(cx.clock, cx.now) } else { cx.now.saturating_add(1) } - 1;
    if due == 0 || due > cx.now {
        cx.admin.flush_at(due);
    } else {
        cx.admin.flush_at(0);
        cx.store.flush();
    }
}

/// Drops everything if `due`, in seconds of the store's clock, has come. One of the callers does it, and
/// sets `due` to zero, which is never.
pub(crate) fn flush_if_due<M: Mode>(due: &AtomicU32, store: &Engine<M>, now: Seconds) {
    // Relaxed: whoever sees the wish late flushes late, within the same second.
    let wish = due.load(Ordering::Relaxed);
    if wish != 0 && wish <= now && due.compare_exchange(wish, 0, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    {
        store.flush();
    }
}
