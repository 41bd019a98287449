//! Stores whose values arrive in fragments: their beginning, progress and end.

use std::time::Instant;

use minos_engine::Mode;
use minos_proto::native::{FRAGMENT_HEAD_BYTES, Fragments, Grant, Malformed, OpFlags, Status};
use minos_sched::WorkerId;

use super::{
    answers::fragment_bytes,
    bounds::Permit,
    received::Received,
    slot::{Arriving, Asked, Ended, HeldStore, Slot, State},
    state::{Around, Transfers},
};
use crate::{
    datagram::native::{
        AnswerTo, Begin, Outcome,
        change::{ended, stored_status},
        sessions::Ticket,
    },
    ops::{self, Fetch, Need, PendingStore, Step, StoreOperation, Stored},
    server::config::TRANSFERS_PER_WORKER,
};

/// The reason why a store may not begin.
pub(super) enum NotBegun {
    /// It ends with this outcome.
    Ended(Outcome),
    /// This worker has begun it.
    InProgress(WorkerId),
    /// A bound on the stores of its address, or on the memory of all, is met.
    NoPermit,
    /// There is no room for its value until flash has taken items.
    NoRoomYet,
}

impl NotBegun {
    /// The outcome to tell the client.
    pub(super) fn outcome(&self) -> Outcome {
        match *self {
            Self::Ended(outcome) => outcome,
            Self::NoPermit => ended(Status::Busy),
            Self::InProgress(_) => ended(Status::InProgress),
            Self::NoRoomYet => ended(Status::NoMemory),
        }
    }
}

impl<M: Mode> Transfers<M> {
    /// Decides whether a store may begin, and gives it a slot.
    pub(super) fn begin_new<P>(
        &mut self,
        around: &Around<'_, '_, M, P>,
        to: &AnswerTo,
        asked: Asked,
        stored: (&[u8], StoreOperation),
        permit: Option<Permit>,
    ) -> Result<Grant, NotBegun> {
        let ticket = if asked.flags.contains(OpFlags::ONCE) {
            match around.sessions.begin(asked.session, asked.detail.once, around.worker, around.now) {
                Begin::Execute(ticket) => Some(ticket),
                Begin::Done(outcome) => return Err(NotBegun::Ended(outcome)),
                Begin::InProgress(worker) => return Err(NotBegun::InProgress(worker)),
                Begin::TooOld => return Err(NotBegun::Ended(ended(Status::TooOld))),
                Begin::Unknown => return Err(NotBegun::Ended(ended(Status::NoSession))),
            }
        } else {
            None
        };
        // If the store is not admitted, its ticket is dropped, so a retry may be.
        let grant = self.admit(around, to, asked, stored, (permit, ticket))?;
        self.counters.stores_begun.count();
        Ok(grant)
    }

    /// Takes the resources of a store: a slot, a permit unless it has one, and memory.
    fn admit<P>(
        &mut self,
        around: &Around<'_, '_, M, P>,
        to: &AnswerTo,
        asked: Asked,
        (key, store): (&[u8], StoreOperation),
        (permit, ticket): (Option<Permit>, Option<Ticket>),
    ) -> Result<Grant, NotBegun> {
        let refused = |status| NotBegun::Ended(ended(status));
        let value_bytes = u64::from(asked.detail.value_bytes);
        if value_bytes > around.cx.store.value_bytes_max() {
            return Err(refused(Status::TooLarge));
        }
        let fragment_bytes = fragment_bytes(to, FRAGMENT_HEAD_BYTES);
        let fragments =
            Fragments::of(value_bytes, fragment_bytes).map_err(|_| refused(Status::BadRequest))?;
        if fragments.count() == 0 {
            return Err(refused(Status::BadRequest));
        }
        if around.is_draining {
            return Err(refused(Status::Busy));
        }
        let at = self.free_slot().ok_or_else(|| refused(Status::Busy))?;
        let permit = permit.or_else(|| self.bounds.admit(to.peer.ip(), value_bytes));
        let permit = permit.ok_or(NotBegun::NoPermit)?;
        if ops::awaits_room(around.cx, value_bytes) {
            return Err(NotBegun::NoRoomYet);
        }
        let reserved = around.cx.store.reserve(asked.hash, key, value_bytes);
        let Ok(reservation) = reserved else {
            if ops::may_wait(around.cx) {
                return Err(NotBegun::NoRoomYet);
            }
            around.cx.counters.store_no_memory.count();
            return Err(refused(Status::NoMemory));
        };
        let arriving = Arriving {
            pending: PendingStore::new(reservation, asked.hash, key, store),
            fragments,
            received: Received::new(fragments.count()),
            in_window: 0,
            ticket,
            permit: Some(permit),
        };
        let (transfer, state) = (self.name(at), State::Open(Box::new(arriving)));
        let grant = self.grant(transfer, value_bytes, fragment_bytes);
        self.slots[at] = Some(Slot { grant, to: *to, asked, touched: around.now, state });
        self.open += 1;
        Ok(grant)
    }

    /// A free slot, or the one whose outcome is the oldest.
    fn free_slot(&mut self) -> Option<usize> {
        if let Some(at) = self.slots.iter().position(Option::is_none) {
            return Some(at);
        }
        if self.slots.len() < TRANSFERS_PER_WORKER {
            self.slots.push(None);
            return Some(self.slots.len() - 1);
        }
        let ended = self.slots.iter().enumerate().filter_map(|(at, slot)| Some((at, slot.as_ref()?)));
        ended.filter(|(_, slot)| slot.is_ended()).min_by_key(|(_, slot)| slot.touched).map(|(at, _)| at)
    }

    /// A name for the transfer in slot `at`: the slot in the lowest byte, then bits that cannot be guessed,
    /// never zero.
    fn name(&mut self, at: usize) -> u64 {
        self.begun += 1;
        let number = u128::from(self.config.queue) << 64 | u128::from(self.begun);
        let random = self.config.names.hash(&number.to_le_bytes()) >> 8;
        random.max(1) << 8 | at as u64
    }

    /// The slot of the transfer with this name, if it belongs to this client. Where datagrams are sealed the
    /// session must match too: the address may be another client's by now.
    pub(super) fn find(&self, transfer: u64, to: &AnswerTo) -> Option<usize> {
        let at = slot_of(transfer);
        let slot = self.slots.get(at)?.as_ref()?;
        let is_of_session = !to.header.is_sealed() || slot.asked.session == to.header.session;
        (slot.grant.transfer == transfer && slot.to.peer == to.peer && is_of_session).then_some(at)
    }

    /// Copies the bytes of a fragment to their place; true if they were the last ones missing. A fragment
    /// without bytes is a question. Only whole windows prolong a store, or a client could hold its memory
    /// with few fragments.
    pub(super) fn take_in(
        &mut self,
        at: usize,
        to: &AnswerTo,
        (index, bytes): (u32, &[u8]),
        now: Instant,
    ) -> Result<bool, Malformed> {
        let Some(slot) = self.slots[at].as_mut() else { return Ok(false) };
        let State::Open(arriving) = &mut slot.state else { return Ok(false) };
        if bytes.is_empty() {
            return Ok(false);
        }
        let range = arriving.fragments.range(index).filter(|range| range.len() == bytes.len());
        let range = range.ok_or(Malformed::Body)?;
        self.counters.fragments_in.count();
        if !arriving.received.mark(index) {
            self.counters.fragments_again.count();
            return Ok(false);
        }
        slot.to = *to;
        arriving.pending.value_mut()[range].copy_from_slice(bytes);
        arriving.in_window += 1;
        if arriving.in_window >= slot.grant.window {
            (arriving.in_window, slot.touched) = (0, now);
        }
        Ok(arriving.received.is_complete())
    }

    /// Takes a whole value that has already arrived for the store in slot `at`.
    pub(super) fn take_all(&mut self, at: usize, value: &[u8]) {
        let Some(State::Open(arriving)) = self.slots[at].as_mut().map(|slot| &mut slot.state) else { return };
        arriving.pending.value_mut().copy_from_slice(value);
        (0..arriving.fragments.count()).for_each(|index| {
            arriving.received.mark(index);
        });
    }

    /// Continues a store whose value has arrived. True if it has ended; if bytes must be copied first,
    /// [`Transfers::advance`] does so, and [`Transfers::resume`] goes on with one whose item is fetched.
    pub(super) fn proceed<P>(&mut self, at: usize, around: &Around<'_, '_, M, P>) -> bool {
        let Some(slot) = &mut self.slots[at] else { return true };
        let State::Open(arriving) = &mut slot.state else { return true };
        let Arriving { pending, permit, .. } = &mut **arriving;
        let step = pending.next_step(around.cx, |bytes| {
            // A join holds memory while it lasts, so it needs a permit for its own bytes. Those that wait have begun nothing.
            drop(permit.take());
            *permit = self.bounds.admit_before_all(slot.to.peer.ip(), bytes);
            permit.is_some()
        });
        match step {
            Step::Copy => self.copying.push_back(at),
            Step::Fetch(class) => {
                let fetch = Fetch::of(pending.hash(), pending.key(), class, Need::Item);
                self.cold.push((slot.grant.transfer, fetch));
            }
            Step::Room => self.cold.push((slot.grant.transfer, Fetch::of_room(around.cx))),
            Step::Over(stored) => {
                self.conclude(at, around, &stored);
                return true;
            }
        }
        false
    }

    /// Copies a slice of at most `bytes_max` bytes for a store whose value has arrived. Returns its slot if
    /// the store has ended.
    pub(super) fn copy_slice<P>(&mut self, around: &Around<'_, '_, M, P>, bytes_max: usize) -> Option<usize> {
        let at = self.copying.pop_front()?;
        let slot = self.slots[at].as_mut()?;
        let State::Open(arriving) = &mut slot.state else { return None };
        slot.touched = around.now;
        if arriving.pending.copy(bytes_max) > 0 {
            self.copying.push_back(at);
            return None;
        }
        self.proceed(at, around).then_some(at)
    }

    /// Ends a store with this result.
    fn conclude<P>(&mut self, at: usize, around: &Around<'_, '_, M, P>, stored: &Stored) {
        let in_progress = Ended { outcome: ended(Status::InProgress), fragments: 0 };
        let Some(arriving) = self.end(at, in_progress, around.now) else { return };
        let Arriving { pending, fragments, ticket, permit, .. } = *arriving;
        around.cx.counters.cmd_set.count();
        let (store, _, _) = pending.end();
        drop(permit);
        let (status, cas) = stored_status(stored);
        let item_flags = if status == Status::Ok && !store.joins() { store.flags } else { 0 };
        let outcome = Outcome { item_flags, cas, ..ended(status) };
        // A store that a bound or a move has hindered may be tried again under its number.
        let ticket = ticket.filter(|_| !matches!(status, Status::Busy | Status::NotOwner));
        self.counters.stores_completed.count();
        let Some(slot) = &mut self.slots[at] else { return };
        if around.holds_replies {
            slot.state = State::Held(fragments.count());
            self.held.push(HeldStore { name: slot.grant.transfer, outcome, ticket });
            return;
        }
        slot.state = State::Ended(Ended { outcome, fragments: fragments.count() });
        if let Some(ticket) = ticket {
            ticket.finish(outcome);
        }
    }

    /// Ends a store whose outcome has waited, if it is `failed` with that one; returns its slot.
    pub(super) fn end_held(
        &mut self,
        held: HeldStore,
        failed: Option<Outcome>,
        now: Instant,
    ) -> Option<usize> {
        let HeldStore { name, outcome, ticket } = held;
        let outcome = failed.unwrap_or(outcome);
        if let Some(ticket) = ticket {
            ticket.finish(outcome);
        }
        // Nothing else ends a store whose outcome waits.
        let (at, slot) = (slot_of(name), self.slots[slot_of(name)].as_mut()?);
        let State::Held(fragments) = slot.state else { return None };
        (slot.state, slot.touched) = (State::Ended(Ended { outcome, fragments }), now);
        Some(at)
    }

    /// Ends a store that is arriving and returns its state.
    pub(super) fn end(&mut self, at: usize, ended: Ended, now: Instant) -> Option<Box<Arriving<M>>> {
        let slot = self.slots[at].as_mut()?;
        match std::mem::replace(&mut slot.state, State::Ended(ended)) {
            State::Open(arriving) => {
                slot.touched = now;
                self.open -= 1;
                Some(arriving)
            }
            over @ (State::Held(_) | State::Ended(_)) => {
                slot.state = over;
                None
            }
        }
    }
}

pub(super) fn slot_of(transfer: u64) -> usize {
    (transfer & 0xff) as usize
}
