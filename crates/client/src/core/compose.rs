//! Composes the next train: a Hello first, then transfers, then requests.

use std::net::SocketAddr;

use minos_proto::native::{
    Composer, Flags, HELLO_DATAGRAM_BYTES, Header, Hello, Kind, TRAIN_BYTES_MAX, TRAIN_SEGMENTS_MAX, VERSION,
    Welcome,
};
use rand::RngExt;

use super::{
    Core, OpId, Transmit,
    assign::{is_deferred, limit_bytes, record},
    link::Asked,
    operation::Phase,
};
use crate::QueueBy;

/// Fragments that this client can receive at once, as its Hello says.
const WINDOW: u16 = TRAIN_SEGMENTS_MAX as u16;

/// The destination of a train, and the bytes of its segments.
pub(super) type Train = (SocketAddr, usize);

impl Core {
    /// Composes the next train, which counts as sent; `None` if there is nothing to send.
    pub fn poll_transmit(&mut self, now_ns: u64) -> Option<Transmit<'_>> {
        if self.operations.is_empty() {
            return None;
        }
        self.out.clear();
        let (to, segment_bytes) = self
            .compose_hello(now_ns)
            .or_else(|| self.compose_transfers(now_ns))
            .or_else(|| self.compose_requests(now_ns))?;
        self.counters.datagrams_sent += self.out.len().div_ceil(segment_bytes) as u64;
        Some(Transmit { to, segment_bytes, bytes: &self.out })
    }

    /// Composes a Hello if one is due.
    fn compose_hello(&mut self, now_ns: u64) -> Option<Train> {
        self.leave_if_silent(now_ns);
        if !self.link.is_hello_due(now_ns) {
            return None;
        }
        let header = self.header(Kind::Hello, 0, now_ns);
        let opens = self.link.opens_session();
        let last = self.link.asked.filter(|last| last.opens == opens);
        let attempts = self.link.asked.map_or(0, |last| last.attempts) + 1;
        let again_at_ns = now_ns.saturating_add(self.round_trip.wait_ns(attempts, &mut self.random));
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

    /// Composes a train of requests for one queue.
    fn compose_requests(&mut self, now_ns: u64) -> Option<Train> {
        let directory = *self.link.usable(self.is_sealed())?;
        let limit_bytes = limit_bytes(&directory, self.config.datagram_bytes_max);
        // A lane may hold only operations that have ended; the loop visits each lane at most once.
        for _ in 0..=directory.queues {
            if self.flight_room(&directory) == 0 {
                return None;
            }
            let lane = self.lanes.due(now_ns, limit_bytes)?;
            let queue = lane.unwrap_or_else(|| self.random.random_range(0..directory.queues));
            let segment_bytes = self.compose_train(queue, limit_bytes, &directory, now_ns);
            if segment_bytes > 0 {
                let port_queue = match self.config.queue_by {
                    QueueBy::Wrong => (queue + 1) % directory.queues,
                    _ => queue,
                };
                return Some((self.link.address(port_queue), segment_bytes));
            }
        }
        None
    }

    /// Appends as many requests for `queue` as a train holds. Returns the bytes of its segments; 0 if there
    /// are none.
    ///
    /// All but the last are padded to the maximum, so that their lengths need not be known before.
    fn compose_train(&mut self, queue: u16, limit_bytes: usize, directory: &Welcome, now_ns: u64) -> usize {
        let mut segment_bytes = 0;
        let segments_max = TRAIN_SEGMENTS_MAX.min(TRAIN_BYTES_MAX / limit_bytes).max(1);
        for segment in 0..segments_max.min(self.flight_room(directory)) {
            if segment > 0 {
                let is_done = [Some(queue), None]
                    .into_iter()
                    .all(|lane| self.lanes.of(lane).is_none_or(|lane| lane.is_empty()));
                if is_done {
                    break;
                }
                segment_bytes = limit_bytes;
                self.out.resize(segment * limit_bytes, 0);
            }
            let bytes = self.compose_request(queue, limit_bytes, now_ns);
            if bytes == 0 {
                break;
            }
            segment_bytes = segment_bytes.max(bytes);
        }
        segment_bytes
    }

    /// Appends one request, filled from the lane of `queue`, then from the lane for any queue. Returns its
    /// length; 0 if both were empty.
    fn compose_request(&mut self, queue: u16, limit_bytes: usize, now_ns: u64) -> usize {
        let start = self.out.len();
        let header = self.header(Kind::Request, queue, now_ns);
        let is_sealed = self.is_sealed();
        let mut ids = self.flight.list();
        let mut attempts = u32::MAX;
        let mut composer = Composer::begin(&mut self.out, header, limit_bytes);
        for lane in [Some(queue), None] {
            let Some(lane) = self.lanes.of(lane) else { continue };
            while let Some(id) = lane.front() {
                let operation = self.operations.get_mut(id);
                let Some(operation) = operation.filter(|it| matches!(it.phase, Phase::Ready)) else {
                    lane.pop();
                    continue;
                };
                let record = record(id, operation, is_deferred(operation, limit_bytes, is_sealed));
                let record_bytes = record.bytes();
                if !composer.push_operation(&record) {
                    break;
                }
                lane.pop();
                lane.sent(record_bytes);
                operation.attempts += 1;
                attempts = attempts.min(operation.attempts);
                operation.note_sent(header.sequence);
                operation.phase = Phase::Sent { sequence: header.sequence };
                ids.push(id);
            }
        }
        if ids.is_empty() {
            self.flight.spare(ids);
            self.out.truncate(start);
            return 0;
        }
        composer.finish_with(self.config.seal());
        self.note_flight(header.sequence, ids, attempts, now_ns);
        self.out.len() - start
    }

    /// Records a request in flight.
    fn note_flight(&mut self, sequence: u64, ids: Vec<OpId>, attempts: u32, now_ns: u64) {
        let lost_at_ns = now_ns.saturating_add(self.round_trip.wait_ns(attempts, &mut self.random));
        self.flight.insert(sequence, ids, lost_at_ns);
        self.wake_at(lost_at_ns);
    }

    /// The number of requests that may be sent before another one is answered.
    fn flight_room(&self, directory: &Welcome) -> usize {
        let asked = usize::try_from(directory.in_flight).unwrap_or(usize::MAX).max(1);
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
