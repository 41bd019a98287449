//! `get`, `gets`, `gat` and `gats` of one key; those of several keys use the same steps for each.

use minos_base::Exptime;
use minos_engine::Mode;
use minos_proto::memcache::{Reply, compose, text};

use super::session::next_of;
use crate::ops::{Context, Facts, Found, Head, Lookup, Next, Placement, Work, find};
use crate::rack::Forward;

/// The line of the text protocol.
#[derive(Clone, Copy)]
pub(super) struct ValueLine {
    pub(super) with_cas: bool,
}

impl Head for ValueLine {
    #[inline]
    fn compose(self, key: &[u8], item: &Facts, tx: &mut Vec<u8>) {
        let cas = self.with_cas.then_some(item.cas);
        compose::value_head(tx, key, item.flags, item.value_bytes, cas);
    }
}

/// Answers a request for one key.
#[inline]
pub(super) fn execute<M: Mode, P: Placement>(
    cx: &mut Context<'_, M, P>,
    lookup: Lookup<'_>,
    key: &[u8],
    touch: Option<Exptime>,
    with_cas: bool,
    tx: &mut Vec<u8>,
) -> Next<M> {
    match find(cx, lookup, key, touch, ValueLine { with_cas }, tx) {
        Found::Missing => tx.extend_from_slice(text::END),
        Found::Copied => tx.extend_from_slice(text::VALUE_END),
        Found::Pinned(item) => return Next::Away(Work::send(item, text::VALUE_END)),
        Found::Cold(cold) => return next_of(cold, (lookup.hash, key), Reply::LOUD, tx),
        Found::AskOwner(owner) => {
            // Its value may be large.
            let forward = Forward { is_large: true, is_read: touch.is_none(), ..Forward::to(owner) };
            cx.holes.push(tx.len(), Some(lookup.hash), forward);
        }
    }
    Next::Continue
}
