//! Counts, deletes and touches.

use minos_base::KeyHash;
use minos_engine::Mode;
use minos_proto::memcache::{
    Arithmetic, Delete, Touch,
    binary::{Reply, Status, compose},
    text,
};

use super::fail;
use crate::{
    memcache::{arithmetic::operation, session::Executed},
    ops::{self, Context, Counted, DeleteOperation, Deleted, Failure},
};

/// Counts up or down.
pub(super) fn count<M: Mode, P>(
    cx: &Context<'_, M, P>,
    request: &Arithmetic<'_>,
    (hash, key): (KeyHash, &[u8]),
    reply: Reply,
    tx: &mut Vec<u8>,
) -> Executed<M> {
    let mut entry = match ops::entry(cx, hash, key) {
        Ok(entry) => entry,
        Err(cold) => return Executed::cold(cold, (hash, key), reply, tx),
    };
    let counted = ops::count(cx, &operation(request), &mut entry);
    if let (Counted::Vivified(..), Some(wanted)) = (&counted, request.vivify) {
        entry.set_expiry(wanted.exptime.on(cx.clock, cx.now));
    }
    match counted {
        Counted::Value(value, facts) | Counted::Vivified(value, facts) => {
            compose::done(tx, reply, facts.cas, &value.to_be_bytes());
        }
        Counted::NotFound => compose::error(tx, reply, Status::NotFound),
        Counted::OtherCas => compose::error(tx, reply, Status::Exists),
        Counted::Failed(Failure::NotANumber) => compose::error(tx, reply, Status::NonNumeric),
        Counted::Failed(Failure::NoMemory) => {
            compose::error_with(tx, reply, Status::NoMemory, b"Out of memory incrementing value");
        }
        Counted::Failed(Failure::NoMemoryVivifying) => fail(reply, text::NO_MEMORY_VIVIFYING, tx),
        Counted::NoRoomYet => return Executed::wait(cx),
    }
    Executed::DONE
}

/// Removes an item.
pub(super) fn delete<M: Mode, P>(
    cx: &Context<'_, M, P>,
    request: &Delete<'_>,
    (hash, key): (KeyHash, &[u8]),
    reply: Reply,
    tx: &mut Vec<u8>,
) -> Executed<M> {
    let operation = DeleteOperation { unique: request.unique, invalidate: false, exptime: None };
    let deleted = match ops::delete(cx, &operation, hash, key) {
        Ok(deleted) => deleted,
        Err(cold) => return Executed::cold(cold, (hash, key), reply, tx),
    };
    match deleted {
        Deleted::Done => compose::done(tx, reply, 0, &[]),
        Deleted::NotFound => compose::error(tx, reply, Status::NotFound),
        Deleted::OtherCas => compose::error(tx, reply, Status::Exists),
    }
    Executed::DONE
}

/// Changes an item's expiry.
pub(super) fn touch<M: Mode, P>(
    cx: &Context<'_, M, P>,
    request: &Touch<'_>,
    (hash, key): (KeyHash, &[u8]),
    reply: Reply,
    tx: &mut Vec<u8>,
) -> Executed<M> {
    let touched = match ops::entry(cx, hash, key) {
        Ok(mut entry) => ops::touch(cx, &mut entry, request.exptime),
        Err(cold) => return Executed::cold(cold, (hash, key), reply, tx),
    };
    ops::count_touch(cx, touched.is_some());
    match touched {
        Some(facts) => compose::value_head(tx, reply, key, facts.flags, 0, facts.cas),
        None => compose::miss(tx, reply, key),
    }
    Executed::DONE
}
