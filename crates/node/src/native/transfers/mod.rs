//! Values that are too large for a datagram.
//!
//! A large GET leaves no trace here: the client asks for each window of fragments, and what was lost, by the CAS
//! unique of the value it has begun to receive, so that asking is acknowledging and pacing in one. A large store
//! has a slot: the value arrives, in any order, in the memory of the item that it will be. Bounded on every side:
//! slots of a worker, transfers of an address, bytes in all, and the time that a client may be silent.

mod bounds;
mod counters;
mod data;
mod received;
mod slot;
#[cfg(test)]
mod tests;

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use arrayvec::ArrayVec;
use minos_base::hash_key;
use minos_engine::{Mode, Pinned};
use minos_proto::native::{
    ACK_HEAD_BYTES, AckHead, AckState, Composer, DATA_HEAD_BYTES, FRAGMENT_HEAD_BYTES, Flags, FragmentHead,
    FragmentRange, Fragments, GRANT_BYTES, Grant, HEADER_BYTES, Kind, Malformed, OpFlags, Opcode, Operation,
    RANGE_BYTES, RANGES_MAX, Ranges, ReplyRecord, SealKey, Status, TAG_BYTES,
};

use super::{
    AnswerTo, Begin, Egress, Outcome, Sessions,
    change::{ended, stored_status},
    sessions::Ticket,
};
use crate::{
    config::TRANSFERS_PER_WORKER,
    execute::{Context, Facts, StoreOperation, commit_store},
};

pub(crate) use bounds::TransferBounds;
pub(crate) use counters::TransferCounters;

use data::{DataSender, Source};
use received::Received;
use slot::{Arriving, Asked, Ended, Slot, State};

/// What the transfers of one worker are bounded by, and who it is.
#[derive(Clone, Debug)]
pub(crate) struct TransfersConfig {
    /// Its transfer queue.
    pub(crate) queue: u16,
    /// Fragments under way at once.
    pub(crate) window: u16,
    /// Largest value.
    pub(crate) value_bytes_max: u64,
    /// Silence after which a store is given up, and time for which the outcome of one is remembered.
    pub(crate) timeout: Duration,
    /// What datagrams are sealed with.
    pub(crate) seal: Option<SealKey>,
    /// Makes names of transfers that nobody guesses.
    pub(crate) seed: u64,
}

/// What a worker lends to its transfers for one call.
pub(crate) struct Around<'a, 'c, M: Mode, P> {
    pub(crate) cx: &'a Context<'c, M, P>,
    pub(crate) sessions: &'a Sessions,
    pub(crate) now: Instant,
    /// Whether the server is stopping: nothing new is begun.
    pub(crate) is_draining: bool,
}

/// The large transfers of one worker.
pub(crate) struct Transfers<M: Mode> {
    config: TransfersConfig,
    bounds: Arc<TransferBounds>,
    counters: Arc<TransferCounters>,
    slots: Vec<Option<Slot<M>>>,
    open: usize,
    /// Stores begun so far.
    begun: u64,
    /// Calls so far that more of the same may follow.
    activity: u64,
    data: DataSender,
    /// Where answers are composed.
    datagram: Vec<u8>,
}

impl<M: Mode> Transfers<M> {
    /// None yet.
    pub(crate) fn new(
        config: TransfersConfig,
        bounds: Arc<TransferBounds>,
        counters: Arc<TransferCounters>,
    ) -> Self {
        Self {
            config,
            bounds,
            counters,
            slots: Vec::new(),
            open: 0,
            begun: 0,
            activity: 0,
            data: DataSender::new(),
            datagram: Vec::new(),
        }
    }

    /// Stores that are still arriving.
    pub(crate) fn open(&self) -> usize {
        self.open
    }

    /// Grows whenever there is a sign of a large transfer: others are likely to follow soon.
    pub(crate) fn activity(&self) -> u64 {
        self.activity
    }

    /// Answers a read whose value does not fit a datagram: says so, and sends the first window behind it.
    pub(crate) fn send_first(
        &mut self,
        to: &AnswerTo,
        (opcode, request): (Opcode, u32),
        item: &Pinned<M>,
        egress: &mut impl Egress,
    ) {
        self.activity += 1;
        let facts = Facts::from(&**item);
        let Some(source) = Self::source(to, request, item) else { return };
        let grant = self.grant(0, facts.value_bytes, source.fragment_bytes);
        let record = ReplyRecord {
            item_flags: facts.flags,
            cas: facts.cas,
            value: &grant,
            ..ReplyRecord::bare(opcode, Status::Large, request)
        };
        self.reply(to, &record, egress);
        self.counters.large_gets.count();
        self.send_window(to, &source, std::iter::once(FragmentRange { first: 0, count: u32::MAX }), egress);
    }

    /// Sends the fragments that a FETCH asks for, at most a window.
    pub(crate) fn fetch<P>(
        &mut self,
        cx: &Context<'_, M, P>,
        to: &AnswerTo,
        operation: &Operation<'_>,
        egress: &mut impl Egress,
    ) {
        let bare = |status| ReplyRecord::bare(operation.opcode, status, operation.request);
        let Ok(ranges) = Ranges::parse(operation.value) else {
            return self.reply(to, &bare(Status::BadRequest), egress);
        };
        self.activity += 1;
        self.counters.fetches.count();
        let found = cx.store.pin(operation.hash, operation.key, cx.now);
        let Some(item) = found.filter(|item| Facts::from(&**item).cas == operation.detail.operand) else {
            self.counters.fetches_gone.count();
            return self.reply(to, &bare(Status::Gone), egress);
        };
        let Some(source) = Self::source(to, operation.request, &item) else { return };
        self.send_window(to, &source, ranges, egress);
    }

    /// Begins a store whose value comes in fragments, or says again that it has begun.
    pub(crate) fn begin<P>(
        &mut self,
        around: &Around<'_, '_, M, P>,
        to: &AnswerTo,
        operation: &Operation<'_>,
        store: StoreOperation,
        egress: &mut impl Egress,
    ) {
        self.activity += 1;
        let asked = Asked::of(to.header.session, operation);
        let again =
            self.slots.iter().flatten().find(|slot| slot.awaits_first(to.peer, &asked, operation.key));
        let begun = match again.map(|slot| slot.transfer) {
            Some(transfer) => Ok(transfer),
            None => self.begin_new(around, to, asked, operation.key, store),
        };
        match begun {
            Ok(transfer) => {
                let value_bytes = u64::from(operation.detail.value_bytes);
                let grant = self.grant(transfer, value_bytes, fragment_bytes(to, FRAGMENT_HEAD_BYTES));
                let record = ReplyRecord { value: &grant, ..asked.reply(&ended(Status::Granted)) };
                self.reply(to, &record, egress);
            }
            Err(outcome) => self.reply(to, &asked.reply(&outcome), egress),
        }
    }

    /// Takes a fragment in, and answers if that is asked for or it was the last one missing.
    ///
    /// # Errors
    /// It is no fragment of its transfer.
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
                // The request is not known any more; the client knows its transfer.
                let gone =
                    ReplyRecord { cas: head.transfer, ..ReplyRecord::bare(Opcode::Put, Status::Gone, 0) };
                self.reply(to, &gone, egress);
            }
            return Ok(());
        };
        let is_complete = self.take_in(at, head.index, bytes, around.now)?;
        if is_complete {
            self.complete(at, around);
        }
        if is_complete || flags.contains(Flags::ACK_WANTED) {
            self.acknowledge(at, to, egress);
        }
        Ok(())
    }

    /// Gives up stores of which nothing was heard for too long, and forgets outcomes as old.
    pub(crate) fn on_tick(&mut self, now: Instant) {
        for at in 0..self.slots.len() {
            let Some(slot) = self.slots[at].as_ref() else { continue };
            if now.saturating_duration_since(slot.touched) <= self.config.timeout {
                continue;
            }
            if slot.is_ended() {
                self.slots[at] = None;
            } else {
                // What is to happen once has not happened: its ticket says so when it is dropped.
                self.counters.stores_timed_out.count();
                self.end(at, Ended { outcome: ended(Status::TimedOut), fragments: 0 }, now);
            }
        }
    }

    /// Judges whether a store may begin, and gives it a slot. The error is what came of it instead.
    fn begin_new<P>(
        &mut self,
        around: &Around<'_, '_, M, P>,
        to: &AnswerTo,
        asked: Asked,
        key: &[u8],
        store: StoreOperation,
    ) -> Result<u64, Outcome> {
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
            Ok(transfer) => {
                self.counters.stores_begun.count();
                Ok(transfer)
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
    ) -> Result<u64, Status> {
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
        let mut received = Received::default();
        received.start(fragments.count());
        let key = key.into();
        let arriving = Arriving { reservation, key, store, fragments, received, ticket, permit };
        let (transfer, state) = (self.name(at), State::Open(Box::new(arriving)));
        self.slots[at] = Some(Slot { transfer, peer: to.peer, asked, touched: around.now, state });
        self.open += 1;
        Ok(transfer)
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

    /// A name for the transfer in slot `at`: the slot in the lowest byte, then what nobody guesses. Never zero,
    /// because no two numbers of transfers give the same name and zero is passed over.
    fn name(&mut self, at: usize) -> u64 {
        loop {
            self.begun += 1;
            let random = hash_key(&self.begun.to_le_bytes(), self.config.seed).0;
            let name = random << 8 | at as u64;
            if name >> 8 != 0 {
                return name;
            }
        }
    }

    /// The slot of the transfer of this name, if it is of this client.
    fn find(&self, transfer: u64, to: &AnswerTo) -> Option<usize> {
        let at = (transfer & 0xff) as usize;
        let slot = self.slots.get(at)?.as_ref()?;
        let is_it =
            slot.transfer == transfer && slot.peer == to.peer && slot.asked.session == to.header.session;
        is_it.then_some(at)
    }

    /// Puts the bytes of a fragment where they belong; says whether they were the last ones missing. No bytes are
    /// a question.
    fn take_in(&mut self, at: usize, index: u32, bytes: &[u8], now: Instant) -> Result<bool, Malformed> {
        let Some(slot) = self.slots[at].as_mut() else { return Ok(false) };
        let State::Open(arriving) = &mut slot.state else { return Ok(false) };
        slot.touched = now;
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
        Ok(arriving.received.is_complete())
    }

    /// Stores a value that has arrived.
    fn complete<P>(&mut self, at: usize, around: &Around<'_, '_, M, P>) {
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
    fn end(&mut self, at: usize, ended: Ended, now: Instant) -> Option<Box<Arriving<M>>> {
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

    /// Says which fragments have arrived and, once it is over, what came of the store.
    fn acknowledge(&mut self, at: usize, to: &AnswerTo, egress: &mut impl Egress) {
        let Some(slot) = &self.slots[at] else { return };
        let (transfer, asked) = (slot.transfer, slot.asked);
        let mut missing: ArrayVec<FragmentRange, RANGES_MAX> = ArrayVec::new();
        let (received, ended) = match &slot.state {
            State::Open(arriving) => {
                missing.extend(arriving.received.missing().take(RANGES_MAX));
                (arriving.received.count(), None)
            }
            State::Ended(ended) => (ended.fragments, Some(*ended)),
        };
        let state = if ended.is_some() { AckState::Done } else { AckState::Open };
        self.ack(to, &AckHead { transfer, received, ranges: missing.len() as u32, state }, &missing, egress);
        if let Some(Ended { outcome, .. }) = ended {
            self.reply(to, &asked.reply(&outcome), egress);
        }
    }

    fn ack(&mut self, to: &AnswerTo, head: &AckHead, missing: &[FragmentRange], egress: &mut impl Egress) {
        let mut head_bytes = [0; ACK_HEAD_BYTES];
        head.write(&mut head_bytes);
        let mut ranges: ArrayVec<u8, { RANGES_MAX * RANGE_BYTES }> = ArrayVec::new();
        for range in missing {
            ranges.extend(range.first.to_le_bytes());
            ranges.extend(range.count.to_le_bytes());
        }
        self.send(to, Kind::Ack, egress, |composer| {
            composer.push_bytes(&head_bytes);
            composer.push_bytes(&ranges);
        });
    }

    fn reply(&mut self, to: &AnswerTo, record: &ReplyRecord<'_>, egress: &mut impl Egress) {
        self.send(to, Kind::Reply, egress, |composer| {
            composer.push_reply(record);
        });
    }

    /// Sends a datagram of this kind.
    fn send(
        &mut self,
        to: &AnswerTo,
        kind: Kind,
        egress: &mut impl Egress,
        compose: impl FnOnce(&mut Composer<'_>),
    ) {
        self.datagram.clear();
        let mut composer = Composer::begin(&mut self.datagram, to.header_of(kind), to.datagram_bytes_max);
        compose(&mut composer);
        let bytes = composer.finish_with(self.config.seal.as_ref());
        egress.send(to.peer, &self.datagram, bytes);
    }

    /// Sends the fragments in `ranges`, at most a window.
    fn send_window(
        &mut self,
        to: &AnswerTo,
        source: &Source<'_>,
        ranges: impl Iterator<Item = FragmentRange>,
        egress: &mut impl Egress,
    ) {
        let window = usize::from(self.window(source.fragment_bytes));
        let end = source.fragments.count();
        let indexes =
            ranges.flat_map(|range| range.first.min(end)..range.indexes().end.min(end)).take(window);
        let counters = &self.counters;
        let counted = indexes.inspect(|_| counters.data_out.count());
        self.data.send(to, self.config.seal.as_ref(), source, counted, egress);
    }

    /// An item as it is sent.
    fn source<'a>(to: &AnswerTo, request: u32, item: &'a Pinned<M>) -> Option<Source<'a>> {
        let facts = Facts::from(&**item);
        let fragment_bytes = fragment_bytes(to, DATA_HEAD_BYTES);
        let fragments = Fragments::of(facts.value_bytes, fragment_bytes).ok()?;
        let (cas, item_flags) = (facts.cas, facts.flags);
        Some(Source { request, value: item.value(), cas, item_flags, fragment_bytes, fragments })
    }

    /// Fragments that may be under way at once: no more than one train has.
    fn window(&self, fragment_bytes: u32) -> u16 {
        let segments_max = data::segments_max(data::HEAD_BYTES + TAG_BYTES + fragment_bytes as usize);
        self.config.window.min(segments_max as u16)
    }

    fn grant(&self, transfer: u64, value_bytes: u64, fragment_bytes: u32) -> [u8; GRANT_BYTES] {
        let (queue, window) = (self.config.queue, self.window(fragment_bytes));
        let mut bytes = [0; GRANT_BYTES];
        Grant { transfer, value_bytes, fragment_bytes, queue, window }.write(&mut bytes);
        bytes
    }
}

/// Bytes of a fragment whose head has so many, a multiple of 8.
fn fragment_bytes(to: &AnswerTo, head_bytes: usize) -> u32 {
    ((to.datagram_bytes_max - HEADER_BYTES - head_bytes - to.header.tag_bytes()) / 8 * 8) as u32
}
