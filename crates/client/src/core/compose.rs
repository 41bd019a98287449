//! Composes the next train: a Hello first, then transfers, then requests.

use std::net::SocketAddr;

use minos_proto::native::{
    Composer, Flags, HELLO_DATAGRAM_BYTES, Header, Hello, Kind, TRAIN_BYTES_MAX, TRAIN_SEGMENTS_MAX, VERSION,
};
use rand::RngExt;

use super::{
    Core, Transmit,
    assign::{is_deferred, limit_bytes, record},
    link::Asked,
    operation::Phase,
    round_trip::below,
};
use crate::QueueBy;

/// Fragments that this client can receive at once, as its Hello says.
const WINDOW: u16 = TRAIN_SEGMENTS_MAX as u16;

/// The destination of a train, and the bytes of its segments.
pub(crate) type Train = (SocketAddr, usize);

impl Core {
    /// Composes the next train, which counts as sent; `None` if there is nothing to send.
    #[inline]
    pub fn poll_transmit(&mut self, now_ns: u64) -> Option<Transmit<'_>> {
        let train = self.compose_next(now_ns)?;
        Some(self.composed(train))
    }

    /// A train that was composed.
    pub(crate) fn composed(&self, (to, segment_bytes): Train) -> Transmit<'_> {
        Transmit { to, segment_bytes, bytes: &self.out }
    }

    /// As [`Core::poll_transmit`]; the bytes follow with [`Core::composed`].
    #[inline]
    pub(crate) fn compose_next(&mut self, now_ns: u64) -> Option<Train> {
        let is_idle = self.lanes.is_empty() && self.transfers_due.is_empty();
        if self.operations.is_empty() || (is_idle && !self.link.is_hello_due(now_ns)) {
            return None;
        }
        self.compose(now_ns)
    }

    fn compose(&mut self, now_ns: u64) -> Option<Train> {
        self.out.clear();
        let mut train = None;
        if self.link.is_hello_due(now_ns) {
            train = self.compose_hello(now_ns);
        }
        if train.is_none() && !self.transfers_due.is_empty() {
            train = self.compose_transfers(now_ns);
        }
        if train.is_none() && !self.lanes.is_empty() {
            train = self.compose_requests(now_ns);
        }
        let (_, segment_bytes) = train?;
        let is_one = self.out.len() <= segment_bytes;
        self.counters.datagrams_sent +=
            if is_one { 1 } else { self.out.len().div_ceil(segment_bytes) as u64 };
        train
    }

    /// Composes a Hello, which is due, unless the client moves to another server that must be left alone for a
    /// while.
    #[cold]
    fn compose_hello(&mut self, now_ns: u64) -> Option<Train> {
        self.leave_if_silent(now_ns);
        if !self.link.is_hello_due(now_ns) {
            return None;
        }
        let header = self.header(Kind::Hello, 0, now_ns);
        let opens = self.link.opens_session();
        let last = self.link.asked.filter(|last| last.opens == opens);
        let attempts = self.link.asked.map_or(0, |last| last.attempts) + 1;
        let again_at_ns = now_ns.saturating_add(self.round_trip.wait_ns(attempts, &mut self.dice));
        let asked = Asked {
            nonce: last.map_or_else(|| self.random.random(), |last| last.nonce),
            opens,
            attempts,
            again_at_ns,
            sequences: (last.map_or(header.sequence, |last| last.sequences.0), header.sequence),
        };
        self.link.asked = Some(asked);
        self.wake_at(again_at_ns);
        self.counters.hellos += 1;
        let hello = Hello {
            nonce: asked.nonce,
            datagram_bytes_max: self.config.datagram_bytes_max as u16,
            window: WINDOW,
            version_max: u16::from(VERSION),
        };
        let opening = if opens { Flags::OPEN } else { Flags::NONE };
        let header = Header { flags: header.flags | opening, ..header };
        hello.compose(&mut self.out, header, self.config.seal());
        Some((self.link.server(), HELLO_DATAGRAM_BYTES))
    }

    fn compose_requests(&mut self, now_ns: u64) -> Option<Train> {
        let directory = self.link.usable(self.is_sealed())?;
        let (queues, limit_bytes) =
            (directory.queues, limit_bytes(directory, self.config.datagram_bytes_max));
        let room = self.flight_room(directory.in_flight);
        if room == 0 {
            return None;
        }
        // A lane may hold only operations that have ended; the loop visits each lane at most once.
        for _ in 0..usize::from(queues) + 1 {
            let lane = self.lanes.due(now_ns, limit_bytes)?;
            let queue = match lane {
                Some(queue) => queue,
                None if queues == 1 => 0,
                None => below(queues.into(), &mut self.dice) as u16,
            };
            let segment_bytes = self.compose_train(queue, limit_bytes, room, now_ns);
            if segment_bytes > 0 {
                let port_queue = match self.config.queue_by {
                    QueueBy::Wrong => (queue + 1) % queues,
                    _ => queue,
                };
                return Some((self.link.address(port_queue), segment_bytes));
            }
        }
        None
    }

    /// Appends requests for `queue`, at most `room`, until its lanes are empty or the train is full. Returns
    /// the bytes of its segments; 0 if there are none.
    ///
    /// All but the last are padded to the maximum, so that their lengths need not be known before.
    fn compose_train(&mut self, queue: u16, limit_bytes: usize, room: usize, now_ns: u64) -> usize {
        let first_bytes = self.compose_request(queue, limit_bytes, now_ns);
        if first_bytes == 0 || self.lanes.is_done(queue) {
            return first_bytes;
        }
        let segments_max = TRAIN_SEGMENTS_MAX.min(TRAIN_BYTES_MAX / limit_bytes).min(room);
        for segment in 1..segments_max {
            self.out.resize(segment * limit_bytes, 0);
            let bytes = self.compose_request(queue, limit_bytes, now_ns);
            if bytes == 0 || self.lanes.is_done(queue) {
                return limit_bytes;
            }
        }
        if segments_max > 1 { limit_bytes } else { first_bytes }
    }

    /// Appends one request, filled from the lane of `queue`, then from the lane for any queue. Returns its
    /// length; 0 if both were empty.
    fn compose_request(&mut self, queue: u16, limit_bytes: usize, now_ns: u64) -> usize {
        let start = self.out.len();
        let header = self.header(Kind::Request, queue, now_ns);
        let (sequence, is_sealed) = (header.sequence, self.is_sealed());
        let Some(mut lanes) = self.lanes.open(queue) else { return 0 };
        let at = self.flight.take_place();
        let mut attempts = u32::MAX;
        let mut composer = Composer::begin(&mut self.out, header, limit_bytes);
        while let Some(id) = lanes.front() {
            let operation = self.operations.get_mut(id);
            let Some(operation) = operation.filter(|it| matches!(it.phase, Phase::Ready)) else {
                lanes.pop(0);
                continue;
            };
            let is_deferred = is_deferred(operation, limit_bytes, is_sealed);
            let record = record(id, operation, is_deferred, self.config.read_by);
            if !composer.push_operation(&record) {
                break;
            }
            lanes.pop(record.bytes());
            operation.attempts += 1;
            attempts = attempts.min(operation.attempts);
            operation.note_sent(sequence);
            operation.phase = Phase::Sent { sequence, at };
            self.flight.add(at, id);
        }
        if composer.count() == 0 {
            self.flight.give_back(at);
            self.out.truncate(start);
            return 0;
        }
        composer.finish_with(self.config.seal());
        let lost_at_ns = match self.config.open_loop {
            true => u64::MAX,
            false => now_ns.saturating_add(self.round_trip.wait_ns(attempts, &mut self.dice)),
        };
        self.flight.depart(at, sequence, lost_at_ns);
        self.wake_at(lost_at_ns);
        self.out.len() - start
    }

    /// The number of requests that may be sent before another one is answered; the server asks for at most
    /// `asked` in flight.
    fn flight_room(&self, asked: u32) -> usize {
        if self.config.open_loop {
            return usize::MAX;
        }
        let asked = usize::try_from(asked).unwrap_or(usize::MAX).max(1);
        self.config.in_flight_max.min(asked).saturating_sub(self.flight.len())
    }

    /// A header with a new sequence number.
    pub(super) fn header(&mut self, kind: Kind, queue: u16, now_ns: u64) -> Header {
        let sequence = self.sequence_next;
        self.sequence_next += 1;
        let seal = if self.is_sealed() { Flags::SEALED } else { Flags::NONE };
        let stamp = now_ns ^ self.stamp_mask;
        Header { flags: seal, stamp, sequence, ..self.link.header(kind, queue) }
    }
}
