//! `get`, `gets`, `gat` and `gats` of several keys.

use arrayvec::ArrayVec;
use minos_base::{limits::BURST_MAX, limits::SLICE_BYTES};
use minos_command::{GetMany, Keys};
use minos_engine::Mode;
use minos_proto::memcache::{Command, Reply, Resume, text};

use super::{Context, Executed, LargeReply, Lookup, Outcome, Placement, get};
use get::Found;

/// A key, and the keys that follow it.
struct Wanted<'a> {
    key: &'a [u8],
    lookup: Lookup<'a>,
    following: Keys<'a>,
}

/// Answers a request for any number of keys, up to the first whose value is to be sent from elsewhere or
/// to a full transmit buffer; the rest is for the resumed request.
pub(super) fn execute<M: Mode, P: Placement>(
    cx: &mut Context<'_, M, P>,
    request: GetMany<'_>,
    command: &Command<'_>,
    tx: &mut Vec<u8>,
) -> Executed<M> {
    if request.ends_badly {
        return access_and_refuse(cx, request, tx);
    }
    let with_cas = matches!(command.reply, Reply::Classic { with_cas: true, .. });
    let resume = Resume { touch: request.touch, with_cas };
    let unread_bytes = |following: Keys<'_>| following.rest().len() + command.line_end_bytes;
    let start = tx.len();
    let mut keys = request.keys;
    loop {
        let group = gather(cx, &mut keys);
        if group.is_empty() {
            tx.extend_from_slice(text::END);
            return Outcome::Done.into();
        }
        for wanted in &group {
            match get::find(cx, wanted.lookup, wanted.key, request.touch, with_cas, tx) {
                Found::Missing => {}
                Found::Copied => tx.extend_from_slice(text::LINE_END),
                Found::Pinned(item) if wanted.following.clone().next().is_none() => {
                    let reply = LargeReply::new(item, text::VALUE_END, None);
                    return Outcome::SendLarge(Box::new(reply)).into();
                }
                Found::Pinned(item) => {
                    let reply = LargeReply::new(item, text::LINE_END, Some(resume));
                    let unread_bytes = unread_bytes(wanted.following);
                    return Executed { outcome: Outcome::SendLarge(Box::new(reply)), unread_bytes };
                }
            }
        }
        // Without keys left there is nothing to come back for.
        if tx.len() - start >= SLICE_BYTES && keys.clone().next().is_some() {
            return Executed { outcome: Outcome::Paused(resume), unread_bytes: unread_bytes(keys) };
        }
    }
}

/// Reads the keys before one that is too long, for what that does to the items, and replies with an error.
fn access_and_refuse<M: Mode, P: Placement>(
    cx: &mut Context<'_, M, P>,
    request: GetMany<'_>,
    tx: &mut Vec<u8>,
) -> Executed<M> {
    let start = tx.len();
    for key in request.keys {
        // A value that was pinned to be sent is let go at once.
        get::find(cx, Lookup::of_key(cx.store, key), key, request.touch, false, tx);
        tx.truncate(start);
    }
    tx.extend_from_slice(text::BAD_FORMAT);
    Outcome::Done.into()
}

/// Takes the next keys, prefetches their buckets and looks them up there, so that the misses in the
/// processor's caches overlap (MICA §4.3.2).
fn gather<'a, M: Mode, P>(cx: &Context<'a, M, P>, keys: &mut Keys<'a>) -> ArrayVec<Wanted<'a>, BURST_MAX> {
    let store = cx.store;
    let mut group = ArrayVec::new();
    while !group.is_full()
        && let Some(key) = keys.next()
    {
        let lookup = Lookup::of_key(store, key);
        store.prefetch_bucket(lookup.hash);
        group.push(Wanted { key, lookup, following: *keys });
    }
    for Wanted { lookup, .. } in &mut group {
        lookup.staged = Some(store.stage(lookup.hash));
    }
    group
}
