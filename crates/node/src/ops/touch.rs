//! Changes of an item's expiry.

use minos_base::Exptime;
use minos_engine::{Entry, Mode};

use super::{context::Context, facts::Facts};

/// Changes an item's expiry and returns the old one; `None` if there is no item.
pub(crate) fn touch<M: Mode, P>(
    cx: &Context<'_, M, P>,
    entry: &mut Entry<'_, M>,
    exptime: Exptime,
) -> Option<Facts> {
    let facts = entry.item().map(|item| Facts::from(&*item))?;
    entry.set_expiry(exptime.on(cx.clock, cx.now));
    entry.mark_fetched(cx.now);
    Some(facts)
}

/// Counts a touch.
pub(crate) fn count_touch<M: Mode, P>(cx: &Context<'_, M, P>, found: bool) {
    cx.counters.cmd_touch.count();
    if found { cx.counters.touch_hits.count() } else { cx.counters.touch_misses.count() }
}
