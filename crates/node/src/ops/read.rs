//! Reads without a lock.

use minos_base::SizeClass;
use minos_engine::{Get, ItemView, Mode, Staged};

use super::{context::Context, facts::Facts};

/// The result of an optimistic read.
pub(crate) enum Read {
    /// There is no such item.
    Missing,
    /// The reply is in the transmit buffer.
    Copied,
    /// The item is larger than its index slot said: the slot was another item's, has changed, or was not
    /// seen.
    Longer(SizeClass),
}

/// Copies an item's head and value to the reply, without a lock. A value longer than `value_bytes_max` is not
/// copied, only its size is returned; without a limit no value is copied.
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
        // An earlier attempt may have left bytes of an item that changed meanwhile.
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

/// Counts a key requested by a read.
#[inline]
pub(crate) fn count_get<M: Mode, P>(cx: &Context<'_, M, P>, found: bool) {
    cx.counters.cmd_get.count();
    if found { cx.counters.get_hits.count() } else { cx.counters.get_misses.count() }
}
