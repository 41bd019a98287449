//! The value of one key, as part of a reply.

use minos_base::{Exptime, SizeClass};
use minos_engine::{Access, Get, Mode, Pinned, Staged, StagedOwned};

use super::{
    cold::{Below, below, entry},
    context::{Context, Placement},
    fetched::Cold,
    lookup::Lookup,
    read::{Facts, Read, count_get, count_touch, read, touch},
};
use crate::rack::{self, Owner, Remote};

/// Composes all of a reply that stands before the value.
pub(crate) trait Head: Copy {
    /// Appends it for the item with `key`.
    fn compose(self, key: &[u8], item: &Facts, tx: &mut Vec<u8>);
}

/// The result for one key of a request.
pub(crate) enum Found<M: Mode> {
    /// There is no such item.
    Missing,
    /// The transmit buffer holds the head and the value, but not the line end behind it.
    Copied,
    /// The transmit buffer holds the head; the value is to be sent from here.
    Pinned(Pinned<M>),
    /// It may be on flash. Nothing was counted.
    Cold(Cold),
    /// Only its owner, another node, can tell. Nothing was counted.
    AskOwner(Owner),
}

/// Looks a key up, changes the item's expiry if the request asks for that, and counts.
#[inline]
pub(crate) fn find<M: Mode, P: Placement>(
    cx: &mut Context<'_, M, P>,
    lookup: Lookup<'_>,
    key: &[u8],
    touch: Option<Exptime>,
    head: impl Head,
    tx: &mut Vec<u8>,
) -> Found<M> {
    let wanted = Wanted { get: Get { hash: lookup.hash, key }, head };
    match touch {
        None => {
            let found = fetch(cx, &lookup, &wanted, tx);
            if matches!(found, Found::Cold(_) | Found::AskOwner(_)) {
                return found;
            }
            count_get(cx, !matches!(found, Found::Missing));
            found
        }
        Some(exptime) => {
            let found = touch_and_fetch(cx, &wanted, exptime, tx);
            if matches!(found, Found::Cold(_)) {
                return found;
            }
            count_touch(cx, !matches!(found, Found::Missing));
            found
        }
    }
}

/// The item requested, and the head of its reply.
struct Wanted<'a, H> {
    get: Get<'a>,
    head: H,
}

impl<H: Head> Wanted<'_, H> {
    #[inline]
    fn compose(&self, item: &Facts, tx: &mut Vec<u8>) {
        self.head.compose(self.get.key, item, tx);
    }

    /// The result for a key that was not found in memory.
    #[inline]
    fn missing<M: Mode, P: Placement>(&self, cx: &mut Context<'_, M, P>, tx: &mut Vec<u8>) -> Found<M> {
        match below(cx, self.get.hash, self.get.key) {
            Below::Missing => Found::Missing,
            Below::Copied(facts, value) => {
                // Memory did not tell its size.
                cx.placement.is_here(SizeClass::of(facts.value_bytes));
                self.compose(facts, tx);
                tx.extend_from_slice(value);
                Found::Copied
            }
            Below::Cold(cold) => Found::Cold(cold),
        }
    }

    /// Copies an item of at most `class` to the reply; without a class, returns only its size.
    #[inline]
    fn read<M: Mode, P>(
        &self,
        cx: &Context<'_, M, P>,
        staged: &Staged<'_>,
        class: Option<SizeClass>,
        tx: &mut Vec<u8>,
    ) -> Read {
        let value_bytes_max = class.map(SizeClass::bytes_max);
        read(cx, staged, &self.get, value_bytes_max, tx, |facts, tx| self.compose(facts, tx))
    }
}

#[inline]
fn fetch<M: Mode, P: Placement>(
    cx: &mut Context<'_, M, P>,
    lookup: &Lookup<'_>,
    wanted: &Wanted<'_, impl Head>,
    tx: &mut Vec<u8>,
) -> Found<M> {
    if !M::Access::IS_BY_THREAD
        && let Some(owner) = lookup.owner
    {
        return fetch_elsewhere(cx, (owner, lookup.staged_there), wanted, tx);
    }
    let staged = lookup.staged(cx.store);
    let class = staged.size_class();
    if class.is_some_and(|class| !cx.placement.is_here(class)) {
        return pin(cx, wanted, tx);
    }
    match wanted.read(cx, &staged, class, tx) {
        Read::Missing => wanted.missing(cx, tx),
        Read::Copied => Found::Copied,
        Read::Longer(longer) => {
            // A size that the bucket did not tell is counted now.
            let is_here =
                if class.is_some() { cx.placement.serves(longer) } else { cx.placement.is_here(longer) };
            if is_here { fetch_longer(cx, &staged, wanted, longer, tx) } else { pin(cx, wanted, tx) }
        }
    }
}

/// Copies an item from the memory of the node that owns it.
fn fetch_elsewhere<M: Mode, P: Placement>(
    cx: &mut Context<'_, M, P>,
    (owner, staged): (Owner, Option<StagedOwned<'_>>),
    wanted: &Wanted<'_, impl Head>,
    tx: &mut Vec<u8>,
) -> Found<M> {
    let remote = rack::read(cx, (owner, staged), &wanted.get, tx, |facts, item, tx| {
        if !cx.placement.serves(SizeClass::of(facts.value_bytes)) {
            // It would hold up small ones here.
            return false;
        }
        wanted.compose(facts, tx);
        item.copy_value_to(tx);
        true
    });
    match remote {
        Remote::Missing => Found::Missing,
        Remote::Copied(class) => {
            cx.placement.is_here(class);
            Found::Copied
        }
        Remote::AskOwner => Found::AskOwner(owner),
    }
}

/// Copies an item whose class turned out to be `class`.
#[cold]
fn fetch_longer<M: Mode, P: Placement>(
    cx: &mut Context<'_, M, P>,
    staged: &Staged<'_>,
    wanted: &Wanted<'_, impl Head>,
    class: SizeClass,
    tx: &mut Vec<u8>,
) -> Found<M> {
    match wanted.read(cx, staged, Some(class), tx) {
        Read::Missing => wanted.missing(cx, tx),
        Read::Copied => Found::Copied,
        Read::Longer(_) => pin(cx, wanted, tx),
    }
}

/// Pins an item that is too large to copy; one that turns out to be small is copied.
fn pin<M: Mode, P: Placement>(
    cx: &mut Context<'_, M, P>,
    wanted: &Wanted<'_, impl Head>,
    tx: &mut Vec<u8>,
) -> Found<M> {
    let Some(item) = cx.store.pin(wanted.get.hash, wanted.get.key, cx.now) else {
        return wanted.missing(cx, tx);
    };
    let facts = Facts::from(&*item);
    wanted.compose(&facts, tx);
    if cx.placement.serves(SizeClass::of(facts.value_bytes)) {
        tx.extend_from_slice(item.value());
        return Found::Copied;
    }
    Found::Pinned(item)
}

/// Changes an item's expiry and reads it, in one step: even if the new expiry has already passed, this
/// request gets the value.
fn touch_and_fetch<M: Mode, P: Placement>(
    cx: &mut Context<'_, M, P>,
    wanted: &Wanted<'_, impl Head>,
    exptime: Exptime,
    tx: &mut Vec<u8>,
) -> Found<M> {
    let start = tx.len();
    let mut entry = match entry(cx, wanted.get.hash, wanted.get.key) {
        Ok(entry) => entry,
        Err(cold) => return Found::Cold(cold),
    };
    let Some(facts) = touch(cx, &mut entry, exptime) else { return Found::Missing };
    wanted.compose(&facts, tx);
    let is_here = cx.placement.is_here(SizeClass::of(facts.value_bytes));
    if !is_here && let Some(item) = entry.pin(cx.store) {
        return Found::Pinned(item);
    }
    let Some(item) = entry.item() else {
        // A large value of a cache can be evicted from under its entry.
        tx.truncate(start);
        return Found::Missing;
    };
    tx.extend_from_slice(item.value());
    Found::Copied
}
