//! Operations that wait for flash.
//!
//! The hot operations of a datagram are answered at once, and its cold ones together when their items are in memory:
//! they are read as part of one vector (Vector Interfaces §3.1, §4.2). An operation to be executed once stays in
//! progress meanwhile, and a second copy of any other is dropped.

use std::{
    collections::{HashSet, VecDeque},
    net::SocketAddr,
};

use minos_base::{KeyHash, SizeClass};
use minos_engine::Mode;
use minos_proto::native::{Operation, Status};
use minos_sched::WorkerId;
use minos_tier::SyncId;

use super::{
    AnswerTo, Egress, Job,
    burst::{Burst, around},
    held::Held,
    job::HandedOperation,
    sessions::Ticket,
    transfers::Permit,
};
use crate::ops::{Cold, Failed, Fetch, Fetched, Need, Placement};

/// Memory that a waiting operation takes besides its key and value, rounded up.
const OPERATION_BYTES: u64 = 512;

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
    handed: HandedOperation,
    /// Its ticket, if it is to be executed once.
    ticket: Option<Ticket>,
    permit: Permit,
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
    fn add(&mut self, operation: WaitingOperation, mut fetch: Fetch<M>, room_bytes: u64) {
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

impl<'b, M, P, E, H> Burst<'b, M, P, E, H>
where
    M: Mode,
    P: Placement,
    E: Egress,
    H: FnMut(WorkerId, Job) -> Result<(), Job>,
{
    /// Lets an operation wait until what hinders it has passed. Without `ticket`, nothing of it was begun.
    #[cold]
    pub(super) fn wait(
        &mut self,
        to: &AnswerTo,
        operation: &Operation<'_>,
        hindrance: Hindrance,
        ticket: Option<Ticket>,
    ) {
        let fetch = match hindrance {
            Hindrance::Item(class, need) => Fetch::of(operation.hash, operation.key, class, need),
            Hindrance::Room => Fetch::of_room(&self.cx),
            Hindrance::Emptying(emptying) => Fetch::of_emptying(emptying),
            Hindrance::Failed(failed) => return self.reply_bare(to, operation, failed_status(failed)),
        };
        if !self.admit_wait(to, operation, operation.value.len()) {
            return;
        }
        let Some(permit) = self.permit.take() else { return };
        self.metrics.waits.count();
        let handed = HandedOperation::of(to, operation);
        // One that left memory again is fetched alone: then it stays until it is executed.
        let room_bytes = if self.cx.fetched.is_some() { 0 } else { Fetch::room_bytes(&self.cx) };
        self.waits.add(WaitingOperation { handed, ticket, permit }, fetch, room_bytes);
    }

    /// Takes memory for an operation that waits, unless it has some. False if there is none, and it was answered.
    pub(super) fn admit_wait(
        &mut self,
        to: &AnswerTo,
        operation: &Operation<'_>,
        value_bytes: usize,
    ) -> bool {
        if self.permit.is_none() {
            let bytes = OPERATION_BYTES + (2 * operation.key.len() + value_bytes) as u64;
            self.permit = self.shared.waiting_bounds().admit(to.peer.ip(), bytes);
        }
        if self.permit.is_none() {
            self.metrics.waits_refused.count();
            self.reply_bare(to, operation, Status::Busy);
        }
        self.permit.is_some()
    }

    /// Goes on with work whose items have come.
    pub(super) fn go_on(&mut self, waiting: Waiting, fetched: &'b Fetched) {
        self.cx.fetched = Some(fetched);
        match waiting {
            Waiting::Operations(operations) => {
                for WaitingOperation { handed, ticket, permit } in operations {
                    (self.ticket, self.permit) = (ticket, Some(permit));
                    self.execute_fetched(&handed.to, &handed.operation());
                    (self.ticket, self.permit) = (None, None);
                }
            }
            Waiting::Store(name) => {
                let around = around(&self.cx, self.shared, (self.id, self.now));
                self.transfers.resume(name, &around, self.outlet.close());
            }
        }
    }

    /// Answers operations that cannot wait. Nothing of them was done.
    pub(super) fn refuse_waiting(&mut self, waiting: &Waiting) {
        let Waiting::Operations(operations) = waiting else { return };
        for WaitingOperation { handed, .. } in operations {
            self.metrics.waits_refused.count();
            self.reply_bare(&handed.to, &handed.operation(), Status::Busy);
        }
    }
}
