//! A value that is arriving, or how its arrival ended.

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
    /// What the client was told.
    pub(super) grant: Grant,
    /// Whom the end is told: who sent the datagram that came last.
    pub(super) to: AnswerTo,
    pub(super) asked: Asked,
    /// When it began, its last window was complete, or it ended.
    pub(super) touched: Instant,
    pub(super) state: State<M>,
}

/// What is to be stored, as the client said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Asked {
    pub(super) session: u64,
    pub(super) opcode: Opcode,
    pub(super) flags: OpFlags,
    pub(super) request: u32,
    pub(super) hash: KeyHash,
    pub(super) detail: Detail,
}

/// How far it is.
pub(super) enum State<M: Mode> {
    /// Fragments are missing, or something is still to be copied.
    Open(Box<Arriving<M>>),
    /// This came of it. Kept for a client that has not heard of it.
    Ended(Ended),
}

/// A value that is arriving in the memory of the item that it will be.
pub(super) struct Arriving<M: Mode> {
    pub(super) pending: PendingStore<M>,
    pub(super) fragments: Fragments,
    pub(super) received: Received,
    /// Fragments that have arrived since the last window was complete.
    pub(super) in_window: u16,
    /// If it is to be executed once.
    pub(super) ticket: Option<Ticket>,
    /// Its place within the bounds; none for a join that is made in one piece, because there was none left.
    pub(super) permit: Option<Permit>,
}

/// What came of a store, and how many fragments its value had.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ended {
    pub(super) outcome: Outcome,
    pub(super) fragments: u32,
}

impl Asked {
    /// What `operation` of `session` asks for.
    pub(super) fn of(session: u64, operation: &Operation<'_>) -> Self {
        let Operation { opcode, flags, request, hash, detail, .. } = *operation;
        Self { session, opcode, flags, request, hash, detail }
    }

    /// The record that answers it.
    pub(super) fn reply(&self, outcome: &Outcome) -> ReplyRecord<'static> {
        let Outcome { status, item_flags, cas, .. } = *outcome;
        ReplyRecord { item_flags, cas, ..ReplyRecord::bare(self.opcode, status, self.request) }
    }
}

impl<M: Mode> Slot<M> {
    /// Whether nothing has arrived yet of what `peer` asked for with these words: then it has not heard that it may
    /// begin, and asks again. If something has arrived, this may be another client at the same address.
    pub(super) fn awaits_first(&self, peer: SocketAddr, asked: &Asked, key: &[u8]) -> bool {
        let State::Open(arriving) = &self.state else { return false };
        arriving.received.count() == 0
            && (self.to.peer, self.asked) == (peer, *asked)
            && arriving.pending.key() == key
    }

    /// Whether a client is waited for that has to send more.
    pub(super) fn awaits_more(&self) -> bool {
        matches!(&self.state, State::Open(arriving) if !arriving.received.is_complete())
    }

    /// Whether it is over.
    pub(super) fn is_ended(&self) -> bool {
        matches!(self.state, State::Ended(_))
    }
}
