//! A value that is arriving, or the outcome of its arrival.

use std::{net::SocketAddr, time::Instant};

use minos_base::KeyHash;
use minos_engine::Mode;
use minos_proto::native::{Detail, Fragments, Grant, OpFlags, Opcode, Operation, ReplyRecord};

use super::{bounds::Permit, received::Received};
use crate::{
    datagram::native::{AnswerTo, Outcome, sessions::Ticket},
    ops::PendingStore,
};

/// A place for a large store.
pub(super) struct Slot<M: Mode> {
    /// The grant sent to the client.
    pub(super) grant: Grant,
    /// The addressee of the outcome: the sender of the latest new fragment.
    pub(super) to: AnswerTo,
    pub(super) asked: Asked,
    /// Time at which the store began, its last window was complete, or it ended.
    pub(super) touched: Instant,
    pub(super) state: State<M>,
}

/// The store as the client requested it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Asked {
    pub(super) session: u64,
    pub(super) opcode: Opcode,
    pub(super) flags: OpFlags,
    pub(super) request: u32,
    pub(super) hash: KeyHash,
    pub(super) detail: Detail,
}

pub(super) enum State<M: Mode> {
    /// Fragments are missing, or bytes are still to be copied.
    Open(Box<Arriving<M>>),
    /// The value of so many fragments is stored, and not durable yet.
    Held(u32),
    /// The outcome, kept for a client that has not received it.
    Ended(Ended),
}

/// A value that arrives in the memory of its future item.
pub(super) struct Arriving<M: Mode> {
    pub(super) pending: PendingStore<M>,
    pub(super) fragments: Fragments,
    pub(super) received: Received,
    /// Fragments that have arrived since the last window was complete.
    pub(super) in_window: u16,
    /// The ticket of a store to be executed once.
    pub(super) ticket: Option<Ticket>,
    /// Its permit; `None` for a join in one piece, made because no permit was left.
    pub(super) permit: Option<Permit>,
}

/// The outcome of a store, and the number of its value's fragments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ended {
    pub(super) outcome: Outcome,
    pub(super) fragments: u32,
}

/// The outcome of a store that is not durable yet.
pub(crate) struct HeldStore {
    pub(super) name: u64,
    pub(super) outcome: Outcome,
    /// The ticket of one to be executed once.
    pub(super) ticket: Option<Ticket>,
}

impl Asked {
    pub(super) fn of(session: u64, operation: &Operation<'_>) -> Self {
        let Operation { opcode, flags, request, hash, detail, .. } = *operation;
        Self { session, opcode, flags, request, hash, detail }
    }

    /// The record that answers the request.
    pub(super) fn reply(&self, outcome: &Outcome) -> ReplyRecord<'static> {
        let Outcome { status, item_flags, cas, .. } = *outcome;
        ReplyRecord { item_flags, cas, ..ReplyRecord::bare(self.opcode, status, self.request) }
    }
}

impl<M: Mode> Slot<M> {
    /// True if the same request came from `peer` and no fragment has arrived yet: the client has not received
    /// its grant and asks again. Once fragments have arrived, the request may be another client's at the same
    /// address.
    pub(super) fn awaits_first(&self, peer: SocketAddr, asked: &Asked, key: &[u8]) -> bool {
        let State::Open(arriving) = &self.state else { return false };
        arriving.received.count() == 0
            && (self.to.peer, self.asked) == (peer, *asked)
            && arriving.pending.key() == key
    }

    /// True if this is a late copy of the request: its datagram was sent before one with a fragment of the value, so that
    /// the client has its grant. One that was sent later begins anew, or is another client's at the same address.
    pub(super) fn has_passed(&self, to: &AnswerTo, asked: &Asked) -> bool {
        (self.to.peer, self.asked) == (to.peer, *asked) && to.header.sequence < self.to.header.sequence
    }

    pub(super) fn is_ended(&self) -> bool {
        matches!(self.state, State::Ended(_))
    }
}
