//! `touch`.

use minos_base::KeyHash;
use minos_command::Touch;
use minos_engine::Mode;
use minos_proto::memcache::{Reply, text};

use super::{Context, Executed, Outcome};

/// Gives an item another expiry.
pub(super) fn execute<M: Mode, P>(
    cx: &Context<'_, M, P>,
    request: &Touch<'_>,
    hash: KeyHash,
    key: &[u8],
    reply: Reply<'_>,
    tx: &mut Vec<u8>,
) -> Executed<M> {
    let mut entry = cx.store.entry(hash, key, cx.now);
    let found = entry.item().is_some();
    cx.counters.cmd_touch.count();
    let answer = if found {
        entry.set_expiry(request.exptime.on(cx.clock, cx.now));
        entry.mark_fetched(cx.now);
        cx.counters.touch_hits.count();
        text::TOUCHED
    } else {
        cx.counters.touch_misses.count();
        text::NOT_FOUND
    };
    drop(entry);
    if !reply.is_silent() {
        tx.extend_from_slice(answer);
    }
    Outcome::Done.into()
}
