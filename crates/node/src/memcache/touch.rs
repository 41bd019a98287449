//! `touch`.

use minos_base::KeyHash;
use minos_engine::Mode;
use minos_proto::memcache::{Reply, Touch, text};

use super::executed::Executed;
use crate::ops::{self, Context};

/// Changes an item's expiry.
pub(super) fn execute<M: Mode, P>(
    cx: &Context<'_, M, P>,
    request: &Touch<'_>,
    hash: KeyHash,
    key: &[u8],
    reply: Reply<'_>,
    tx: &mut Vec<u8>,
) -> Executed<M> {
    let touched = ops::touch(cx, &mut cx.store.entry(hash, key, cx.now), request.exptime).is_some();
    ops::count_touch(cx, touched);
    if !reply.is_silent() {
        tx.extend_from_slice(if touched { text::TOUCHED } else { text::NOT_FOUND });
    }
    Executed::DONE
}
