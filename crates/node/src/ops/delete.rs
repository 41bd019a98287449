//! Deletion.

use minos_base::{Exptime, KeyHash};
use minos_engine::{Entry, Mode};

use super::{
    cold::entry_for,
    context::Context,
    fetched::{Cold, Need},
    moment::Moment,
};

/// A deletion without its key.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DeleteOperation {
    /// Required CAS unique of the item.
    pub(crate) unique: Option<u64>,
    /// Keep the item, marked stale and with a new CAS unique.
    pub(crate) invalidate: bool,
    /// New expiry of the item that is kept.
    pub(crate) exptime: Option<Exptime>,
}

/// How a deletion ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Deleted {
    /// The item is deleted or marked stale.
    Done,
    /// There is no such item.
    NotFound,
    /// The item's CAS unique differs.
    OtherCas,
}

/// Removes the item of a key, or marks it stale, and counts. One on flash is removed there: a full memory above a full
/// device has no room for it.
///
/// # Errors
/// The item may be on flash.
pub(crate) fn delete<'a, M: Mode, P>(
    cx: &Context<'a, M, P>,
    operation: &DeleteOperation,
    hash: KeyHash,
    key: &'a [u8],
) -> Result<Deleted, Cold> {
    if let Some((_, deleted)) = deleted_on_flash(cx, hash, key) {
        return Ok(deleted);
    }
    let need = if operation.invalidate { Need::Item } else { Need::Deletion(operation.unique) };
    let mut entry = entry_for(cx, hash, key, need)?;
    Ok(delete_entry(cx, operation, &mut entry))
}

/// How the deletion of an item that was on flash ended, and the item's expiry; counts.
pub(crate) fn deleted_on_flash<M: Mode, P>(
    cx: &Context<'_, M, P>,
    hash: KeyHash,
    key: &[u8],
) -> Option<(Moment, Deleted)> {
    let ended = cx.fetched?.deletion_of(hash, key)?;
    cx.note_change(hash, key);
    match ended.1 {
        Deleted::Done => cx.counters.delete_hits.count(),
        Deleted::NotFound | Deleted::OtherCas => cx.counters.delete_misses.count(),
    }
    Some(ended)
}

fn delete_entry<M: Mode, P>(
    cx: &Context<'_, M, P>,
    operation: &DeleteOperation,
    entry: &mut Entry<'_, M>,
) -> Deleted {
    let cas = entry.item().map(|item| item.cas());
    match cas {
        None => {
            cx.counters.delete_misses.count();
            Deleted::NotFound
        }
        Some(cas) if operation.unique.is_some_and(|unique| unique != cas) => {
            cx.counters.delete_misses.count();
            Deleted::OtherCas
        }
        Some(_) if operation.invalidate => {
            if let Some(exptime) = operation.exptime {
                entry.set_expiry(exptime.on(cx.clock, cx.now));
            }
            entry.set_stale(true);
            // The next client that reads the item wins the right to store it anew.
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
