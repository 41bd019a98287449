//! Answers that wait until the changes that they report are durable.
//!
//! A change is executed at once and answered later. Meanwhile it is in progress for its session, and a second copy of
//! one without a session is dropped, as with operations that wait for an item. Without memory to wait in, it is not
//! executed.

use minos_base::Exptime;
use minos_engine::{Mode, Pinned};
use minos_proto::native::{OpFlags, Opcode, Operation, ReplyRecord, Status};
use minos_sched::WorkerId;

use super::{
    AnswerTo, Egress, Job, Outcome,
    burst::Burst,
    change::ended,
    sessions::Ticket,
    transfers::{HeldStore, Permit},
    waiting::{Identity, identity_of},
};
use crate::ops::{self, Placement};

/// An answer that waits.
pub(crate) enum Held<M: Mode> {
    /// To an operation that carried all its data.
    Change(Box<HeldChange<M>>),
    /// To a large store, at the worker that holds it.
    Store(HeldStore),
}

/// The answer to an operation that carried all its data.
pub(crate) struct HeldChange<M: Mode> {
    to: AnswerTo,
    opcode: Opcode,
    request: u32,
    said: Said<M>,
    /// Its ticket, if it is to be executed once.
    ticket: Option<Ticket>,
    /// Tells its copies otherwise.
    identity: Option<Identity>,
    _permit: Option<Permit>,
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

impl<'b, M, P, E, H> Burst<'b, M, P, E, H>
where
    M: Mode,
    P: Placement,
    E: Egress,
    H: FnMut(WorkerId, Job) -> Result<(), Job>,
{
    /// True if the answers to changes wait.
    #[inline]
    pub(super) fn holds(&self) -> bool {
        M::HAS_FLASH && self.shared.holds_replies
    }

    /// Takes memory for the answer to a change. False if the operation was answered or dropped instead.
    pub(super) fn may_hold(&mut self, to: &AnswerTo, operation: &Operation<'_>, value_bytes: usize) -> bool {
        let is_once = operation.flags.contains(OpFlags::ONCE);
        if !is_once && self.waits.is_under_way(&identity_of(to, operation)) {
            self.metrics.waits_repeated.count();
            return false;
        }
        self.admit_wait(to, operation, value_bytes)
    }

    /// Ends a change that was executed: answers it now, or keeps its answer.
    #[inline]
    pub(super) fn conclude(
        &mut self,
        to: &AnswerTo,
        operation: &Operation<'_>,
        outcome: Outcome,
        ticket: Option<Ticket>,
    ) {
        if self.holds() {
            return self.hold(to, operation, Said::Outcome(outcome), ticket);
        }
        if let Some(ticket) = ticket {
            ticket.finish(outcome);
        }
        self.reply_outcome(to, (operation.opcode, operation.request), &outcome);
    }

    #[cold]
    fn hold(&mut self, to: &AnswerTo, operation: &Operation<'_>, said: Said<M>, ticket: Option<Ticket>) {
        let &Operation { opcode, request, .. } = operation;
        let identity = ticket.is_none().then(|| identity_of(to, operation));
        let _permit = self.permit.take();
        self.waits.hold(Held::Change(Box::new(HeldChange {
            to: *to,
            opcode,
            request,
            said,
            ticket,
            identity,
            _permit,
        })));
    }

    /// Changes an item's expiry and reads it, in one step, and keeps the answer.
    pub(super) fn touch_and_hold(&mut self, to: &AnswerTo, operation: &Operation<'_>) {
        if !self.may_hold(to, operation, to.value_bytes_max()) {
            return;
        }
        let cx = &self.cx;
        let mut entry = match ops::entry(cx, operation.hash, operation.key) {
            Ok(entry) => entry,
            Err(cold) => return self.wait(to, operation, cold.into(), None),
        };
        let touched = ops::touch(cx, &mut entry, Exptime(operation.detail.ttl));
        ops::count_touch(cx, touched.is_some());
        let pinned = touched.and_then(|_| entry.pin(cx.store));
        drop(entry);
        let said = pinned.map_or(Said::Outcome(ended(Status::NotFound)), Said::Item);
        self.hold(to, operation, said, None);
    }

    /// Sends answers that have waited. Unless the changes are durable, they say that.
    pub(super) fn release(&mut self, held: Vec<Held<M>>, is_durable: bool) {
        let failed = (!is_durable).then(|| ended(Status::NotDurable));
        for held in held {
            match held {
                Held::Change(change) => self.release_change(*change, failed),
                Held::Store(store) => self.transfers.release(store, failed, self.now, self.outlet.close()),
            }
        }
    }

    fn release_change(&mut self, held: HeldChange<M>, failed: Option<Outcome>) {
        let HeldChange { to, opcode, request, said, ticket, .. } = held;
        let outcome = match (failed, said) {
            (Some(failed), _) => failed,
            (None, Said::Outcome(outcome)) => outcome,
            (None, Said::Item(item)) => return self.send_pinned(&to, (opcode, request), &item),
        };
        if let Some(ticket) = ticket {
            ticket.finish(outcome);
        }
        self.reply_outcome(&to, (opcode, request), &outcome);
    }

    /// Replies with the outcome of a change.
    #[inline]
    pub(super) fn reply_outcome(
        &mut self,
        to: &AnswerTo,
        (opcode, request): (Opcode, u32),
        &Outcome { status, item_flags, cas, number }: &Outcome,
    ) {
        let digits = number.map(u64::to_le_bytes);
        let value = digits.as_ref().map_or(&[][..], |digits| digits);
        let bare = ReplyRecord::bare(opcode, status, request);
        self.outlet.reply(to, &ReplyRecord { item_flags, cas, value, ..bare });
    }
}
