//! Stores of values: their conditions and results.

use minos_base::{KeyHash, SizeClass, StoreKind};
use minos_engine::{Entry, ItemMeta, Mode, OutOfMemory, Reservation};

use super::{
    append,
    cold::{Cold, awaits_room, entry, may_wait},
    context::Context,
    facts::Facts,
    store_operation::{StoreOperation, Stored},
};

/// The consequence of the stored item for a store.
enum Decision {
    /// The value is stored in an item with these properties.
    Put(ItemMeta),
    /// The value is not stored.
    Refused(Stored),
}

impl StoreOperation {
    /// The stored item, if the store depends on it.
    fn old<M: Mode>(&self, entry: &Entry<'_, M>) -> Option<Facts> {
        if self.kind == StoreKind::Set { None } else { entry.item().map(|item| Facts::from(&*item)) }
    }

    /// Decides by the stored item whether to store, and counts comparisons. Joins are decided elsewhere.
    fn decide<M: Mode, P>(&self, cx: &Context<'_, M, P>, old: Option<Facts>) -> Decision {
        use StoreKind::{Add, Append, Compare, Prepend, Replace, Set};
        match (self.kind, old) {
            (Set, _) | (Add, None) | (Replace, Some(_)) => Decision::Put(self.fresh(cx)),
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
            return Decision::Put(self.fresh(cx));
        }
        if self.invalidate && self.unique != 0 && self.unique < old.cas {
            // The client's CAS unique is older than the item's: the value is stored, but marked stale.
            cx.counters.cas_hits.count();
            let (expiry, win_sent) = (old.expiry, old.win_sent);
            return Decision::Put(ItemMeta { expiry, win_sent, stale: true, ..self.fresh(cx) });
        }
        cx.counters.cas_badval.count();
        Decision::Refused(Stored::OtherCas)
    }

    fn fresh<M: Mode, P>(&self, cx: &Context<'_, M, P>) -> ItemMeta {
        let expiry = self.exptime.on(cx.clock, cx.now);
        ItemMeta { flags: self.flags, expiry, encoded_key: self.key_is_base64, ..ItemMeta::default() }
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
        return append::join(cx, operation, hash, key, value);
    }
    let mut entry = match entry_for(cx, operation, hash, key) {
        Ok(entry) => entry,
        Err(cold) => return Stored::Cold(cold),
    };
    match operation.decide(cx, operation.old(&entry)) {
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
    if operation.depends() { entry(cx, hash, key) } else { Ok(cx.store.entry(hash, key, cx.now)) }
}

/// Counts the result of a store.
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
/// value that is not stored yet, because of flash or for lack of room, stays there.
pub(super) fn commit<M: Mode, P>(
    cx: &Context<'_, M, P>,
    operation: &StoreOperation,
    hash: KeyHash,
    key: &[u8],
    reservation: &mut Reservation<M>,
) -> Stored {
    reservation.settle();
    let mut entry = match entry_for(cx, operation, hash, key) {
        Ok(entry) => entry,
        // It left memory a moment ago, in spite of the look before.
        Err(cold) => return Stored::Cold(cold),
    };
    match operation.decide(cx, operation.old(&entry)) {
        Decision::Put(meta) => settle(cx, entry.try_commit(reservation, meta)),
        Decision::Refused(stored) => stored,
    }
}
