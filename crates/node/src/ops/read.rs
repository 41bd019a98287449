//! Reads without a lock, what they tell of an item, and touches.

use minos_base::{Exptime, Seconds, SizeClass};
use minos_engine::{Entry, Get, ItemState, ItemView, Mode, Staged};

use super::context::Context;

/// The parts of an item that decide replies and conditions; a request may change them as it proceeds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Facts {
    pub(crate) value_bytes: u64,
    /// The client's flags.
    pub(crate) flags: u32,
    pub(crate) cas: u64,
    pub(crate) expiry: Seconds,
    /// Milliseconds by which it expires before that.
    pub(crate) early_ms: u16,
    pub(crate) last_access: Seconds,
    pub(crate) fetched: bool,
    pub(crate) stale: bool,
    pub(crate) win_sent: bool,
    /// True if the client that stored the item sent its key in base64.
    pub(crate) key_is_base64: bool,
}

impl Facts {
    /// True if a client has marked the item: a read of it may change the marks.
    #[inline]
    pub(crate) fn is_marked(&self) -> bool {
        self.stale || self.win_sent
    }
}

impl From<&ItemState> for Facts {
    #[inline]
    fn from(item: &ItemState) -> Self {
        Self {
            value_bytes: item.value_bytes() as u64,
            flags: item.flags(),
            cas: item.cas(),
            expiry: item.expiry(),
            early_ms: item.early_ms(),
            last_access: item.last_access(),
            fetched: item.was_fetched(),
            stale: item.is_stale(),
            win_sent: item.is_win_sent(),
            key_is_base64: item.has_encoded_key(),
        }
    }
}

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

/// Changes an item's expiry and returns the old one; `None` if there is no item.
pub(crate) fn touch<M: Mode, P>(
    cx: &Context<'_, M, P>,
    entry: &mut Entry<'_, M>,
    exptime: Exptime,
) -> Option<Facts> {
    let facts = entry.item().map(|item| Facts::from(&*item))?;
    entry.set_expiry(exptime.on(cx.clock, cx.now));
    entry.mark_fetched(cx.now);
    Some(facts)
}

pub(crate) fn count_touch<M: Mode, P>(cx: &Context<'_, M, P>, found: bool) {
    cx.counters.cmd_touch.count();
    if found { cx.counters.touch_hits.count() } else { cx.counters.touch_misses.count() }
}
