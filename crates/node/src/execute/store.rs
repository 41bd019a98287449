//! `set`, `add`, `replace`, `append`, `prepend`, `cas` and `ms`.

use minos_base::{KeyHash, SizeClass};
use minos_command::{Exptime, Store, StoreMode, Value};
use minos_engine::{Entry, ItemMeta, Mode, OutOfMemory, Reservation};
use minos_proto::memcache::{Reply, compose, text};

use super::{Context, Executed, LargeStore, Outcome, PendingStore, Placement, append, item::Facts};

/// A store without its value and its key.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Operation {
    /// On what condition, and whether whole or as a part.
    pub(crate) mode: StoreMode,
    /// What the store keeps for the client.
    pub(crate) flags: u32,
    /// When the item expires.
    pub(crate) exptime: Exptime,
    /// The CAS unique to compare with, or 0.
    pub(crate) unique: u64,
    /// Whether an older value than the client's own is stored over, and marked.
    pub(crate) invalidate: bool,
    /// Whether the client spelled the key in base64.
    pub(crate) key_is_base64: bool,
}

/// How a store ended.
pub(crate) enum Stored {
    /// It is done, and the item has this CAS unique.
    Done(u64),
    /// Its condition did not hold.
    Unmet,
    /// The item is another one than the client has seen.
    OtherCas,
    /// There is nothing to compare with.
    Missing,
    /// There is no room.
    NoMemory,
}

/// What the item that is there means for a store.
enum Verdict {
    /// The value goes into an item like this.
    Put(ItemMeta),
    /// It is not stored.
    Refused(Stored),
}

impl Operation {
    fn new(request: &Store<'_>) -> Self {
        Self {
            mode: request.mode,
            flags: request.flags,
            exptime: request.exptime,
            unique: request.unique,
            invalidate: request.invalidate,
            key_is_base64: request.key.is_base64(),
        }
    }

    /// Whether the value becomes a part of the one that is there.
    pub(crate) fn joins(&self) -> bool {
        matches!(self.mode, StoreMode::Append | StoreMode::Prepend)
    }

    /// The item that is there, as far as it matters.
    fn old<M: Mode>(&self, entry: &Entry<'_, M>) -> Option<Facts> {
        if self.mode == StoreMode::Set { None } else { entry.item().map(|item| Facts::from(&*item)) }
    }

    /// Judges the store by the item that is there, and counts comparisons. Joining is judged where it
    /// is done.
    fn judge<M: Mode, P>(&self, cx: &Context<'_, M, P>, old: Option<Facts>) -> Verdict {
        use StoreMode::{Add, Append, Compare, Prepend, Replace, Set};
        match (self.mode, old) {
            (Set, _) | (Add, None) | (Replace, Some(_)) => Verdict::Put(self.fresh(cx)),
            (Add | Append | Prepend, _) | (Replace, None) => Verdict::Refused(Stored::Unmet),
            (Compare, Some(old)) => self.compare(cx, old),
            (Compare, None) => {
                cx.counters.cas_misses.count();
                Verdict::Refused(Stored::Missing)
            }
        }
    }

    fn compare<M: Mode, P>(&self, cx: &Context<'_, M, P>, old: Facts) -> Verdict {
        if self.unique != 0 && self.unique == old.cas {
            cx.counters.cas_hits.count();
            return Verdict::Put(self.fresh(cx));
        }
        if self.invalidate && self.unique != 0 && self.unique < old.cas {
            // An older value than the client's own is better than none, but marked as what it is.
            cx.counters.cas_hits.count();
            let (expiry, win_sent) = (old.expiry, old.win_sent);
            return Verdict::Put(ItemMeta { expiry, win_sent, stale: true, ..self.fresh(cx) });
        }
        cx.counters.cas_badval.count();
        Verdict::Refused(Stored::OtherCas)
    }

    fn fresh<M: Mode, P>(&self, cx: &Context<'_, M, P>) -> ItemMeta {
        let expiry = self.exptime.on(cx.clock, cx.now);
        ItemMeta { flags: self.flags, expiry, encoded_key: self.key_is_base64, ..ItemMeta::default() }
    }
}

/// Stores a small value that has arrived; says what to do about any other.
#[inline]
pub(super) fn execute<M: Mode, P: Placement>(
    cx: &mut Context<'_, M, P>,
    request: &Store<'_>,
    hash: KeyHash,
    key: &[u8],
    reply: Reply<'_>,
    tx: &mut Vec<u8>,
) -> Executed<M> {
    let operation = Operation::new(request);
    let class = item_class(cx, &operation, hash, request.value.bytes());
    match request.value {
        Value::TooLarge { bytes } => too_large(cx, &operation, hash, key, bytes, reply, tx),
        Value::Pending { bytes } if cx.placement.serves(class) => {
            Outcome::NeedMore { body_bytes: bytes + 2 }.into()
        }
        Value::Whole(value) if cx.placement.is_here(class) => {
            cx.counters.cmd_set.count();
            let stored = store(cx, &operation, hash, key, value);
            respond(&stored, &operation, key, reply, tx);
            Outcome::Done.into()
        }
        value => {
            if matches!(value, Value::Pending { .. }) {
                // A value that has arrived was counted just now.
                cx.placement.is_here(class);
            }
            Large { hash, key, operation, class, reply }.execute(cx, value, tx)
        }
    }
}

/// The class of the item that a store of `value_bytes` makes, as far as that can be known without a lock.
pub(crate) fn item_class<M: Mode, P>(
    cx: &Context<'_, M, P>,
    operation: &Operation,
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
    operation: &Operation,
    hash: KeyHash,
    key: &[u8],
    value: &[u8],
) -> Stored {
    if operation.joins() {
        return append::join(cx, operation, hash, key, value);
    }
    let mut entry = cx.store.entry(hash, key, cx.now);
    match operation.judge(cx, operation.old(&entry)) {
        Verdict::Put(meta) => settle(cx, entry.insert(&[value], meta)),
        Verdict::Refused(stored) => stored,
    }
}

/// Counts what came of an attempt to store.
fn settle<M: Mode, P>(cx: &Context<'_, M, P>, attempt: Result<u64, OutOfMemory>) -> Stored {
    match attempt {
        Ok(cas) => {
            cx.counters.total_items.count();
            Stored::Done(cas)
        }
        Err(OutOfMemory) => {
            cx.counters.store_no_memory.count();
            Stored::NoMemory
        }
    }
}

/// Notes that a value is too large. The item that is there is dropped, because the client that wanted
/// to replace it would read an old value otherwise; memcached does so for `set` and for any `ms`.
pub(crate) fn drop_for_too_large<M: Mode, P>(cx: &Context<'_, M, P>, drops: bool, hash: KeyHash, key: &[u8]) {
    cx.counters.store_too_large.count();
    if drops {
        cx.store.entry(hash, key, cx.now).remove();
    }
}

/// Refuses a value that is too large.
fn too_large<M: Mode, P>(
    cx: &Context<'_, M, P>,
    operation: &Operation,
    hash: KeyHash,
    key: &[u8],
    value_bytes: u64,
    reply: Reply<'_>,
    tx: &mut Vec<u8>,
) -> Executed<M> {
    let drops = operation.mode == StoreMode::Set || matches!(reply, Reply::Meta { .. });
    drop_for_too_large(cx, drops, hash, key);
    if !reply.is_silent() {
        tx.extend_from_slice(text::TOO_LARGE);
    }
    Outcome::Refused { swallow: value_bytes + 2 }.into()
}

/// A store whose value goes into memory that is set aside for it.
struct Large<'a> {
    hash: KeyHash,
    key: &'a [u8],
    operation: Operation,
    class: SizeClass,
    reply: Reply<'a>,
}

impl Large<'_> {
    /// Sets memory aside for the value.
    fn execute<M: Mode, P>(&self, cx: &Context<'_, M, P>, value: Value<'_>, tx: &mut Vec<u8>) -> Executed<M> {
        let value_bytes = value.bytes();
        let mut permit = None;
        if matches!(value, Value::Pending { .. }) {
            // How long it takes to arrive is the client's affair; how much others do without meanwhile is not.
            permit = cx.admin.admit(value_bytes);
            if permit.is_none() {
                return self.refuse(cx, value, tx);
            }
        }
        let Ok(reservation) = cx.store.reserve(self.hash, self.key, value_bytes) else {
            return self.refuse(cx, value, tx);
        };
        let pending = PendingStore::new(reservation, self.hash, self.key, self.operation);
        let mut store = LargeStore::new(pending, self.reply, self.class, permit);
        match value {
            // A part of a value is copied in any case, and it is short as a rule.
            Value::Whole(part) if self.operation.joins() => {
                store.fill(part);
                Outcome::FinishLarge(Box::new(store)).into()
            }
            Value::Whole(value) => Executed {
                outcome: Outcome::ReceiveLarge(Box::new(store)),
                unread_bytes: value.len() + text::LINE_END.len(),
            },
            _ => Outcome::ReceiveLarge(Box::new(store)).into(),
        }
    }

    /// Refuses a value for which there is no room; what was stored before stays.
    fn refuse<M: Mode, P>(&self, cx: &Context<'_, M, P>, value: Value<'_>, tx: &mut Vec<u8>) -> Executed<M> {
        cx.counters.store_no_memory.count();
        respond(&Stored::NoMemory, &self.operation, self.key, self.reply, tx);
        match value {
            Value::Whole(_) => Outcome::Done.into(),
            _ => Outcome::Refused { swallow: value.bytes() + 2 }.into(),
        }
    }
}

/// Stores the value in `reservation`, of any size, without copying it under the partition's lock.
pub(super) fn commit<M: Mode, P>(
    cx: &Context<'_, M, P>,
    operation: &Operation,
    hash: KeyHash,
    key: &[u8],
    mut reservation: Reservation<M>,
) -> Stored {
    if operation.joins() {
        return append::join(cx, operation, hash, key, reservation.value_mut());
    }
    reservation.settle();
    let mut entry = cx.store.entry(hash, key, cx.now);
    match operation.judge(cx, operation.old(&entry)) {
        Verdict::Put(meta) => settle(cx, entry.commit(reservation, meta)),
        Verdict::Refused(stored) => {
            // The reservation gives its memory back under the same lock.
            drop(entry);
            stored
        }
    }
}

/// Appends the reply to a store.
#[inline]
pub(super) fn respond(
    stored: &Stored,
    operation: &Operation,
    key: &[u8],
    reply: Reply<'_>,
    tx: &mut Vec<u8>,
) {
    let Reply::Meta { flags, quiet } = reply else {
        if !reply.is_silent() {
            tx.extend_from_slice(classic_text(stored));
        }
        return;
    };
    let (code, cas): (&[u8], u64) = match stored {
        Stored::Done(_) if quiet => return,
        Stored::Done(cas) => (b"HD", *cas),
        Stored::Unmet => (b"NS", 0),
        Stored::OtherCas => (b"EX", 0),
        Stored::Missing => (b"NF", 0),
        Stored::NoMemory => return tx.extend_from_slice(text::NO_MEMORY_STORING),
    };
    tx.extend_from_slice(code);
    for flag in flags.iter() {
        compose::meta_store_flag(tx, flag, cas, key, operation.key_is_base64);
    }
    tx.extend_from_slice(text::LINE_END);
}

fn classic_text(stored: &Stored) -> &'static [u8] {
    match stored {
        Stored::Done(_) => text::STORED,
        Stored::Unmet => text::NOT_STORED,
        Stored::OtherCas => text::EXISTS,
        Stored::Missing => text::NOT_FOUND,
        Stored::NoMemory => text::NO_MEMORY_STORING,
    }
}
