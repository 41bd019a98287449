//! Operations that wait for flash, and answers that wait until the changes that they report are durable.
//!
//! The hot operations of a datagram are answered at once, and its cold ones together when their items are in memory:
//! they are read as part of one vector (Vector Interfaces §3.1, §4.2). An operation to be executed once stays in
//! progress meanwhile, and a second copy of any other is dropped.
//!
//! A change is executed at once and answered later. Meanwhile it is in progress for its session, and a second copy of
//! one without a session is dropped, as with operations that wait for an item. Without memory to wait in, it is not
//! executed.

use std::{
    collections::{HashSet, VecDeque},
    net::SocketAddr,
};

use minos_base::{KeyHash, SizeClass};
use minos_engine::{Mode, Pinned};
use minos_proto::native::{Opcode, Operation, Status};
use minos_tier::SyncId;

use super::{
    AnswerTo, Outcome,
    job::HandedOperation,
    sessions::Ticket,
    transfers::{HeldStore, Permit},
};
use crate::ops::{Cold, Failed, Fetch, Need};

/// Why an operation cannot be executed now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Hindrance {
    /// Its item may be on flash, in a record of about this class.
    Item(SizeClass, Need),
    /// There is no room for its value yet.
    Room,
    /// Flash is being emptied.
    Emptying(SyncId),
    /// Its item could not be fetched.
    Failed(Failed),
}

impl From<Cold> for Hindrance {
    fn from(cold: Cold) -> Self {
        match cold {
            Cold::Unknown(class, need) => Self::Item(class, need),
            Cold::Failed(failed) => Self::Failed(failed),
        }
    }
}

/// The answer to an operation whose item could not be fetched. Nothing was done.
pub(super) fn failed_status(failed: Failed) -> Status {
    match failed {
        Failed::Unreadable => Status::Busy,
        Failed::NoMemory => Status::NoMemory,
    }
}

/// Work that waits for flash.
pub(crate) enum Waiting {
    /// Operations of one datagram.
    Operations(Vec<WaitingOperation>),
    /// The large store of this name, at the worker that holds it.
    Store(u64),
}

/// An operation that waits.
pub(crate) struct WaitingOperation {
    pub(super) handed: HandedOperation,
    /// Its ticket, if it is to be executed once.
    pub(super) ticket: Option<Ticket>,
    pub(super) permit: Permit,
}

/// Tells a copy of an operation: its client and session, its number and key.
pub(super) type Identity = (SocketAddr, u64, u32, KeyHash);

pub(super) fn identity_of(to: &AnswerTo, operation: &Operation<'_>) -> Identity {
    (to.peer, to.header.session, operation.request, operation.hash)
}

impl WaitingOperation {
    /// Its identity, unless its session tells copies.
    fn identity(&self) -> Option<Identity> {
        self.ticket.is_none().then(|| identity_of(&self.handed.to, &self.handed.operation()))
    }
}

/// An answer that waits.
pub(crate) enum Held<M: Mode> {
    /// To an operation that carried all its data.
    Change(Box<HeldChange<M>>),
    /// To a large store, at the worker that holds it.
    Store(HeldStore),
}

/// The answer to an operation that carried all its data.
pub(crate) struct HeldChange<M: Mode> {
    pub(super) to: AnswerTo,
    pub(super) opcode: Opcode,
    pub(super) request: u32,
    pub(super) said: Said<M>,
    /// Its ticket, if it is to be executed once.
    pub(super) ticket: Option<Ticket>,
    /// Tells its copies otherwise.
    pub(super) identity: Option<Identity>,
    pub(super) _permit: Option<Permit>,
}

/// What the answer says.
pub(super) enum Said<M: Mode> {
    Outcome(Outcome),
    /// The item that was read with its new expiry.
    Item(Pinned<M>),
}

impl<M: Mode> Held<M> {
    /// Tells copies of the operation, unless its session does.
    pub(super) fn identity(&self) -> Option<Identity> {
        match self {
            Self::Change(change) => change.identity,
            Self::Store(_) => None,
        }
    }
}

/// One worker's waiting work that it has not passed on yet, and the operations that it fetches for or has not
/// answered.
pub(super) struct Waits<M: Mode> {
    new: VecDeque<(Waiting, Box<Fetch<M>>)>,
    /// Answers that wait.
    held: Vec<Held<M>>,
    under_way: HashSet<Identity>,
}

impl<M: Mode> Waits<M> {
    pub(super) fn new() -> Self {
        Self { new: VecDeque::new(), held: Vec::new(), under_way: HashSet::new() }
    }

    /// True if this operation waits, or its answer does.
    pub(super) fn is_under_way(&self, identity: &Identity) -> bool {
        self.under_way.contains(identity)
    }

    /// Lets an answer wait.
    pub(super) fn hold(&mut self, held: Held<M>) {
        self.under_way.extend(held.identity());
        self.held.push(held);
    }

    /// Takes out the answers that began to wait.
    pub(super) fn take_held(&mut self) -> Vec<Held<M>> {
        std::mem::take(&mut self.held)
    }

    /// Notes that answers wait no longer.
    pub(super) fn end_held(&mut self, held: &[Held<M>]) {
        for identity in held.iter().filter_map(Held::identity) {
            self.under_way.remove(&identity);
        }
    }

    /// Takes out work that waits.
    pub(super) fn take(&mut self) -> Option<(Waiting, Box<Fetch<M>>)> {
        self.new.pop_front()
    }

    /// Lets a large store wait.
    pub(super) fn add_store(&mut self, name: u64, fetch: Fetch<M>) {
        self.new.push_back((Waiting::Store(name), Box::new(fetch)));
    }

    /// Lets an operation wait, together with those of its datagram as far as there is room for all items.
    pub(super) fn add(&mut self, operation: WaitingOperation, mut fetch: Fetch<M>, room_bytes: u64) {
        if let Some((Waiting::Operations(others), along)) = self.new.back_mut()
            && others[0].handed.to.number == operation.handed.to.number
        {
            match along.join(fetch, room_bytes) {
                Ok(()) => return others.push(operation),
                Err(alone) => fetch = alone,
            }
        }
        self.new.push_back((Waiting::Operations(vec![operation]), Box::new(fetch)));
    }

    /// Notes that work is under way, without the copies of operations that are; returns the number of those.
    pub(super) fn begin(&mut self, waiting: &mut Waiting, fetch: &mut Fetch<M>) -> usize {
        let Waiting::Operations(operations) = waiting else { return 0 };
        let mut is_new = Vec::with_capacity(operations.len());
        operations.retain(|operation| {
            is_new.push(operation.identity().is_none_or(|identity| self.under_way.insert(identity)));
            is_new.last() == Some(&true)
        });
        if fetch.keys.len() == is_new.len() {
            let mut is_new = is_new.iter();
            fetch.keys.retain(|_| is_new.next() == Some(&true));
        }
        is_new.len() - operations.len()
    }

    /// Notes that work is no longer under way.
    pub(super) fn end(&mut self, waiting: &Waiting) {
        let Waiting::Operations(operations) = waiting else { return };
        for identity in operations.iter().filter_map(WaitingOperation::identity) {
            self.under_way.remove(&identity);
        }
    }
}

impl Waiting {
    /// True if nothing is left of it.
    pub(crate) fn is_empty(&self) -> bool {
        matches!(self, Self::Operations(operations) if operations.is_empty())
    }
}
