//! `set`, `add`, `replace`, `append`, `prepend`, `cas` and `ms`.

use minos_base::{KeyHash, SizeClass};
use minos_engine::Mode;
use minos_proto::memcache::{Store, Value};

use super::{
    answer::Answer,
    session::{Executed, MemcacheSession, Unread},
};
use crate::ops::{self, Context, LargeStore, Next, PendingStore, Placement, StoreOperation, Stored, Work};

fn operation_of(request: &Store<'_>) -> StoreOperation {
    StoreOperation {
        kind: request.kind,
        flags: request.flags,
        life: request.exptime.into(),
        unique: request.unique,
        invalidate: request.invalidate,
        key_is_base64: request.key.is_base64(),
        takes_old: false,
    }
}

/// Stores a small value that has arrived; any other store is left to the caller.
#[inline]
pub(super) fn execute<M: Mode, P: Placement, R: Answer>(
    cx: &mut Context<'_, M, P>,
    session: &mut MemcacheSession,
    request: &Store<'_>,
    hash: KeyHash,
    reply: R,
    key: &[u8],
    tx: &mut Vec<u8>,
) -> Executed<M> {
    let operation = operation_of(request);
    let class = ops::item_class(cx, &operation, hash, request.value.bytes());
    let large = Large { hash, key, operation, class, reply };
    match request.value {
        Value::TooLarge { bytes } => large.refuse_too_large(cx, session, bytes, tx),
        Value::Pending { bytes } if cx.placement.serves(class) => {
            // Not worth a reservation.
            Executed {
                next: Next::NeedMore { wanted_bytes: bytes as usize + R::END_BYTES },
                unread: Unread::All,
            }
        }
        Value::Whole(value) if cx.placement.is_here(class) => {
            let stored = ops::store(cx, &operation, hash, key, value);
            match stored {
                Stored::Cold(cold) => return Executed::cold(cold, (hash, key), reply, tx),
                Stored::NoMemory if ops::may_wait(cx) => return Executed::wait(cx),
                _ => {}
            }
            cx.counters.cmd_set.count();
            reply.stored(&stored, &operation, key, tx);
            Executed::DONE
        }
        value => {
            if matches!(value, Value::Pending { .. }) {
                // The guard above has counted a whole value.
                cx.placement.is_here(class);
            }
            large.execute(cx, session, value, tx)
        }
    }
}

/// A store whose value goes into reserved memory.
struct Large<'a, R> {
    hash: KeyHash,
    key: &'a [u8],
    operation: StoreOperation,
    class: SizeClass,
    reply: R,
}

impl<R: Answer> Large<'_, R> {
    /// Reserves memory for the value.
    fn execute<M: Mode, P>(
        &self,
        cx: &Context<'_, M, P>,
        session: &mut MemcacheSession,
        value: Value<'_>,
        tx: &mut Vec<u8>,
    ) -> Executed<M> {
        let value_bytes = value.bytes();
        let mut permit = None;
        if matches!(value, Value::Pending { .. }) {
            // The client decides how long the value takes to arrive; the bound limits the memory that it
            // holds meanwhile.
            permit = cx.admin.admit(value_bytes);
            if permit.is_none() {
                return self.refuse(cx, session, value, tx);
            }
        }
        if ops::awaits_room(cx, value_bytes) {
            return Executed::wait(cx);
        }
        let Ok(reservation) = cx.store.reserve(self.hash, self.key, value_bytes) else {
            if ops::may_wait(cx) {
                return Executed::wait(cx);
            }
            return self.refuse(cx, session, value, tx);
        };
        let pending = PendingStore::new(reservation, self.hash, self.key, self.operation);
        let has_line_end = R::END_BYTES > 0;
        let mut store =
            Box::new(LargeStore::new(pending, self.class, permit, has_line_end, self.reply.later()));
        match value {
            // A part to join is copied in any case and is usually short.
            Value::Whole(part) if self.operation.joins() => {
                store.fill(part);
                Executed::then(Next::Away(Work::Finish { store }))
            }
            Value::Whole(value) => Executed {
                next: Next::Away(Work::Receive { store, received_bytes: 0 }),
                unread: Unread::End(value.len() + R::END_BYTES),
            },
            _ => Executed::then(Next::Away(Work::Receive { store, received_bytes: 0 })),
        }
    }

    /// Refuses a value for which there is no room; the stored item stays.
    fn refuse<M: Mode, P>(
        &self,
        cx: &Context<'_, M, P>,
        session: &mut MemcacheSession,
        value: Value<'_>,
        tx: &mut Vec<u8>,
    ) -> Executed<M> {
        cx.counters.store_no_memory.count();
        self.reply.stored(&Stored::NoMemory, &self.operation, self.key, tx);
        if !matches!(value, Value::Whole(_)) {
            session.swallow_bytes = value.bytes() + R::END_BYTES as u64;
        }
        Executed::DONE
    }

    fn refuse_too_large<M: Mode, P>(
        &self,
        cx: &Context<'_, M, P>,
        session: &mut MemcacheSession,
        value_bytes: u64,
        tx: &mut Vec<u8>,
    ) -> Executed<M> {
        let drops = self.reply.drops_too_large(self.operation.kind);
        if let Err(cold) = ops::drop_for_too_large(cx, drops, self.hash, self.key) {
            return Executed::cold(cold, (self.hash, self.key), self.reply, tx);
        }
        self.reply.too_large(tx);
        session.swallow_bytes = value_bytes + R::END_BYTES as u64;
        Executed::DONE
    }
}
