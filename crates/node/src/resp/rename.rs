//! RENAME, RENAMENX and COPY: an item under another key.

use minos_base::KeyHash;
use minos_engine::{Mode, Pinned};
use minos_proto::resp::{Id, compose};

use super::{
    call::{Call, Done, NO_INTEGER, SYNTAX, entry, fail, kept, no_memory, pin},
    keys::{exists, fetch_all},
};
use crate::ops::{self, Context, Placement};
use minos_proto::resp::integer;

/// RENAME and RENAMENX. Other clients may see both keys for a moment, but never none.
pub(super) fn rename<M: Mode, P: Placement>(
    cx: &mut Context<'_, M, P>,
    call: &Call<'_>,
    tx: &mut Vec<u8>,
) -> Done<M> {
    fetch_all(cx, call)?;
    let is_careful = call.spec.id == Id::RenameNx;
    let ((from_hash, from), to) = (call.key(), call.argument(2));
    let Some(item) = pin(cx, (from_hash, from))? else { return fail("ERR no such key") };
    let to_hash = cx.store.hash(to);
    if is_careful && (from == to || exists(cx, to_hash, to)?) {
        compose::integer(tx, 0);
        return Ok(());
    }
    if from != to {
        put(cx, (to_hash, to), &item)?;
        let mut old = entry(cx, from_hash, from)?;
        // One that was replaced meanwhile is another.
        if old.item().is_some_and(|there| there.cas() == item.cas()) {
            old.remove();
        }
    }
    if is_careful {
        compose::integer(tx, 1)
    } else {
        tx.extend_from_slice(compose::OK)
    }
    Ok(())
}

/// COPY.
pub(super) fn copy<M: Mode, P: Placement>(
    cx: &mut Context<'_, M, P>,
    call: &Call<'_>,
    tx: &mut Vec<u8>,
) -> Done<M> {
    let mut replaces = false;
    let mut arguments = call.command.arguments(3);
    while let Some(word) = arguments.next() {
        match word.to_ascii_lowercase().as_slice() {
            b"replace" => replaces = true,
            b"db" => match integer(arguments.next().ok_or(super::call::Failure::from(SYNTAX))?) {
                Some(0) => {}
                Some(_) => return fail("ERR DB index is out of range"),
                None => return fail(NO_INTEGER),
            },
            _ => return fail(SYNTAX),
        }
    }
    let ((from_hash, from), to) = (call.key(), call.argument(2));
    if from == to {
        return fail("ERR source and destination objects are the same");
    }
    fetch_all(cx, call)?;
    let to_hash = cx.store.hash(to);
    let item = pin(cx, (from_hash, from))?;
    let is_free = replaces || !exists(cx, to_hash, to)?;
    if let Some(item) = item.as_ref().filter(|_| is_free) {
        put(cx, (to_hash, to), item)?;
    }
    compose::integer(tx, i64::from(item.is_some() && is_free));
    Ok(())
}

/// Stores a copy of an item. The value is copied before the key's partition is locked.
fn put<M: Mode, P>(cx: &Context<'_, M, P>, (hash, key): (KeyHash, &[u8]), item: &Pinned<M>) -> Done<M> {
    let value = item.value();
    if ops::awaits_room(cx, value.len() as u64) {
        return no_memory(cx);
    }
    cx.note_change(hash, key);
    let Ok(mut reservation) = cx.store.reserve(hash, key, value.len() as u64) else { return no_memory(cx) };
    reservation.value_mut().copy_from_slice(value);
    reservation.settle();
    match cx.store.entry(hash, key, cx.now).commit(reservation, kept(item)) {
        Ok(_) => Ok(()),
        Err(_) => no_memory(cx),
    }
}
