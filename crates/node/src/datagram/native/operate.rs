//! Execution of one operation, and its reply.

use std::cell::Cell;

use minos_base::{Exptime, SizeClass};
use minos_engine::{Access, Get, Mode, Pinned, Staged};
use minos_proto::native::{OpFlags, Opcode, Operation, REPLY_HEAD_BYTES, ReplyRecord, Status};
use minos_sched::WorkerId;

use super::{
    AnswerTo, Begin, Egress, HandOff, Job, Outcome,
    burst::{Burst, around},
    change,
    job::HandedOperation,
    sessions::Ticket,
    statistics,
    transfers::{NotBegunHere, Permit},
    waiting::Hindrance,
};
use crate::ops::{self, Below, Cold, Context, Facts, Need, Placement, Read};

/// The place at which an operation is executed, given the size of its value.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Stage {
    /// The worker at which it arrived, which asks the plan and counts the size.
    Arrived,
    /// The worker that the plan chose.
    Home,
}

impl<'b, M: Mode, P: Placement, E: Egress, H: HandOff> Burst<'b, M, P, E, H> {
    /// Executes an operation, or hands it to the worker that the plan names.
    #[inline]
    pub(super) fn execute(&mut self, to: &AnswerTo, operation: &Operation<'_>, staged: Option<&Staged<'_>>) {
        if operation.opcode == Opcode::Get {
            return self.read(to, operation, staged, Stage::Arrived);
        }
        self.execute_at(to, operation, Stage::Arrived);
    }

    /// Executes an operation that another worker has handed over.
    pub(super) fn execute_handed(&mut self, to: &AnswerTo, operation: &Operation<'_>) {
        if operation.opcode.names_item() && self.owner(operation).is_some() {
            // Another operation has begun here under the same number.
            return self.reply_bare(to, operation, Status::InProgress);
        }
        match self.owner_elsewhere(operation) {
            Some(owner) => self.execute_elsewhere(to, operation, (owner, None)),
            None => self.execute_at(to, operation, Stage::Home),
        }
    }

    /// Executes an operation whose item was fetched. It stays here, where the answers of flash are known, unless its key has
    /// gone to another node meanwhile.
    pub(super) fn execute_fetched(&mut self, to: &AnswerTo, operation: &Operation<'_>) {
        if let Some(owner) = self.owner_elsewhere(operation) {
            return self.execute_elsewhere(to, operation, (owner, None));
        }
        if matches!(operation.opcode, Opcode::Get | Opcode::GetTouch)
            && let Some(class) = self.cx.store.size_class(operation.hash)
        {
            // The index did not tell the size before.
            self.cx.placement.is_here(class);
        }
        self.execute_at(to, operation, Stage::Home);
    }

    pub(super) fn execute_at(&mut self, to: &AnswerTo, operation: &Operation<'_>, stage: Stage) {
        match operation.opcode {
            Opcode::Get => self.read(to, operation, None, stage),
            Opcode::Noop => self.reply_bare(to, operation, Status::Ok),
            Opcode::GetTouch => self.read_and_touch(to, operation, stage),
            Opcode::Fetch => {
                let sent = self.transfers.fetch(&self.cx, to, operation, self.now, self.outlet.close());
                if let Err(cold) = sent {
                    self.wait(to, operation, cold.into(), None);
                }
            }
            Opcode::Stats => self.report(to, operation),
            Opcode::Directory => self.reply_directory(to, operation),
            Opcode::Unknown(_) => self.reply_bare(to, operation, Status::Unsupported),
            opcode if opcode.is_store() => self.store(to, operation, stage),
            _ => self.change(to, operation),
        }
    }

    /// Replies with statistics, a limited number of times a burst.
    fn report(&mut self, to: &AnswerTo, operation: &Operation<'_>) {
        let Some(left) = self.reports_left.checked_sub(1) else {
            return self.reply_bare(to, operation, Status::Busy);
        };
        self.reports_left = left;
        statistics::reply(&self.cx, to, operation, &mut self.outlet);
    }

    /// Reads an item: copies its value into the reply or, if it is too long for a datagram, sends it in
    /// fragments.
    #[inline]
    fn read(&mut self, to: &AnswerTo, operation: &Operation<'_>, staged: Option<&Staged<'_>>, stage: Stage) {
        let now_staged;
        let staged = match staged {
            Some(staged) => staged,
            None => {
                now_staged = self.cx.store.stage(operation.hash);
                &now_staged
            }
        };
        let class = if stage == Stage::Home { None } else { staged.size_class() };
        if let Some(class) = class
            && self.goes_elsewhere(to, operation, class, true)
        {
            return;
        }
        let fitting_bytes = to.value_bytes_max() as u64;
        let bytes_max = match class {
            Some(class) => Some(class.bytes_max().min(fitting_bytes)),
            None => (stage == Stage::Home).then_some(fitting_bytes),
        };
        let longer = match self.copy(to, operation, staged, bytes_max) {
            Ok(Read::Longer(longer)) => longer,
            Ok(_) => return,
            Err(cold) => return self.wait(to, operation, cold.into(), None),
        };
        if stage == Stage::Home {
            self.read_large(to, operation);
        } else if !self.goes_elsewhere(to, operation, longer, class.is_none()) {
            // The size differs from the bucket's. If the bucket gave none, it is counted now.
            self.read(to, operation, Some(staged), Stage::Home);
        }
    }

    /// Copies a value of at most `bytes_max` bytes into a reply, or replies that there is no such item. For a
    /// longer value, or without a bound, only the size is returned.
    ///
    /// # Errors
    /// The item may be on flash.
    #[inline]
    pub(super) fn copy(
        &mut self,
        to: &AnswerTo,
        operation: &Operation<'_>,
        staged: &Staged<'_>,
        bytes_max: Option<u64>,
    ) -> Result<Read, Cold> {
        let get = Get { hash: operation.hash, key: operation.key };
        // Only the fields that the record needs, so that no more of the item's header is unpacked.
        let said = Cell::new((0, 0));
        let cx = &self.cx;
        let compose_head = |facts: &Facts, buffer: &mut Vec<u8>| {
            said.set((facts.flags, facts.cas));
            buffer.extend_from_slice(&[0; REPLY_HEAD_BYTES]);
        };
        let (mut read, mut cold, mut copied_bytes) = (Read::Missing, None, None);
        self.outlet.reply_with(to, |buffer| {
            read = ops::read(cx, staged, &get, bytes_max, buffer, compose_head);
            let bare = |status| ReplyRecord::bare(operation.opcode, status, operation.request);
            match read {
                Read::Copied => {
                    let (item_flags, cas) = said.get();
                    Some(ReplyRecord { item_flags, cas, ..bare(Status::Ok) })
                }
                Read::Missing => match copy_below(cx, &get, bytes_max, buffer) {
                    Ok(Some(facts)) => {
                        copied_bytes = Some(facts.value_bytes);
                        Some(ReplyRecord { item_flags: facts.flags, cas: facts.cas, ..bare(Status::Ok) })
                    }
                    Ok(None) => Some(bare(Status::NotFound)),
                    Err(found) => {
                        cold = Some(found);
                        None
                    }
                },
                Read::Longer(_) => None,
            }
        });
        if let Some(cold) = cold {
            return Err(cold);
        }
        if let Some(bytes) = copied_bytes {
            // Memory did not tell its size.
            self.cx.placement.is_here(SizeClass::of(bytes));
            read = Read::Copied;
        }
        if !matches!(read, Read::Longer(_)) {
            ops::count_get(&self.cx, matches!(read, Read::Copied));
        }
        Ok(read)
    }

    /// Answers a GET whose value does not fit a datagram.
    #[cold]
    fn read_large(&mut self, to: &AnswerTo, operation: &Operation<'_>) {
        let pinned = self.cx.store.pin(operation.hash, operation.key, self.cx.now);
        if pinned.is_none()
            && let Some(cold) = ops::cold(&self.cx, operation.hash, operation.key)
        {
            return self.wait(to, operation, cold.into(), None);
        }
        ops::count_get(&self.cx, pinned.is_some());
        match pinned {
            Some(item) => self.send_pinned(to, (operation.opcode, operation.request), &item),
            None => self.reply_bare(to, operation, Status::NotFound),
        }
    }

    /// Sends the value of an item, in a reply if it fits after all.
    pub(super) fn send_pinned(&mut self, to: &AnswerTo, asked: (Opcode, u32), item: &Pinned<M>) {
        let value = item.value();
        if value.len() <= to.value_bytes_max() {
            let bare = ReplyRecord::bare(asked.0, Status::Ok, asked.1);
            let record = with_facts(bare, &Facts::from(&**item));
            return self.outlet.reply(to, &ReplyRecord { value, ..record });
        }
        let egress = self.outlet.close();
        self.transfers.send_first(to, asked, item, self.now, egress);
    }

    /// Changes an item's expiry and reads it, in one step: the new expiry may already have passed.
    fn read_and_touch(&mut self, to: &AnswerTo, operation: &Operation<'_>, stage: Stage) {
        let staged_class = self.cx.store.size_class(operation.hash);
        if stage == Stage::Arrived
            && let Some(class) = staged_class
            && self.goes_elsewhere(to, operation, class, true)
        {
            return;
        }
        if self.holds() {
            return self.touch_and_hold(to, operation);
        }
        let (cx, fitting_bytes) = (&self.cx, to.value_bytes_max());
        let mut entry = match ops::entry(cx, operation.hash, operation.key) {
            Ok(entry) => entry,
            Err(cold) => return self.wait(to, operation, cold.into(), None),
        };
        let touched = ops::touch(cx, &mut entry, Exptime(operation.detail.ttl));
        ops::count_touch(cx, touched.is_some());
        let bare = |status| ReplyRecord::bare(operation.opcode, status, operation.request);
        let Some(facts) = touched else {
            return self.outlet.reply(to, &bare(Status::NotFound));
        };
        if facts.value_bytes <= fitting_bytes as u64
            && let Some(item) = entry.item()
        {
            let record = with_facts(bare(Status::Ok), &facts);
            return self.outlet.reply(to, &ReplyRecord { value: item.value(), ..record });
        }
        // A large value of a cache can be evicted from under its entry.
        let pinned = entry.pin(cx.store);
        drop(entry);
        match pinned {
            Some(item) => self.send_pinned(to, (operation.opcode, operation.request), &item),
            None => self.outlet.reply(to, &bare(Status::NotFound)),
        }
    }

    /// Stores a value that the record holds, or begins to receive one that it does not.
    fn store(&mut self, to: &AnswerTo, operation: &Operation<'_>, stage: Stage) {
        let store = change::store_operation(operation);
        let value_bytes = u64::from(operation.detail.value_bytes);
        if value_bytes > self.shared.store.value_bytes_max() {
            return self.change(to, operation);
        }
        let class = ops::item_class(&self.cx, &store, operation.hash, value_bytes);
        if stage == Stage::Arrived && self.goes_elsewhere(to, operation, class, true) {
            return;
        }
        if operation.flags.contains(OpFlags::DEFERRED) {
            return self.begin_store(to, operation, None);
        }
        let takes_long =
            store.joins() && value_bytes > 0 && self.cx.store.joins_large(operation.hash, value_bytes);
        if takes_long {
            // Nothing of it has begun, and the transfer takes a ticket of its own.
            self.ticket = None;
        }
        let around = around(&self.cx, self.shared, (self.id, self.now));
        if takes_long
            && self.transfers.store_in_slices(&around, to, operation, store, self.outlet.close()).is_ok()
        {
            return;
        }
        self.change(to, operation);
    }

    /// Begins to receive a value; with a permit if the store has waited for one.
    fn begin_store(&mut self, to: &AnswerTo, operation: &Operation<'_>, permit: Option<Permit>) {
        let stored = (operation, change::store_operation(operation));
        let around = around(&self.cx, self.shared, (self.id, self.now));
        match self.transfers.begin(&around, to, stored, permit, self.outlet.close()) {
            Ok(()) => {}
            // That worker answers it, unless its copy has ended and one was begun elsewhere meanwhile.
            Err(NotBegunHere::BegunAt(worker)) => self.hand_operation(worker, to, operation),
            Err(NotBegunHere::NoRoomYet) => self.wait(to, operation, Hindrance::Room, None),
        }
    }

    /// Begins a large store that has waited, unless its key has gone to another node meanwhile.
    pub(super) fn begin_admitted(&mut self, handed: &HandedOperation, permit: Option<Permit>) {
        let (to, operation) = (&handed.to, &handed.operation());
        match self.owner_elsewhere(operation) {
            Some(owner) => self.execute_elsewhere(to, operation, (owner, None)),
            None => self.begin_store(to, operation, permit),
        }
        // The next one's answer is for another client.
        self.outlet.close();
    }

    /// Executes an operation, once if the client asks for that, and replies with its outcome.
    fn change(&mut self, to: &AnswerTo, operation: &Operation<'_>) {
        if self.holds() && !self.may_hold(to, operation, 0) {
            return;
        }
        let ticket = if operation.flags.contains(OpFlags::ONCE) {
            match self.begin_once(to, operation) {
                Ok(ticket) => Some(ticket),
                Err(outcome) => {
                    self.permit = None;
                    return self.reply_outcome(to, (operation.opcode, operation.request), &outcome);
                }
            }
        } else {
            None
        };
        if M::Access::IS_BY_THREAD && operation.opcode == Opcode::Flush {
            return self.flush_in_turn(to, operation, (ticket, 0));
        }
        match change::apply(&self.cx, operation) {
            Ok(outcome) => self.conclude(to, operation, outcome, ticket),
            // It keeps its ticket, so that copies are told that it is in progress.
            Err(hindrance) => self.wait(to, operation, hindrance, ticket),
        }
    }

    /// The ticket of an operation to be executed once.
    ///
    /// # Errors
    /// The answer to one that was, or may have been, executed before.
    pub(super) fn begin_once(&mut self, to: &AnswerTo, operation: &Operation<'_>) -> Result<Ticket, Outcome> {
        let sessions = &self.shared.sessions;
        let begun = match self.ticket.take() {
            Some(ticket) => Begin::Execute(ticket),
            None => sessions.begin(to.header.session, operation.detail.once, self.id, self.now),
        };
        let refused = match begun {
            Begin::Execute(ticket) => return Ok(ticket),
            Begin::Done(outcome) => {
                self.metrics.once_repeated.count();
                return Err(outcome);
            }
            Begin::InProgress(_) => Status::InProgress,
            Begin::TooOld => Status::TooOld,
            Begin::Unknown => Status::NoSession,
        };
        self.metrics.once_refused.count();
        Err(change::ended(refused))
    }

    /// Hands an operation on a value of `class` to its large worker, if the plan names another worker than
    /// this one; true if it did. With `is_new` the size is counted.
    #[inline]
    fn goes_elsewhere(
        &mut self,
        to: &AnswerTo,
        operation: &Operation<'_>,
        class: SizeClass,
        is_new: bool,
    ) -> bool {
        let placement = &mut *self.cx.placement;
        let is_here = if is_new { placement.is_here(class) } else { placement.serves(class) };
        if is_here {
            return false;
        }
        match placement.home(class) {
            Some(worker) if worker != self.id => {
                self.hand_operation(worker, to, operation);
                true
            }
            _ => false,
        }
    }

    /// Hands an operation to the worker that owns its key's partition.
    pub(super) fn hand_to_owner(&mut self, worker: WorkerId, to: &AnswerTo, operation: &Operation<'_>) {
        self.metrics.operations.count();
        self.metrics.to_owner.count();
        let mut to = *to;
        to.header.queue = worker.0;
        if (self.hand_off)(worker, Job::operation(&to, operation)).is_err() {
            self.metrics.to_owner_ring_full.count();
            self.reply_bare(&to, operation, Status::Busy);
        }
    }

    /// Executes a flush, one owner of partitions after another: `flushed` have done so.
    pub(super) fn flush_in_turn(
        &mut self,
        to: &AnswerTo,
        operation: &Operation<'_>,
        (ticket, mut flushed): (Option<Ticket>, usize),
    ) {
        let Some(worker) = ops::flush_in_turn(&self.cx, Exptime(operation.detail.ttl), &mut flushed) else {
            return self.conclude(to, operation, change::ended(Status::Ok), ticket);
        };
        if (self.hand_off)(worker, Job::flush(to, operation, (ticket, flushed))).is_err() {
            self.metrics.to_owner_ring_full.count();
            self.reply_bare(to, operation, Status::Busy);
        }
    }

    fn hand_operation(&mut self, worker: WorkerId, to: &AnswerTo, operation: &Operation<'_>) {
        let mut to = *to;
        to.header.queue = worker.0;
        if (self.hand_off)(worker, Job::operation(&to, operation)).is_ok() {
            self.metrics.large_handed_over.count();
        } else {
            self.metrics.large_ring_full.count();
            self.reply_bare(&to, operation, Status::Busy);
        }
    }
}

fn with_facts<'a>(record: ReplyRecord<'a>, facts: &Facts) -> ReplyRecord<'a> {
    ReplyRecord { item_flags: facts.flags, cas: facts.cas, ..record }
}

/// Begins the reply to a read that found no item in memory: with the value, if it was read from flash for this
/// operation. Returns that item's facts.
///
/// # Errors
/// The item may be on flash.
fn copy_below<'a, M: Mode, P>(
    cx: &Context<'a, M, P>,
    get: &Get<'_>,
    bytes_max: Option<u64>,
    buffer: &mut Vec<u8>,
) -> Result<Option<&'a Facts>, Cold> {
    let copy = match ops::below(cx, get.hash, get.key) {
        Below::Missing => None,
        Below::Copied(facts, value) => Some((facts, value)),
        Below::Cold(cold) => return Err(cold),
    };
    if let Some((facts, _)) = copy
        && bytes_max.is_none_or(|bytes_max| facts.value_bytes > bytes_max)
    {
        return Err(Cold::Unknown(SizeClass::of(facts.value_bytes), Need::Item));
    }
    buffer.extend_from_slice(&[0; REPLY_HEAD_BYTES]);
    Ok(copy.map(|(facts, value)| {
        buffer.extend_from_slice(value);
        facts
    }))
}
