//! What a burst does with operations and answers that wait for flash.

use minos_base::Exptime;
use minos_engine::Mode;
use minos_proto::native::{OpFlags, Opcode, Operation, ReplyRecord, Status};
use minos_sched::WorkerId;

use super::{
    AnswerTo, Egress, Job, Outcome,
    burst::{Burst, around},
    change::ended,
    job::HandedOperation,
    sessions::Ticket,
    waiting::{Held, HeldChange, Hindrance, Said, Waiting, WaitingOperation, failed_status, identity_of},
};
use crate::ops::{self, Fetch, Fetched, Placement};

/// Memory that a waiting operation takes besides its key and value, rounded up.
const OPERATION_BYTES: u64 = 512;

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
        self.shared.holds_replies
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
