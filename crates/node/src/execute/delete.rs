//! `delete` and `md`.

use minos_base::KeyHash;
use minos_command::Delete;
use minos_engine::{Entry, Mode};
use minos_proto::memcache::{Reply, compose, text};

use super::{Context, Executed, Outcome};

/// How a deletion ended.
pub(crate) enum Deleted {
    /// It is gone, or marked.
    Done,
    /// There is no such item.
    NotFound,
    /// The item is another one than the client has seen.
    OtherCas,
}

/// Removes an item, or marks it stale.
pub(super) fn execute<M: Mode, P>(
    cx: &Context<'_, M, P>,
    request: &Delete<'_>,
    hash: KeyHash,
    key: &[u8],
    reply: Reply<'_>,
    tx: &mut Vec<u8>,
) -> Executed<M> {
    let deleted = {
        let mut entry = cx.store.entry(hash, key, cx.now);
        delete(cx, request, &mut entry)
    };
    respond(&deleted, request, key, reply, tx);
    Outcome::Done.into()
}

/// Removes the item of `entry`, or marks it stale, and counts.
pub(crate) fn delete<M: Mode, P>(
    cx: &Context<'_, M, P>,
    request: &Delete<'_>,
    entry: &mut Entry<'_, M>,
) -> Deleted {
    let cas = entry.item().map(|item| item.cas());
    match cas {
        None => {
            cx.counters.delete_misses.count();
            Deleted::NotFound
        }
        Some(cas) if request.unique.is_some_and(|unique| unique != cas) => {
            cx.counters.delete_misses.count();
            Deleted::OtherCas
        }
        Some(_) if request.invalidate => {
            if let Some(exptime) = request.touch {
                entry.set_expiry(exptime.on(cx.clock, cx.now));
            }
            entry.set_stale(true);
            // The next client to read it is to store it anew.
            entry.set_win_sent(false);
            entry.renew_cas();
            Deleted::Done
        }
        Some(_) => {
            entry.remove();
            cx.counters.delete_hits.count();
            Deleted::Done
        }
    }
}

fn respond(deleted: &Deleted, request: &Delete<'_>, key: &[u8], reply: Reply<'_>, tx: &mut Vec<u8>) {
    let Reply::Meta { flags, quiet } = reply else {
        if !reply.is_silent() {
            tx.extend_from_slice(if matches!(deleted, Deleted::Done) {
                text::DELETED
            } else {
                text::NOT_FOUND
            });
        }
        return;
    };
    let code: &[u8] = match deleted {
        Deleted::Done if quiet => return,
        Deleted::Done => b"HD",
        Deleted::NotFound => b"NF",
        Deleted::OtherCas => b"EX",
    };
    tx.extend_from_slice(code);
    for flag in flags.iter() {
        compose::meta_echo_flag(tx, flag, key, request.key.is_base64());
    }
    tx.extend_from_slice(text::LINE_END);
}
