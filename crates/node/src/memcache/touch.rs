//! `touch`.

use minos_base::KeyHash;
use minos_engine::Mode;
use minos_proto::memcache::{Reply, Touch, text};

use super::session::Executed;
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
    let touched = match ops::entry(cx, hash, key) {
        Ok(mut entry) => ops::touch(cx, &mut entry, request.exptime).is_some(),
        Err(cold) => return Executed::cold(cold, (hash, key), reply, tx),
    };
    ops::count_touch(cx, touched);
    if !reply.is_silent() {
        tx.extend_from_slice(if touched { text::TOUCHED } else { text::NOT_FOUND });
    }
    Executed::DONE
}
