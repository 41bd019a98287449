//! Stores of values and joins with stored ones: their conditions and results.

use minos_base::{Exptime, KeyHash, SizeClass, StoreKind};
use minos_engine::{Concat, ConcatError, Entry, ItemMeta, Mode, OutOfMemory, Pinned, Reservation, Side};

use super::{
    cold::{awaits_room, cold, entry, may_wait},
    context::Context,
    fetched::Cold,
    moment::{Moment, bury},
    read::Facts,
};

/// A store without its value and its key.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StoreOperation {
    /// The condition of the store, and whether it joins values.
    pub(crate) kind: StoreKind,
    /// The client's flags.
    pub(crate) flags: u32,
    /// When the item expires.
    pub(crate) life: Life,
    /// Required CAS unique, or 0.
    pub(crate) unique: u64,
    /// True to store even if `unique` is older than the item's, marking the item stale.
    pub(crate) invalidate: bool,
    /// True if the client sent the key in base64.
    pub(crate) key_is_base64: bool,
    /// True if the client asks for the old item too.
    pub(crate) takes_old: bool,
}

/// When a stored item expires.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Life {
    /// As a memcached client wrote it.
    Exptime(Exptime),
    /// At this moment.
    Until(Moment),
    /// When the item that it replaces would have.
    Kept,
}

impl From<Exptime> for Life {
    fn from(exptime: Exptime) -> Self {
        Self::Exptime(exptime)
    }
}

pub(crate) enum Stored {
    /// Stored; the item has this CAS unique.
    Done(u64),
    /// Its condition did not hold.
    Unmet,
    /// The item's CAS unique differs.
    OtherCas,
    /// There is no item to compare with.
    Missing,
    /// There is no room.
    NoMemory,
    /// The item that it depends on may be on flash; nothing was done.
    Cold(Cold),
    /// Another node of the rack has the key by now, or gets it; nothing was done.
    NotHere,
}

/// The consequence of the stored item for a store.
enum Decision {
    /// The value is stored in an item with these properties.
    Put(ItemMeta),
    /// The value is not stored.
    Refused(Stored),
}

impl StoreOperation {
    /// True if the store depends on the stored item.
    pub(crate) fn depends(&self) -> bool {
        self.kind != StoreKind::Set || self.life == Life::Kept || self.takes_old
    }

    /// True if the value is joined with the stored one.
    pub(crate) fn joins(&self) -> bool {
        matches!(self.kind, StoreKind::Append | StoreKind::Prepend)
    }

    /// The stored item, if the store depends on it.
    fn old<M: Mode>(&self, entry: &Entry<'_, M>) -> Option<Facts> {
        if self.depends() { entry.item().map(|item| Facts::from(&*item)) } else { None }
    }

    /// Decides by the stored item whether to store, and counts comparisons. Joins are decided elsewhere.
    fn decide<M: Mode, P>(&self, cx: &Context<'_, M, P>, old: Option<Facts>) -> Decision {
        use StoreKind::{Add, Append, Compare, Prepend, Replace, Set};
        match (self.kind, old) {
            (Set, old) | (Add, old @ None) | (Replace, old @ Some(_)) => Decision::Put(self.fresh(cx, old)),
            (Add | Append | Prepend, _) | (Replace, None) => Decision::Refused(Stored::Unmet),
            (Compare, Some(old)) => self.compare(cx, old),
            (Compare, None) => {
                cx.counters.cas_misses.count();
                Decision::Refused(Stored::Missing)
            }
        }
    }

    fn compare<M: Mode, P>(&self, cx: &Context<'_, M, P>, old: Facts) -> Decision {
        if self.unique != 0 && self.unique == old.cas {
            cx.counters.cas_hits.count();
            return Decision::Put(self.fresh(cx, Some(old)));
        }
        if self.invalidate && self.unique != 0 && self.unique < old.cas {
            // The client's CAS unique is older than the item's: the value is stored, but marked stale.
            cx.counters.cas_hits.count();
            let (expiry, win_sent) = (old.expiry, old.win_sent);
            return Decision::Put(ItemMeta { expiry, win_sent, stale: true, ..self.fresh(cx, Some(old)) });
        }
        cx.counters.cas_badval.count();
        Decision::Refused(Stored::OtherCas)
    }

    fn fresh<M: Mode, P>(&self, cx: &Context<'_, M, P>, old: Option<Facts>) -> ItemMeta {
        let Moment { expiry, early_ms } = match self.life {
            Life::Exptime(exptime) => Moment { expiry: exptime.on(cx.clock, cx.now), early_ms: 0 },
            Life::Until(moment) => moment,
            Life::Kept => old.as_ref().map(Moment::from).unwrap_or_default(),
        };
        ItemMeta {
            flags: self.flags,
            expiry,
            early_ms,
            encoded_key: self.key_is_base64,
            ..ItemMeta::default()
        }
    }
}

/// The class of the item that a store of `value_bytes` makes, as far as it is known without a lock.
pub(crate) fn item_class<M: Mode, P>(
    cx: &Context<'_, M, P>,
    operation: &StoreOperation,
    hash: KeyHash,
    value_bytes: u64,
) -> SizeClass {
    let old = if operation.joins() { cx.store.size_class(hash) } else { None };
    SizeClass::of(value_bytes + old.map_or(0, SizeClass::bytes_max))
}

/// Stores a small value, and counts.
#[inline]
pub(crate) fn store<M: Mode, P>(
    cx: &Context<'_, M, P>,
    operation: &StoreOperation,
    hash: KeyHash,
    key: &[u8],
    value: &[u8],
) -> Stored {
    if awaits_room(cx, value.len() as u64) {
        return Stored::NoMemory;
    }
    if operation.joins() {
        return join(cx, operation, hash, key, value);
    }
    let mut entry = match entry_for(cx, operation, hash, key) {
        Ok(entry) => entry,
        Err(cold) => return Stored::Cold(cold),
    };
    put(cx, operation, &mut entry, value)
}

/// Stores a small value in this entry, and counts. It is not joined.
#[inline]
pub(crate) fn put<M: Mode, P>(
    cx: &Context<'_, M, P>,
    operation: &StoreOperation,
    entry: &mut Entry<'_, M>,
    value: &[u8],
) -> Stored {
    match operation.decide(cx, operation.old(entry)) {
        Decision::Put(meta) => settle(cx, entry.insert(&[value], meta)),
        Decision::Refused(stored) => stored,
    }
}

/// The entry for a store. A store that does not depend on the old item does not need it in memory.
#[inline]
fn entry_for<'a, M: Mode, P>(
    cx: &Context<'a, M, P>,
    operation: &StoreOperation,
    hash: KeyHash,
    key: &'a [u8],
) -> Result<Entry<'a, M>, Cold> {
    if operation.depends() {
        let mut entry = entry(cx, hash, key)?;
        bury(cx, &mut entry);
        return Ok(entry);
    }
    cx.note_change(hash, key);
    Ok(cx.store.entry(hash, key, cx.now))
}

fn settle<M: Mode, P>(cx: &Context<'_, M, P>, attempt: Result<u64, OutOfMemory>) -> Stored {
    match attempt {
        Ok(cas) => {
            cx.counters.total_items.count();
            Stored::Done(cas)
        }
        Err(OutOfMemory) => {
            if !may_wait(cx) {
                cx.counters.store_no_memory.count();
            }
            Stored::NoMemory
        }
    }
}

/// Counts a value that is too large. The stored item is dropped, because the client that wanted to replace it
/// would otherwise read an old value; memcached does so for `set` and for any `ms`.
pub(crate) fn drop_for_too_large<M: Mode, P>(
    cx: &Context<'_, M, P>,
    drops: bool,
    hash: KeyHash,
    key: &[u8],
) -> Result<(), Cold> {
    if drops {
        entry(cx, hash, key)?.remove();
    }
    cx.counters.store_too_large.count();
    Ok(())
}

/// Stores the value in `reservation`, of any size, without copying it under the partition's lock. It is not joined. A
/// value that is not stored yet, because of flash or for lack of room, stays there. Pins the item before it in `old`, if
/// the operation wants that.
pub(super) fn commit<M: Mode, P>(
    cx: &Context<'_, M, P>,
    operation: &StoreOperation,
    (hash, key): (KeyHash, &[u8]),
    reservation: &mut Reservation<M>,
    old: &mut Option<Pinned<M>>,
) -> Stored {
    reservation.settle();
    let mut entry = match entry_for(cx, operation, hash, key) {
        Ok(entry) => entry,
        // It left memory a moment ago, in spite of the look before.
        Err(cold) => return Stored::Cold(cold),
    };
    if operation.takes_old {
        *old = entry.pin(cx.store);
    }
    match operation.decide(cx, operation.old(&entry)) {
        Decision::Put(meta) => settle(cx, entry.try_commit(reservation, meta)),
        Decision::Refused(stored) => stored,
    }
}

/// Joins `part` with the stored value; a large value is not copied under the partition's lock.
pub(super) fn join<M: Mode, P>(
    cx: &Context<'_, M, P>,
    operation: &StoreOperation,
    hash: KeyHash,
    key: &[u8],
    part: &[u8],
) -> Stored {
    cx.note_change(hash, key);
    settle_join(cx, (hash, key), cx.store.concat(hash, key, cx.now, &concat(operation, part)))
}

/// The join that a store asks for.
pub(super) fn concat<'a>(operation: &StoreOperation, part: &'a [u8]) -> Concat<'a> {
    Concat {
        side: if operation.kind == StoreKind::Prepend { Side::Front } else { Side::Back },
        extra: part,
        compare: (operation.unique != 0).then_some(operation.unique),
        cas: None,
    }
}

/// Counts the result of a join.
pub(super) fn settle_join<M: Mode, P>(
    cx: &Context<'_, M, P>,
    (hash, key): (KeyHash, &[u8]),
    attempt: Result<u64, ConcatError>,
) -> Stored {
    match attempt {
        Ok(cas) => {
            cx.counters.total_items.count();
            Stored::Done(cas)
        }
        Err(ConcatError::Changed) => Stored::OtherCas,
        Err(ConcatError::Missing) => cold(cx, hash, key).map_or(Stored::Unmet, Stored::Cold),
        Err(ConcatError::OutOfMemory(_)) if may_wait(cx) => Stored::NoMemory,
        // A join without room for the whole value is, in memcached, a condition that did not hold.
        Err(ConcatError::TooLarge | ConcatError::OutOfMemory(_)) => {
            cx.counters.store_no_memory.count();
            Stored::Unmet
        }
    }
}
