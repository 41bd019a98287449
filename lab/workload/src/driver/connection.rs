//! One connection to the server: requests on their way out, replies on their way in.

use std::{collections::VecDeque, io, os::fd::OwnedFd};

use minos_net::{
    Progress, Socket,
    timestamp::{Take, receive_stamped},
};
use minos_proto::client::{Protocol, Reply, ReplyReader, compose_get, compose_set_head, compose_set_tail};

use super::{
    checker::Checker,
    clock::RunClock,
    recorder::{ErrorKind, Recorder},
};
use crate::{
    Class,
    model::{Body, Dataset},
};

/// Values up to this are copied behind their head, so that a small SET leaves in one piece.
const BODY_BYTES_COPIED: u64 = 16 * 1024;

/// Most bytes of a value given to the kernel in one call, so that other connections wait for no more.
const SEND_BYTES_MAX: usize = 256 * 1024;

/// Limits on requests in flight on one connection, and on their unsent bytes (values that are not copied
/// do not count). Requests beyond are lost.
const IN_FLIGHT_MAX: usize = 1 << 20;
const UNSENT_BYTES_MAX: usize = 64 << 20;

/// Most bytes received in one call when they are looked at.
const RECEIVE_BYTES_MAX: usize = 64 * 1024;

/// From how many remaining bytes on a value is dropped in the kernel.
const DROP_BYTES_MIN: u64 = 4096;

/// A request that waits for its answer.
#[derive(Clone, Copy, Debug)]
pub(super) struct InFlight {
    pub(super) awaited: Awaited,
    pub(super) class: Class,
    /// When it was meant to be sent, in nanoseconds since the start.
    pub(super) intended_ns: u64,
    pub(super) item: u64,
    /// Keys asked for.
    pub(super) keys: u32,
}

/// The answer that a request waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Awaited {
    Values,
    Stored,
    /// The answer to a SET of a new item.
    Inserted,
    /// Values, after which the item is stored.
    ValuesToChange,
}

/// A value that is sent without a copy, after the bytes before it.
struct PendingBody {
    /// Bytes of `Connection::out` that go before it.
    after: usize,
    body: Body,
    at: u64,
}

/// A connection, closed or open.
pub(super) struct Connection<'a> {
    socket: Option<Socket>,
    protocol: Protocol,
    dataset: &'a Dataset,
    reader: ReplyReader,
    checker: Checker<'a>,
    in_flight: VecDeque<InFlight>,
    out: Vec<u8>,
    out_at: usize,
    bodies: VecDeque<PendingBody>,
    /// Keys of the request that is being composed, one after the other, and the end of each.
    keys: Vec<u8>,
    key_ends: Vec<usize>,
    /// Inserted items whose answers the source has not been told of.
    pub(super) inserts_answered: Vec<u64>,
    /// True if the last flush did not send everything.
    pub(super) is_blocked: bool,
    /// Which stream it belongs to.
    pub(super) stream: usize,
}

impl<'a> Connection<'a> {
    pub(super) fn new(
        fd: OwnedFd,
        protocol: Protocol,
        dataset: &'a Dataset,
        contents: bool,
        stream: usize,
    ) -> Self {
        Self {
            socket: Some(Socket::from_nonblocking(fd)),
            protocol,
            dataset,
            reader: ReplyReader::new(protocol),
            checker: Checker::new(dataset, contents),
            in_flight: VecDeque::new(),
            out: Vec::new(),
            out_at: 0,
            bodies: VecDeque::new(),
            keys: Vec::new(),
            key_ends: Vec::new(),
            inserts_answered: Vec::new(),
            is_blocked: false,
            stream,
        }
    }

    /// The socket, unless it was closed.
    pub(super) fn socket(&self) -> Option<&Socket> {
        self.socket.as_ref()
    }

    /// Requests without an answer, oldest first.
    pub(super) fn in_flight(&self) -> impl ExactSizeIterator<Item = &InFlight> {
        self.in_flight.iter()
    }

    /// True if a limit on requests in flight or unsent bytes is reached: the server is overloaded.
    pub(super) fn is_full(&self) -> bool {
        self.in_flight.len() >= IN_FLIGHT_MAX || self.out.len() - self.out_at >= UNSENT_BYTES_MAX
    }

    /// Bytes composed and not sent.
    pub(super) fn unsent_bytes(&self) -> u64 {
        let bodies: u64 = self.bodies.iter().map(|pending| pending.body.value_bytes() - pending.at).sum();
        (self.out.len() - self.out_at) as u64 + bodies
    }

    /// Composes a GET of `items`; the first of them is the request's own.
    pub(super) fn compose_get(&mut self, flight: InFlight, items: &[u64]) {
        let Self { keys, key_ends, dataset, checker, out, protocol, .. } = self;
        keys.clear();
        key_ends.clear();
        for &item in items {
            dataset.write_key(item, keys);
            key_ends.push(keys.len());
            checker.expect(item);
        }
        let start = |index: usize| if index == 0 { 0 } else { key_ends[index - 1] };
        compose_get(*protocol, out, (0..items.len()).map(|index| &keys[start(index)..key_ends[index]]));
        self.push(flight);
    }

    /// Composes a SET of the request's item.
    pub(super) fn compose_set(&mut self, flight: InFlight, body: Body) {
        self.keys.clear();
        self.dataset.write_key(flight.item, &mut self.keys);
        compose_set_head(self.protocol, &mut self.out, &self.keys, body.value_bytes());
        if body.value_bytes() <= BODY_BYTES_COPIED {
            body.append_to(&mut self.out);
        } else {
            self.bodies.push_back(PendingBody { after: self.out.len(), body, at: 0 });
        }
        compose_set_tail(&mut self.out);
        self.push(flight);
    }

    fn push(&mut self, flight: InFlight) {
        self.in_flight.push_back(flight);
        if self.in_flight.len() == 1 {
            self.begin_reply();
        }
    }

    fn begin_reply(&mut self) {
        let is_get = |flight: &InFlight| matches!(flight.awaited, Awaited::Values | Awaited::ValuesToChange);
        let keys = self.in_flight.front().filter(|flight| is_get(flight)).map_or(0, |flight| flight.keys);
        self.checker.begin_reply(keys as usize);
    }

    /// Sends as much as the socket takes.
    pub(super) fn flush(&mut self, recorder: &mut Recorder) {
        loop {
            let Some(socket) = &self.socket else { return };
            let piece = next_piece(&self.out, self.out_at, &self.bodies);
            if piece.is_empty() {
                break;
            }
            match socket.send(piece) {
                Progress::Bytes(bytes) => self.sent(bytes),
                Progress::Blocked => {
                    self.is_blocked = true;
                    return self.forget_sent();
                }
                Progress::Closed => return self.close(ErrorKind::Closed, recorder),
            }
        }
        self.out.clear();
        self.out_at = 0;
        self.is_blocked = false;
    }

    fn sent(&mut self, bytes: usize) {
        match self.bodies.front_mut() {
            Some(pending) if pending.after == self.out_at => {
                pending.at += bytes as u64;
                if pending.at == pending.body.value_bytes() {
                    self.bodies.pop_front();
                }
            }
            _ => self.out_at += bytes,
        }
    }

    /// Gives back the room of what has been sent, once it is worth moving the rest.
    fn forget_sent(&mut self) {
        const SENT_BYTES_KEPT: usize = 1 << 20;
        if self.out_at >= SENT_BYTES_KEPT && self.out_at >= self.out.len() / 2 {
            self.out.drain(..self.out_at);
            self.bodies.iter_mut().for_each(|pending| pending.after -= self.out_at);
            self.out_at = 0;
        }
    }

    /// Receives once into `room` and handles the bytes. Returns their number.
    pub(super) fn receive(&mut self, room: &mut [u8], clock: &RunClock, recorder: &mut Recorder) -> usize {
        let Some(socket) = &self.socket else { return 0 };
        let left = self.reader.value_bytes_left();
        let (bytes_max, take) = if left >= DROP_BYTES_MIN && !self.checker.needs_bytes() {
            (usize::try_from(left).unwrap_or(usize::MAX), Take::Discard)
        } else {
            (RECEIVE_BYTES_MAX, Take::Copy)
        };
        let bytes_max = bytes_max.min(room.len());
        match receive_stamped(socket, &mut room[..bytes_max], take) {
            Ok(stamped) if stamped.bytes == 0 => self.close(ErrorKind::Closed, recorder),
            Ok(stamped) => {
                match take {
                    Take::Discard => self.reader.discarded(stamped.bytes as u64),
                    Take::Copy => {
                        let now_ns = clock.now_ns();
                        let stamp_ns = stamped.arrived_unix_ns.map(|unix_ns| clock.of_unix_ns(unix_ns));
                        self.take_in(&room[..stamped.bytes], Arrival { now_ns, stamp_ns }, recorder);
                    }
                }
                return stamped.bytes;
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(_) => self.close(ErrorKind::Closed, recorder),
        }
        0
    }

    fn take_in(&mut self, mut input: &[u8], arrival: Arrival, recorder: &mut Recorder) {
        while !input.is_empty() && self.socket.is_some() {
            let Ok(advance) = self.reader.advance(input, &mut self.checker) else {
                return self.close(ErrorKind::Protocol, recorder);
            };
            input = &input[advance.consumed..];
            if let Some(reply) = advance.reply {
                self.answered(reply, arrival, recorder);
            }
        }
    }

    fn answered(&mut self, reply: Reply, arrival: Arrival, recorder: &mut Recorder) {
        let is_right = self.checker.end_reply();
        let Some(flight) = self.in_flight.pop_front() else {
            return self.close(ErrorKind::Protocol, recorder);
        };
        self.begin_reply();
        if flight.awaited == Awaited::Inserted {
            self.inserts_answered.push(flight.item);
        }
        if recorder.is_measured(flight.intended_ns) {
            arrival.count_in(recorder);
        }
        let outcome = match (flight.awaited, reply) {
            (_, Reply::Refused(refusal)) => Err(refusal.into()),
            (Awaited::Stored | Awaited::Inserted, Reply::Stored) => Ok(()),
            (Awaited::Values | Awaited::ValuesToChange, Reply::Values { .. }) if !is_right => {
                Err(ErrorKind::Mismatch)
            }
            (Awaited::Values, Reply::Values { found }) => {
                recorder.missed(u64::from(flight.keys.saturating_sub(found)), flight.intended_ns);
                Ok(())
            }
            (Awaited::ValuesToChange, Reply::Values { .. }) => return self.write_back(flight, recorder),
            _ => {
                recorder.failed(ErrorKind::Protocol, flight.intended_ns);
                return self.close(ErrorKind::Protocol, recorder);
            }
        };
        match outcome {
            Ok(()) => recorder.completed(flight.class, flight.keys, flight.intended_ns, arrival.ns()),
            Err(kind) => recorder.failed(kind, flight.intended_ns),
        }
    }

    /// The second half of a read-modify-write. It keeps the intended time of the first.
    fn write_back(&mut self, flight: InFlight, recorder: &mut Recorder) {
        match self.dataset.body(flight.item) {
            Ok(body) => {
                self.compose_set(InFlight { awaited: Awaited::Stored, ..flight }, body);
                self.flush(recorder);
            }
            Err(_) => recorder.failed(ErrorKind::File, flight.intended_ns),
        }
    }

    /// Closes the connection; what was in flight has failed.
    pub(super) fn close(&mut self, kind: ErrorKind, recorder: &mut Recorder) {
        self.socket = None;
        self.is_blocked = false;
        for flight in self.in_flight.drain(..) {
            if flight.awaited == Awaited::Inserted {
                self.inserts_answered.push(flight.item);
            }
            recorder.failed(kind, flight.intended_ns);
        }
        self.out.clear();
        self.out_at = 0;
        self.bodies.clear();
    }
}

/// When a reply came in.
#[derive(Clone, Copy, Debug)]
struct Arrival {
    now_ns: u64,
    /// The kernel's stamp.
    stamp_ns: Option<u64>,
}

impl Arrival {
    fn ns(self) -> u64 {
        self.stamp_ns.unwrap_or(self.now_ns)
    }

    fn count_in(self, recorder: &mut Recorder) {
        match self.stamp_ns {
            Some(stamp_ns) => recorder.looked_at_after(self.now_ns.saturating_sub(stamp_ns)),
            None => recorder.unstamped += 1,
        }
    }
}

/// The next bytes to send: of the value that is due, or the composed bytes before the next value.
fn next_piece<'b>(out: &'b [u8], out_at: usize, bodies: &'b VecDeque<PendingBody>) -> &'b [u8] {
    match bodies.front() {
        Some(pending) if pending.after == out_at => {
            let piece = pending.body.piece(pending.at);
            &piece[..piece.len().min(SEND_BYTES_MAX)]
        }
        Some(pending) => &out[out_at..pending.after],
        None => &out[out_at..],
    }
}

#[cfg(test)]
mod tests;
