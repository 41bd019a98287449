//! The calls of a burst to its transfers.

use std::time::Instant;

use minos_engine::{Mode, Pinned};
use minos_proto::native::{
    Flags, FragmentHead, FragmentRange, Grant, Malformed, OpFlags, Opcode, Operation, Ranges, ReplyRecord,
    Status,
};

use super::{
    answers::{bytes_of, source},
    bounds::Permit,
    line::Waiter,
    slot::{Asked, Ended, HeldStore, State},
    state::{Around, NoRoom, NotBegunHere, Transfers},
    stores::{NotBegun, slot_of},
};
use crate::{
    datagram::native::{AnswerTo, Egress, Outcome, change::ended},
    ops::{self, Cold, Context, Facts, StoreOperation},
};

impl<M: Mode> Transfers<M> {
    /// Answers a read whose value does not fit a datagram with a grant, followed by the first window unless
    /// the burst's budget is used up. Then the client requests it.
    pub(crate) fn send_first(
        &mut self,
        to: &AnswerTo,
        (opcode, request): (Opcode, u32),
        item: &Pinned<M>,
        now: Instant,
        egress: &mut impl Egress,
    ) {
        self.activity += 1;
        let facts = Facts::from(&**item);
        let Some(source) = source(to, request, item) else { return };
        let first_follows = self.may_send(to, &source, u32::MAX, now);
        let grant = self.grant(0, facts.value_bytes, source.fragment_bytes);
        let grant = bytes_of(&Grant { first_follows, ..grant });
        let record = ReplyRecord {
            item_flags: facts.flags,
            cas: facts.cas,
            value: &grant,
            ..ReplyRecord::bare(opcode, Status::Large, request)
        };
        self.reply(to, &record, egress);
        self.counters.large_gets.count();
        if first_follows {
            let first = FragmentRange { first: 0, count: u32::MAX };
            self.send_window(to, &source, std::iter::once(first), egress);
        } else {
            self.counters.windows_deferred.count();
        }
    }

    /// Sends the fragments that a FETCH requests, at most a window; or refuses if the burst's budget is used
    /// up.
    ///
    /// # Errors
    /// The item may be on flash.
    pub(crate) fn fetch<P>(
        &mut self,
        cx: &Context<'_, M, P>,
        to: &AnswerTo,
        operation: &Operation<'_>,
        now: Instant,
        egress: &mut impl Egress,
    ) -> Result<(), Cold> {
        let bare = |status| ReplyRecord::bare(operation.opcode, status, operation.request);
        let Ok(ranges) = Ranges::parse(operation.value) else {
            self.reply(to, &bare(Status::BadRequest), egress);
            return Ok(());
        };
        self.activity += 1;
        let found = cx.store.pin(operation.hash, operation.key, cx.now);
        if found.is_none()
            && let Some(cold) = ops::cold(cx, operation.hash, operation.key)
        {
            return Err(cold);
        }
        self.counters.fetches.count();
        let Some(item) = found.filter(|item| Facts::from(&**item).cas == operation.detail.operand) else {
            self.counters.fetches_gone.count();
            self.reply(to, &bare(Status::Gone), egress);
            return Ok(());
        };
        let Some(source) = source(to, operation.request, &item) else { return Ok(()) };
        let asked = ranges.clone().fold(0, |asked: u32, range| asked.saturating_add(range.count));
        if self.may_send(to, &source, asked, now) {
            self.send_window(to, &source, ranges, egress);
        } else {
            self.counters.fetches_refused.count();
            self.reply(to, &bare(Status::Busy), egress);
        }
        Ok(())
    }

    /// Begins a store whose value comes in fragments, or confirms that it has begun. One without room waits in the line of
    /// its address, and begins with the `permit` that it gets there.
    ///
    /// # Errors
    /// It was not answered.
    pub(crate) fn begin<P>(
        &mut self,
        around: &Around<'_, '_, M, P>,
        to: &AnswerTo,
        (operation, store): (&Operation<'_>, StoreOperation),
        permit: Option<Permit>,
        egress: &mut impl Egress,
    ) -> Result<(), NotBegunHere> {
        self.activity += 1;
        let asked = Asked::of(to.header.session, operation);
        let slots = || self.slots.iter().flatten();
        let again = slots().find(|slot| slot.awaits_first(to.peer, &asked, operation.key));
        let begun = match again.map(|slot| slot.grant) {
            Some(grant) => Ok(grant),
            // Nobody would send its fragments.
            None if slots().any(|slot| slot.has_passed(to, &asked)) => return Ok(()),
            None => self.begin_new(around, to, asked, (operation.key, store), permit),
        };
        match begun {
            Ok(grant) => {
                let grant = bytes_of(&grant);
                let record = ReplyRecord { value: &grant, ..asked.reply(&ended(Status::Granted)) };
                self.reply(to, &record, egress);
            }
            Err(NotBegun::InProgress(worker)) if worker != around.worker => {
                return Err(NotBegunHere::BegunAt(worker));
            }
            Err(NotBegun::NoRoomYet) => return Err(NotBegunHere::NoRoomYet),
            Err(not_begun) => {
                self.counters.stores_refused.count();
                let mut outcome = not_begun.outcome();
                if matches!(not_begun, NotBegun::NoPermit) {
                    outcome.cas = self.bounds.wait(Waiter::new(around.worker, to, operation, around.now));
                }
                self.reply(to, &asked.reply(&outcome), egress);
            }
        }
        Ok(())
    }

    /// Executes a store whose value is in `operation`, in slices.
    ///
    /// # Errors
    /// There is no room for another store in slices; nothing was executed.
    pub(crate) fn store_in_slices<P>(
        &mut self,
        around: &Around<'_, '_, M, P>,
        to: &AnswerTo,
        operation: &Operation<'_>,
        store: StoreOperation,
        egress: &mut impl Egress,
    ) -> Result<(), NoRoom> {
        let asked = Asked::of(to.header.session, operation);
        match self.begin_new(around, to, asked, (operation.key, store), None) {
            Ok(grant) => {
                let at = slot_of(grant.transfer);
                self.take_all(at, operation.value);
                if self.proceed(at, around) {
                    self.tell_end(at, egress);
                }
            }
            Err(
                NotBegun::Ended(Outcome { status: Status::Busy | Status::NoMemory, .. })
                | NotBegun::NoPermit
                | NotBegun::NoRoomYet,
            ) => {
                return Err(NoRoom);
            }
            Err(not_begun) => self.reply(to, &asked.reply(&not_begun.outcome()), egress),
        }
        Ok(())
    }

    /// True if a value that has arrived is being copied.
    pub(crate) fn is_copying(&self) -> bool {
        !self.copying.is_empty()
    }

    /// Copies a slice of at most `bytes_max` bytes of a value that has arrived.
    pub(crate) fn advance<P>(
        &mut self,
        around: &Around<'_, '_, M, P>,
        bytes_max: usize,
        egress: &mut impl Egress,
    ) {
        if let Some(at) = self.copy_slice(around, bytes_max) {
            self.tell_end(at, egress);
        }
    }

    /// Goes on with a store whose item was fetched.
    pub(crate) fn resume<P>(&mut self, name: u64, around: &Around<'_, '_, M, P>, egress: &mut impl Egress) {
        let at = slot_of(name);
        let is_there =
            self.slots.get(at).and_then(Option::as_ref).is_some_and(|slot| slot.grant.transfer == name);
        if is_there && self.proceed(at, around) {
            self.tell_end(at, egress);
        }
    }

    /// Tells the outcome of a store that has waited; it is `failed` if that is given.
    pub(crate) fn release(
        &mut self,
        held: HeldStore,
        failed: Option<Outcome>,
        now: Instant,
        egress: &mut impl Egress,
    ) {
        if let Some(at) = self.end_held(held, failed, now) {
            self.tell_end(at, egress);
        }
    }

    /// Sends a client the outcome of its store, unless that waits.
    fn tell_end(&mut self, at: usize, egress: &mut impl Egress) {
        let Some(slot) = &self.slots[at] else { return };
        let State::Ended(Ended { outcome, .. }) = slot.state else { return };
        let (to, asked) = (slot.to, slot.asked);
        if asked.flags.contains(OpFlags::DEFERRED) {
            self.acknowledge(at, &to, egress);
        } else {
            // No client asks about it again, because none knows its name.
            self.slots[at] = None;
            self.reply(&to, &asked.reply(&outcome), egress);
        }
    }

    /// Takes a fragment, and answers if the client asks for that or it was the last one missing.
    ///
    /// # Errors
    /// It is not a fragment of its transfer.
    pub(crate) fn fragment<P>(
        &mut self,
        around: &Around<'_, '_, M, P>,
        to: &AnswerTo,
        flags: Flags,
        body: &[u8],
        egress: &mut impl Egress,
    ) -> Result<(), Malformed> {
        self.activity += 1;
        let (head, bytes) = FragmentHead::parse(body)?;
        let Some(at) = self.find(head.transfer, to) else {
            self.counters.fragments_astray.count();
            if flags.contains(Flags::ACK_WANTED) {
                // The request is forgotten; the client knows its transfer.
                let gone =
                    ReplyRecord { cas: head.transfer, ..ReplyRecord::bare(Opcode::Put, Status::Gone, 0) };
                self.reply(to, &gone, egress);
            }
            return Ok(());
        };
        let is_complete = self.take_in(at, to, (head.index, bytes), around.now)?;
        let is_over = is_complete && self.proceed(at, around);
        if is_over || flags.contains(Flags::ACK_WANTED) {
            self.acknowledge(at, to, egress);
        }
        Ok(())
    }

    /// Gives up stores of which no window arrived for too long, and forgets outcomes that are equally old.
    pub(crate) fn on_tick(&mut self, now: Instant) {
        for at in 0..self.slots.len() {
            let Some(slot) = self.slots[at].as_ref() else { continue };
            if now.saturating_duration_since(slot.touched) <= self.config.timeout {
                continue;
            }
            if slot.is_ended() {
                self.slots[at] = None;
            } else if matches!(&slot.state, State::Open(arriving) if !arriving.received.is_complete()) {
                // An operation to execute once was not executed; dropping its ticket records that.
                self.counters.stores_timed_out.count();
                self.end(at, Ended { outcome: ended(Status::TimedOut), fragments: 0 }, now);
            }
        }
    }
}
