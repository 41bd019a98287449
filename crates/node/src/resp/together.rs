//! Changes of several keys in one step.

use minos_engine::{Change, ItemMeta, Mode, NotTogether, Seen, Then};

use super::call::{Interrupt, fail, no_memory};
use crate::ops::{self, Context};

/// Makes all changes, or none; false if a condition did not hold.
pub(super) fn change<M: Mode, P>(
    cx: &Context<'_, M, P>,
    changes: &[Change<'_>],
) -> Result<bool, Box<Interrupt<M>>> {
    let bytes =
        changes.iter().map(|change| if let Then::Store(value, _) = change.then { value.len() } else { 0 });
    if ops::awaits_room(cx, bytes.sum::<usize>() as u64) {
        return no_memory(cx);
    }
    changes.iter().for_each(|change| cx.note_change(change.hash, change.key));
    match cx.store.change_together(changes, cx.now) {
        Ok(()) => Ok(true),
        Err(NotTogether::Unmet) => Ok(false),
        Err(NotTogether::OutOfMemory) => no_memory(cx),
        Err(NotTogether::Partly(_)) => fail("OOM only some of the keys are set: no memory for the others"),
    }
}

/// The change that gives a key this value, if what is seen of it holds.
pub(super) fn store<'a, M: Mode, P>(
    cx: &Context<'_, M, P>,
    key: &'a [u8],
    seen: Seen,
    (value, meta): (&'a [u8], ItemMeta),
) -> Change<'a> {
    Change { hash: cx.store.hash(key), key, seen, then: Then::Store(value, meta) }
}
