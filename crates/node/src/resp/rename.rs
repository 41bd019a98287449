//! RENAME, RENAMENX and COPY: an item under another key.

use minos_engine::{Change, Mode, Seen, Then};
use minos_proto::resp::{Id, compose, integer};

use super::{
    call::{Call, Done, NO_INTEGER, SYNTAX, entry, fail, kept, pin},
    keys::fetch_all,
    together,
};
use crate::ops::{Context, Placement};

/// Attempts to rename an item, each of which fails if another client changes it meanwhile.
const ATTEMPTS_MAX: usize = 1000;

/// RENAME and RENAMENX: both keys change in one step.
pub(super) fn rename<M: Mode, P: Placement>(
    cx: &mut Context<'_, M, P>,
    call: &Call<'_>,
    tx: &mut Vec<u8>,
) -> Done<M> {
    fetch_all(cx, call)?;
    let is_careful = call.spec.id == Id::RenameNx;
    let ((from_hash, from), to) = (call.key(), call.argument(2));
    for _ in 0..ATTEMPTS_MAX {
        let Some(item) = pin(cx, (from_hash, from))? else { return fail("ERR no such key") };
        let is_free = !is_careful || entry(cx, cx.store.hash(to), to)?.item().is_none();
        if from == to || !is_free {
            if is_careful {
                compose::integer(tx, 0)
            } else {
                tx.extend_from_slice(compose::OK)
            }
            return Ok(());
        }
        let seen = if is_careful { Seen::Nothing } else { Seen::Anything };
        // If memory has no room for the new one, the old one stays.
        let changes = [
            together::store(cx, to, seen, (item.value(), kept(&item))),
            Change { hash: from_hash, key: from, seen: Seen::Cas(item.cas()), then: Then::Remove },
        ];
        // Another client may have changed a key meanwhile: its change came first.
        if together::change(cx, &changes)? {
            if is_careful {
                compose::integer(tx, 1)
            } else {
                tx.extend_from_slice(compose::OK)
            }
            return Ok(());
        }
    }
    fail("ERR key was changed too often")
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
    let mut is_copied = false;
    if let Some(item) = pin(cx, (from_hash, from))?
        && (replaces || entry(cx, cx.store.hash(to), to)?.item().is_none())
    {
        let seen = if replaces { Seen::Anything } else { Seen::Nothing };
        let change = together::store(cx, to, seen, (item.value(), kept(&item)));
        is_copied = together::change(cx, &[change])?;
    }
    compose::integer(tx, i64::from(is_copied));
    Ok(())
}
