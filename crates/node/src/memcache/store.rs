//! `set`, `add`, `replace`, `append`, `prepend`, `cas` and `ms`.

use minos_base::{KeyHash, SizeClass, StoreKind};
use minos_engine::Mode;
use minos_proto::memcache::{Reply, Store, Value, text};

use super::{Executed, LargeStore, Outcome, stored::respond};
use crate::ops::{self, Context, PendingStore, Placement, StoreOperation, Stored};

fn operation_of(request: &Store<'_>) -> StoreOperation {
    StoreOperation {
        kind: request.kind,
        flags: request.flags,
        exptime: request.exptime,
        unique: request.unique,
        invalidate: request.invalidate,
        key_is_base64: request.key.is_base64(),
    }
}

/// Stores a small value that has arrived; any other store becomes an outcome.
#[inline]
pub(super) fn execute<M: Mode, P: Placement>(
    cx: &mut Context<'_, M, P>,
    request: &Store<'_>,
    hash: KeyHash,
    key: &[u8],
    reply: Reply<'_>,
    tx: &mut Vec<u8>,
) -> Executed<M> {
    let operation = operation_of(request);
    let class = ops::item_class(cx, &operation, hash, request.value.bytes());
    match request.value {
        Value::TooLarge { bytes } => too_large(cx, &operation, hash, key, bytes, reply, tx),
        Value::Pending { bytes } if cx.placement.serves(class) => {
            Outcome::NeedMore { body_bytes: bytes + 2 }.into()
        }
        Value::Whole(value) if cx.placement.is_here(class) => {
            cx.counters.cmd_set.count();
            let stored = ops::store(cx, &operation, hash, key, value);
            respond(&stored, &operation, key, reply, tx);
            Outcome::Done.into()
        }
        value => {
            if matches!(value, Value::Pending { .. }) {
                // The guard above has counted a whole value.
                cx.placement.is_here(class);
            }
            Large { hash, key, operation, class, reply }.execute(cx, value, tx)
        }
    }
}

/// Refuses a value that is too large.
fn too_large<M: Mode, P>(
    cx: &Context<'_, M, P>,
    operation: &StoreOperation,
    hash: KeyHash,
    key: &[u8],
    value_bytes: u64,
    reply: Reply<'_>,
    tx: &mut Vec<u8>,
) -> Executed<M> {
    let drops = operation.kind == StoreKind::Set || matches!(reply, Reply::Meta { .. });
    ops::drop_for_too_large(cx, drops, hash, key);
    if !reply.is_silent() {
        tx.extend_from_slice(text::TOO_LARGE);
    }
    Outcome::Refused { swallow: value_bytes + 2 }.into()
}

/// A store whose value goes into reserved memory.
struct Large<'a> {
    hash: KeyHash,
    key: &'a [u8],
    operation: StoreOperation,
    class: SizeClass,
    reply: Reply<'a>,
}

impl Large<'_> {
    /// Reserves memory for the value.
    fn execute<M: Mode, P>(&self, cx: &Context<'_, M, P>, value: Value<'_>, tx: &mut Vec<u8>) -> Executed<M> {
        let value_bytes = value.bytes();
        let mut permit = None;
        if matches!(value, Value::Pending { .. }) {
            // The client decides how long the value takes to arrive; the bound limits the memory that it
            // holds meanwhile.
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
            // A part to join is copied in any case and is usually short.
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

    /// Refuses a value for which there is no room; the stored item stays.
    fn refuse<M: Mode, P>(&self, cx: &Context<'_, M, P>, value: Value<'_>, tx: &mut Vec<u8>) -> Executed<M> {
        cx.counters.store_no_memory.count();
        respond(&Stored::NoMemory, &self.operation, self.key, self.reply, tx);
        match value {
            Value::Whole(_) => Outcome::Done.into(),
            _ => Outcome::Refused { swallow: value.bytes() + 2 }.into(),
        }
    }
}
