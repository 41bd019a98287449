//! Large values on their way between a connection and the store: state that outlives the execution of a
//! command.

use minos_base::SizeClass;
use minos_engine::{Mode, Pinned};

use super::{
    cold::{Fetch, Need},
    context::Context,
    pending::{PendingStore, Step},
    receiving::ReceivePermit,
    store_operation::{StoreOperation, Stored},
};

/// The work that a large request leaves.
pub(crate) enum Work<M: Mode> {
    /// Send the value of a pinned item, which stays unchanged meanwhile, and the protocol's bytes behind it.
    Send { item: Pinned<M>, tail: &'static [u8], sent_bytes: usize },
    /// Receive a value and its line end into reserved memory.
    Receive { store: Box<LargeStore<M>>, received_bytes: usize },
    /// Copy bytes that have all arrived to their final place, as in an append to a large value.
    Finish { store: Box<LargeStore<M>> },
}

impl<M: Mode> Work<M> {
    /// Sends the value of `item`, then `tail`.
    pub(crate) fn send(item: Pinned<M>, tail: &'static [u8]) -> Self {
        Self::Send { item, tail, sent_bytes: 0 }
    }

    /// The class of the value, which determines the worker for it.
    pub(crate) fn class(&self) -> SizeClass {
        match self {
            Self::Send { item, .. } => SizeClass::of(item.value().len() as u64),
            Self::Receive { store, .. } | Self::Finish { store } => store.class,
        }
    }
}

/// How the end of a large store turned out.
pub(crate) enum Finished<M: Mode> {
    /// The reply is composed.
    Answered,
    /// Bytes must be copied first.
    Copy(Box<LargeStore<M>>),
    /// The item that it depends on is to be fetched first.
    Fetch(Box<Fetch<M>>),
}

/// Composes the protocol's reply to a store: its result, and its operation and key again.
pub(crate) type AnswerStore = Box<dyn FnOnce(LargeStored, &StoreOperation, &[u8], &mut Vec<u8>) + Send>;

/// The result of a large store.
pub(crate) enum LargeStored {
    /// That of the store.
    Ended(Stored),
    /// No line end followed the value, so nothing was stored.
    NoLineEnd,
}

/// A store of a large value.
///
/// The store's condition is checked when the value has arrived, as in memcached.
pub(crate) struct LargeStore<M: Mode> {
    pending: PendingStore<M>,
    line_end: [u8; 2],
    class: SizeClass,
    /// Its memory permit, while the value is arriving or being joined.
    permit: Option<ReceivePermit>,
    answer: AnswerStore,
}

impl<M: Mode> LargeStore<M> {
    /// A store of an item of `class`; with a `permit` if its value is still arriving.
    pub(crate) fn new(
        pending: PendingStore<M>,
        class: SizeClass,
        permit: Option<ReceivePermit>,
        answer: AnswerStore,
    ) -> Self {
        Self { pending, line_end: [0; 2], class, permit, answer }
    }

    fn value_bytes(&self) -> usize {
        // The value is in memory, so its length fits.
        self.pending.value_bytes() as usize
    }

    /// Bytes to be received: the value and its line end.
    pub(crate) fn body_bytes(&self) -> usize {
        self.value_bytes() + self.line_end.len()
    }

    /// The memory for the bytes from offset `received_bytes` on, as far as it is contiguous; empty when all
    /// have arrived.
    pub(crate) fn room_at(&mut self, received_bytes: usize) -> &mut [u8] {
        let value_bytes = self.value_bytes();
        if received_bytes < value_bytes {
            &mut self.pending.value_mut()[received_bytes..]
        } else {
            let at = (received_bytes - value_bytes).min(self.line_end.len());
            &mut self.line_end[at..]
        }
    }

    /// Fills in a value that has already arrived.
    pub(crate) fn fill(&mut self, value: &[u8]) {
        self.pending.value_mut().copy_from_slice(value);
        self.line_end = *b"\r\n";
    }

    /// Copies at most `limit_bytes` bytes to their final place; returns their number, 0 if none are left.
    pub(crate) fn copy(&mut self, limit_bytes: usize) -> usize {
        self.pending.copy(limit_bytes)
    }

    /// Stores the received value and appends the reply to `tx`, unless something is to be done first.
    pub(crate) fn finish<P>(mut self: Box<Self>, cx: &Context<'_, M, P>, tx: &mut Vec<u8>) -> Finished<M> {
        if self.line_end != *b"\r\n" {
            cx.counters.cmd_set.count();
            let Self { pending, answer, .. } = *self;
            answer(LargeStored::NoLineEnd, pending.operation(), pending.key(), tx);
            return Finished::Answered;
        }
        let permit = &mut self.permit;
        let step = self.pending.next_step(cx, |bytes| {
            // A join holds memory while it lasts, so it needs a permit for its own bytes.
            drop(permit.take());
            *permit = cx.admin.admit(bytes);
            permit.is_some()
        });
        let stored = match step {
            Step::Copy => return Finished::Copy(self),
            Step::Fetch(class) => {
                let fetch = Fetch::of(self.pending.hash(), self.pending.key(), class, Need::Item);
                return Finished::Fetch(Box::new(Fetch { then: Some(self), ..fetch }));
            }
            Step::Room => {
                let fetch = Fetch::of_room(cx);
                return Finished::Fetch(Box::new(Fetch { then: Some(self), ..fetch }));
            }
            Step::Over(stored) => stored,
        };
        cx.counters.cmd_set.count();
        let Self { pending, answer, .. } = *self;
        let (operation, key) = pending.end();
        answer(LargeStored::Ended(stored), &operation, &key, tx);
        Finished::Answered
    }
}
