//! `touch`.

use minos_base::KeyHash;
use minos_command::{Exptime, Touch};
use minos_engine::{Entry, Mode};
use minos_proto::memcache::{Reply, text};

use super::{Context, Executed, Outcome, get, item::Facts};

/// Gives an item another expiry.
pub(super) fn execute<M: Mode, P>(
    cx: &Context<'_, M, P>,
    request: &Touch<'_>,
    hash: KeyHash,
    key: &[u8],
    reply: Reply<'_>,
    tx: &mut Vec<u8>,
) -> Executed<M> {
    let touched = touch(cx, &mut cx.store.entry(hash, key, cx.now), request.exptime).is_some();
    get::count_touch(cx, touched);
    if !reply.is_silent() {
        tx.extend_from_slice(if touched { text::TOUCHED } else { text::NOT_FOUND });
    }
    Outcome::Done.into()
}

/// Gives an item another expiry, and says what it was before; `None` if there is no item.
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
