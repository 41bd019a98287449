//! `delete` and `md`.

use minos_base::KeyHash;
use minos_engine::Mode;
use minos_proto::memcache::{Delete, Reply, compose, text};

use super::session::Executed;
use crate::ops::{self, Context, DeleteOperation, Deleted};

/// Removes an item or marks it stale.
pub(super) fn execute<M: Mode, P>(
    cx: &Context<'_, M, P>,
    request: &Delete<'_>,
    hash: KeyHash,
    key: &[u8],
    reply: Reply<'_>,
    tx: &mut Vec<u8>,
) -> Executed<M> {
    let operation =
        DeleteOperation { unique: request.unique, invalidate: request.invalidate, exptime: request.touch };
    let deleted = match ops::delete(cx, &operation, hash, key) {
        Ok(deleted) => deleted,
        Err(cold) => return Executed::cold(cold, (hash, key), reply, tx),
    };
    respond(&deleted, request, key, reply, tx);
    Executed::DONE
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
