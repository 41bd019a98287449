//! A store whose value lies in the memory of the item that it will be.

use minos_base::{KeyHash, SizeClass};
use minos_engine::{Joining, Mode, Pinned, Reservation};

use super::{
    cold,
    context::Context,
    fetched::Cold,
    store::{self, StoreOperation, Stored},
};

/// Attempts to join a value in slices, each of which fails if the stored value is replaced meanwhile. Then it
/// is joined in one piece.
const JOIN_ATTEMPTS_MAX: u32 = 4;

/// A store whose value is received into memory of its own.
///
/// Bytes that must be copied before the value is linked are copied in slices; the worker serves other
/// requests between them.
pub(crate) struct PendingStore<M: Mode> {
    reservation: Reservation<M>,
    hash: KeyHash,
    key: Box<[u8]>,
    operation: StoreOperation,
    /// The join with the stored value, once it has begun.
    joining: Option<Joining<M>>,
    join_attempts: u32,
    /// The item before this one, if the operation wants it and has ended.
    old: Option<Pinned<M>>,
}

/// The next step of a store whose value has arrived.
pub(crate) enum Step {
    /// [`PendingStore::copy`] until nothing is left, then ask again.
    Copy,
    /// The store has ended with this result.
    Over(Stored),
    /// The item that the store depends on is to be fetched; ask again then.
    Fetch(SizeClass),
    /// There is no room until flash has taken items; ask again then.
    Room,
}

fn after<M: Mode, P>(cx: &Context<'_, M, P>, stored: Stored) -> Step {
    match stored {
        // It left memory a moment ago, in spite of the look before.
        Stored::Cold(Cold::Unknown(class, _)) => Step::Fetch(class),
        Stored::NoMemory if cold::may_wait(cx) => Step::Room,
        stored => Step::Over(stored),
    }
}

impl<M: Mode> PendingStore<M> {
    /// A store of the value that `reservation` will receive.
    pub(crate) fn new(
        reservation: Reservation<M>,
        hash: KeyHash,
        key: &[u8],
        operation: StoreOperation,
    ) -> Self {
        Self { reservation, hash, key: key.into(), operation, joining: None, join_attempts: 0, old: None }
    }

    pub(crate) fn key(&self) -> &[u8] {
        &self.key
    }

    pub(crate) fn hash(&self) -> KeyHash {
        self.hash
    }

    pub(crate) fn operation(&self) -> &StoreOperation {
        &self.operation
    }

    pub(crate) fn operation_mut(&mut self) -> &mut StoreOperation {
        &mut self.operation
    }

    pub(crate) fn value_bytes(&self) -> u64 {
        self.reservation.value_bytes()
    }

    pub(crate) fn value_mut(&mut self) -> &mut [u8] {
        self.reservation.value_mut()
    }

    /// Copies at most `bytes_max` bytes to their final place; returns their number, 0 if none are left.
    pub(crate) fn copy(&mut self, bytes_max: usize) -> usize {
        match &mut self.joining {
            Some(joining) => joining.copy(self.reservation.value_mut(), bytes_max),
            None if self.operation.joins() => 0,
            None => self.reservation.settle_slice(bytes_max),
        }
    }

    /// Determines the next step. A join calls `admit` with the bytes of memory it needs.
    pub(crate) fn next_step<P>(&mut self, cx: &Context<'_, M, P>, admit: impl FnOnce(u64) -> bool) -> Step {
        if !cx.may_change(&self.key) {
            return Step::Over(Stored::NotHere);
        }
        if self.operation.depends()
            && let Some(class) = cold::record_class(cx, self.hash, &self.key)
        {
            return Step::Fetch(class);
        }
        match self.operation.joins() {
            true => self.join(cx, admit),
            false if self.reservation.is_settled() => self.commit(cx),
            false => Step::Copy,
        }
    }

    /// Links the value.
    fn commit<P>(&mut self, cx: &Context<'_, M, P>) -> Step {
        let Self { reservation, hash, key, operation, old, .. } = self;
        let stored = store::commit(cx, operation, (*hash, key), reservation, old);
        // Its memory went with an item for which the index has no room.
        if self.reservation.is_spent() { Step::Over(stored) } else { after(cx, stored) }
    }

    /// Links the joined value, or begins a join in slices. The join is done in one piece if the value is
    /// short, if every attempt was overtaken, or if `admit` refuses memory.
    fn join<P>(&mut self, cx: &Context<'_, M, P>, admit: impl FnOnce(u64) -> bool) -> Step {
        let part_bytes = self.reservation.value_bytes();
        cx.note_change(self.hash, &self.key);
        let concat = store::concat(&self.operation, self.reservation.value_mut());
        if let Some(joining) = self.joining.take()
            && let Some(joined) = joining.finish(cx.store, &self.key, cx.now, &concat)
        {
            return after(cx, store::settle_join(cx, (self.hash, &self.key), joined));
        }
        if self.join_attempts == JOIN_ATTEMPTS_MAX || !cx.store.joins_large(self.hash, part_bytes) {
            return self.join_whole(cx);
        }
        let class = store::item_class(cx, &self.operation, self.hash, part_bytes);
        if !admit(part_bytes + class.bytes_max()) {
            return self.join_whole(cx);
        }
        let concat = store::concat(&self.operation, self.reservation.value_mut());
        match cx.store.begin_concat(self.hash, &self.key, cx.now, &concat) {
            Ok(joining) => {
                self.join_attempts += 1;
                self.joining = Some(joining);
                Step::Copy
            }
            Err(error) => after(cx, store::settle_join(cx, (self.hash, &self.key), Err(error))),
        }
    }

    /// Joins the value in one piece.
    fn join_whole<P>(&mut self, cx: &Context<'_, M, P>) -> Step {
        let part = self.reservation.value_mut();
        after(cx, store::join(cx, &self.operation, self.hash, &self.key, part))
    }

    /// The operation, its key, and the item before it, once it is over.
    pub(crate) fn end(self) -> (StoreOperation, Box<[u8]>, Option<Pinned<M>>) {
        (self.operation, self.key, self.old)
    }
}
