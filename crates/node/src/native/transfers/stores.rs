//! Stores whose values arrive in fragments: how they begin, what arrives, how they end.

use std::time::Instant;

use minos_engine::Mode;
use minos_proto::native::{FRAGMENT_HEAD_BYTES, Fragments, Grant, Malformed, OpFlags, Status};

use super::{
    Around, Transfers,
    answers::fragment_bytes,
    received::Received,
    slot::{Arriving, Asked, Ended, Slot, State},
};
use crate::{
    config::TRANSFERS_PER_WORKER,
    execute::{StoreOperation, commit_store},
    native::{
        AnswerTo, Begin, Outcome,
        change::{ended, stored_status},
        sessions::Ticket,
    },
};

impl<M: Mode> Transfers<M> {
    /// Judges whether a store may begin, and gives it a slot. The error is what came of it instead.
    pub(super) fn begin_new<P>(
        &mut self,
        around: &Around<'_, '_, M, P>,
        to: &AnswerTo,
        asked: Asked,
        key: &[u8],
        store: StoreOperation,
    ) -> Result<Grant, Outcome> {
        let ticket = if asked.flags.contains(OpFlags::ONCE) {
            match around.sessions.begin(asked.session, asked.detail.once, around.now) {
                Begin::Execute(ticket) => Some(ticket),
                Begin::Done(outcome) => return Err(outcome),
                Begin::InProgress => return Err(ended(Status::InProgress)),
                Begin::TooOld => return Err(ended(Status::TooOld)),
                Begin::Unknown => return Err(ended(Status::NoSession)),
            }
        } else {
            None
        };
        // Where it is not admitted, the ticket is dropped: it may be another time.
        match self.admit(around, to, asked, (key, store, ticket)) {
            Ok(grant) => {
                self.counters.stores_begun.count();
                Ok(grant)
            }
            Err(status) => {
                self.counters.stores_refused.count();
                Err(ended(status))
            }
        }
    }

    /// Takes what a store needs: a slot, a place within the bounds, memory.
    fn admit<P>(
        &mut self,
        around: &Around<'_, '_, M, P>,
        to: &AnswerTo,
        asked: Asked,
        (key, store, ticket): (&[u8], StoreOperation, Option<Ticket>),
    ) -> Result<Grant, Status> {
        let value_bytes = u64::from(asked.detail.value_bytes);
        if value_bytes > self.config.value_bytes_max {
            return Err(Status::TooLarge);
        }
        let fragment_bytes = fragment_bytes(to, FRAGMENT_HEAD_BYTES);
        let fragments = Fragments::of(value_bytes, fragment_bytes).map_err(|_| Status::BadRequest)?;
        if fragments.count() == 0 {
            return Err(Status::BadRequest);
        }
        if around.is_draining {
            return Err(Status::Busy);
        }
        let at = self.free_slot().ok_or(Status::Busy)?;
        let permit = self.bounds.admit(to.peer.ip(), value_bytes).ok_or(Status::Busy)?;
        let reserved = around.cx.store.reserve(asked.hash, key, value_bytes);
        let Ok(reservation) = reserved else {
            around.cx.counters.store_no_memory.count();
            return Err(Status::NoMemory);
        };
        let (key, received) = (key.into(), Received::new(fragments.count()));
        let arriving =
            Arriving { reservation, key, store, fragments, received, in_window: 0, ticket, permit };
        let (transfer, state) = (self.name(at), State::Open(Box::new(arriving)));
        let grant = self.grant(transfer, value_bytes, fragment_bytes);
        self.slots[at] = Some(Slot { grant, peer: to.peer, asked, touched: around.now, state });
        self.open += 1;
        Ok(grant)
    }

    /// A slot that is free, or the one that has been remembered for longest.
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

    /// A name for the transfer in slot `at`: the slot in the lowest byte, then bits that nobody guesses, never zero.
    fn name(&mut self, at: usize) -> u64 {
        self.begun += 1;
        let number = u128::from(self.config.queue) << 64 | u128::from(self.begun);
        let random = self.config.names.hash(&number.to_le_bytes()) >> 8;
        random.max(1) << 8 | at as u64
    }

    /// The slot of the transfer of this name, if it is of this client. Where datagrams are sealed, another client
    /// may have the address by now, but not the session.
    pub(super) fn find(&self, transfer: u64, to: &AnswerTo) -> Option<usize> {
        let at = (transfer & 0xff) as usize;
        let slot = self.slots.get(at)?.as_ref()?;
        let is_of_session = !to.header.is_sealed() || slot.asked.session == to.header.session;
        (slot.grant.transfer == transfer && slot.peer == to.peer && is_of_session).then_some(at)
    }

    /// Puts the bytes of a fragment where they belong; says whether they were the last ones missing. No bytes are
    /// a question. Only whole windows give a store more time, or a client could keep its memory with few fragments.
    pub(super) fn take_in(
        &mut self,
        at: usize,
        index: u32,
        bytes: &[u8],
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
        arriving.reservation.value_mut()[range].copy_from_slice(bytes);
        arriving.in_window += 1;
        if arriving.in_window >= slot.grant.window {
            (arriving.in_window, slot.touched) = (0, now);
        }
        Ok(arriving.received.is_complete())
    }

    /// Stores a value that has arrived.
    pub(super) fn complete<P>(&mut self, at: usize, around: &Around<'_, '_, M, P>) {
        let pending = Ended { outcome: ended(Status::InProgress), fragments: 0 };
        let Some((asked, arriving)) =
            self.slots[at].as_ref().map(|slot| slot.asked).zip(self.end(at, pending, around.now))
        else {
            return;
        };
        let Arriving { reservation, key, store, fragments, ticket, permit, .. } = *arriving;
        around.cx.counters.cmd_set.count();
        let stored = commit_store(around.cx, &store, asked.hash, &key, reservation);
        drop(permit);
        let (status, cas) = stored_status(&stored);
        let item_flags = if status == Status::Ok && !store.joins() { store.flags } else { 0 };
        let outcome = Outcome { item_flags, cas, ..ended(status) };
        if let Some(ticket) = ticket {
            ticket.finish(outcome);
        }
        self.counters.stores_completed.count();
        if let Some(slot) = &mut self.slots[at] {
            slot.state = State::Ended(Ended { outcome, fragments: fragments.count() });
        }
    }

    /// Ends a store that is arriving, and hands out what there is of it.
    pub(super) fn end(&mut self, at: usize, ended: Ended, now: Instant) -> Option<Box<Arriving<M>>> {
        let slot = self.slots[at].as_mut()?;
        match std::mem::replace(&mut slot.state, State::Ended(ended)) {
            State::Open(arriving) => {
                slot.touched = now;
                self.open -= 1;
                Some(arriving)
            }
            ended @ State::Ended(_) => {
                slot.state = ended;
                None
            }
        }
    }
}
