//! Reads without a lock.

use minos_base::SizeClass;
use minos_engine::{Get, ItemView, Mode, Staged};

use super::{Context, facts::Facts};

/// What an optimistic read came to.
pub(crate) enum Read {
    /// There is no such item.
    Missing,
    /// The reply is in the transmit buffer.
    Copied,
    /// The item is larger than its index slot had said: the slot was another item's, or has changed, or was
    /// not seen.
    Longer(SizeClass),
}

/// Copies the value of an item to the reply, behind a head that says what it is, without a lock. A value that
/// is longer than `value_bytes_max`, and without that any value, is not copied, only told of.
#[inline]
pub(crate) fn read<M: Mode, P>(
    cx: &Context<'_, M, P>,
    staged: &Staged<'_>,
    get: &Get<'_>,
    value_bytes_max: Option<u64>,
    tx: &mut Vec<u8>,
    compose_head: impl Fn(&Facts, &mut Vec<u8>),
) -> Read {
    let start = tx.len();
    let copy = |item: &ItemView<'_>| {
        // Whatever an earlier round has left is of an item that was changed meanwhile.
        tx.truncate(start);
        let facts = Facts::from(&**item);
        if value_bytes_max.is_none_or(|bytes_max| facts.value_bytes > bytes_max) {
            return Read::Longer(SizeClass::of(facts.value_bytes));
        }
        compose_head(&facts, tx);
        item.copy_value_to(tx);
        Read::Copied
    };
    match cx.store.read_staged(staged, get, cx.now, copy) {
        Some(Read::Copied) => Read::Copied,
        other => {
            tx.truncate(start);
            other.unwrap_or(Read::Missing)
        }
    }
}

/// Counts a key that was asked for.
#[inline]
pub(crate) fn count_get<M: Mode, P>(cx: &Context<'_, M, P>, found: bool) {
    cx.counters.cmd_get.count();
    if found { cx.counters.get_hits.count() } else { cx.counters.get_misses.count() }
}
