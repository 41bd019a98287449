//! One visit to a connection that has something to do: receive, parse, execute, reply.

mod memcache;

use minos_base::{SizeClass, limits::BURST_MAX};
use minos_engine::Mode;
use minos_net::{Io, Progress, Ready};

use super::{
    connection::Connection,
    queue::{Arrival, HeldBack, QueueState},
    session::Session,
    transfer::{Transfer, Work},
};
use crate::{
    ops::Placement,
    worker::{Worker, rings::Lent},
};

/// Requests of one connection served in one visit, so that a pipelining client does not delay the others.
pub(crate) const VISIT_REQUESTS_MAX: usize = 4 * BURST_MAX;
/// Receive calls in one visit. They bound a visit that discards bytes, which count as no request.
const VISIT_RECEIPTS_MAX: usize = 8;

/// How a visit ended.
enum Visit<M: Mode> {
    /// The connection has nothing to do until the poller reports an event.
    Idle,
    /// It has more to do, after the queue's other connections.
    More,
    /// The socket takes no more replies.
    Blocked,
    /// The connection is to be closed.
    Close,
    /// The connection goes away with a large request of this class.
    Large(Work<M>, SizeClass),
}

/// Where parsing and executing stopped, and why.
struct Stopped<M: Mode> {
    consumed: usize,
    why: Why<M>,
}

/// Why parsing and executing stopped.
enum Why<M: Mode> {
    /// The rest of the input needs this many bytes to be a whole request.
    NeedMore { wanted_bytes: usize },
    /// The visit has served as many requests as it may.
    Budget,
    /// The connection is to be closed once the replies are sent.
    Close,
    /// A large request.
    Large(Work<M>, SizeClass),
}

impl<M: Mode, I: Io> Worker<'_, M, I> {
    /// Serves a connection that has something to do, at most `requests_max` requests of it.
    pub(crate) fn visit(&mut self, state: &mut QueueState<M, I>, event: Ready, requests_max: usize) {
        let Some(connection) = state.connections.here(event.token) else {
            return state.connections.note_missed(event.token);
        };
        connection.registration.active(self.now_s);
        match self.flush_and_serve(connection, event.hangup, requests_max) {
            Visit::Idle if !connection.watches_writable => {}
            Visit::Idle | Visit::Blocked => state.watch_as_needed(event.token),
            Visit::More => state.visit_again(event.token),
            Visit::Close => state.close(event.token),
            Visit::Large(work, class) => self.lend(state, event, work, class),
        }
    }

    /// Serves at most `requests_max` requests of a connection that was lent to this worker. Returns the
    /// arrival for its queue, or `None` if the connection went on with a large request.
    pub(crate) fn visit_lent(&mut self, lent: Lent, requests_max: usize) -> Option<Arrival> {
        let Lent { mut connection, to_the_end } = lent;
        connection.registration.active(self.now_s);
        Some(match self.flush_and_serve(&mut connection, to_the_end, requests_max) {
            Visit::Idle | Visit::Blocked => Arrival::Visited { connection, has_more: false },
            Visit::More => Arrival::Visited { connection, has_more: true },
            Visit::Close => Arrival::Ended(connection),
            Visit::Large(work, class) => {
                let head = self.transmit_buffer.as_slice().to_vec();
                let transfer = Box::new(Transfer { connection, head, work, moved_bytes: 0 });
                self.pass_or_serve(transfer, self.placement.home(class));
                return None;
            }
        })
    }

    /// Sends replies that are left over, then receives and serves.
    fn flush_and_serve(
        &mut self,
        connection: &mut Connection,
        to_the_end: bool,
        requests_max: usize,
    ) -> Visit<M> {
        match flush(connection) {
            Visit::Idle if connection.closing => Visit::Close,
            Visit::Idle => self.serve(connection, to_the_end, requests_max),
            other => other,
        }
    }

    /// Receives and serves until nothing more comes. With `to_the_end`, a receive call that does not fill the
    /// buffer is not the last.
    fn serve(&mut self, connection: &mut Connection, to_the_end: bool, mut requests_max: usize) -> Visit<M> {
        let mut may_receive = true;
        let mut receipts = 0;
        loop {
            let visit = if connection.input.bytes().len() >= connection.wanted_bytes.max(1) {
                self.serve_input(connection, &mut requests_max)
            } else if may_receive && receipts == VISIT_RECEIPTS_MAX {
                return Visit::More;
            } else if may_receive {
                receipts += 1;
                // The buffer is taken out of `self`, so that serving its requests can borrow `self` mutably.
                let mut buffer = std::mem::take(&mut self.receive_buffer);
                let visit = match connection.stream.receive(&mut buffer) {
                    Progress::Bytes(received) => {
                        may_receive = to_the_end || received == buffer.len();
                        self.serve_received(connection, &buffer[..received], &mut requests_max)
                    }
                    Progress::Blocked => {
                        may_receive = false;
                        Visit::Idle
                    }
                    Progress::Closed => Visit::Close,
                };
                self.receive_buffer = buffer;
                visit
            } else {
                return Visit::Idle;
            };
            if !matches!(visit, Visit::Idle) {
                return visit;
            }
        }
    }

    /// Serves bytes that were just received.
    fn serve_received(
        &mut self,
        connection: &mut Connection,
        received: &[u8],
        requests_max: &mut usize,
    ) -> Visit<M> {
        self.mine().counters.bytes_read.add(received.len() as u64);
        if connection.input.is_empty() {
            // Usually the requests are served from the receive buffer, and no bytes are left over.
            let stopped = self.process(connection, received, requests_max);
            connection.input.append(&received[stopped.consumed..]);
            return self.reply(connection, stopped.why);
        }
        connection.input.append(received);
        if connection.input.bytes().len() < connection.wanted_bytes {
            return Visit::Idle;
        }
        self.serve_input(connection, requests_max)
    }

    /// Serves bytes kept from earlier receive calls.
    fn serve_input(&mut self, connection: &mut Connection, requests_max: &mut usize) -> Visit<M> {
        let mut input = std::mem::take(&mut connection.input);
        let stopped = self.process(connection, input.bytes(), requests_max);
        input.consume(stopped.consumed);
        connection.input = input;
        self.reply(connection, stopped.why)
    }

    /// Serves requests at the front of `input` in the connection's protocol; replies go to the transmit buffer.
    fn process(&mut self, connection: &mut Connection, input: &[u8], requests_max: &mut usize) -> Stopped<M> {
        self.transmit_buffer.clear();
        match &mut connection.session {
            Session::Memcache(session) => {
                self.process_memcache(session, &connection.stream, input, requests_max)
            }
        }
    }

    /// Sends the composed replies in one call and returns how the visit goes on.
    fn reply(&mut self, connection: &mut Connection, why: Why<M>) -> Visit<M> {
        connection.wanted_bytes = 0;
        match why {
            // The replies are sent together with the value: see `lend`.
            Why::Large(work, class) => return Visit::Large(work, class),
            Why::Close => connection.closing = true,
            Why::NeedMore { wanted_bytes } => connection.wanted_bytes = wanted_bytes,
            Why::Budget => {}
        }
        match self.send(connection) {
            Visit::Idle => {}
            other => return other,
        }
        if connection.wanted_bytes > self.shared.config.buffer_bytes_max {
            self.mine().metrics.buffer_overflows.add(1);
            return Visit::Close;
        }
        match why {
            Why::Budget => Visit::More,
            Why::Close => Visit::Close,
            Why::NeedMore { .. } | Why::Large(..) => Visit::Idle,
        }
    }

    /// Sends the transmit buffer; bytes that the socket does not take stay with the connection.
    fn send(&mut self, connection: &mut Connection) -> Visit<M> {
        let bytes = self.transmit_buffer.as_slice();
        if bytes.is_empty() {
            return Visit::Idle;
        }
        self.mine().counters.bytes_written.add(bytes.len() as u64);
        match connection.stream.send(bytes) {
            Progress::Bytes(sent) if sent == bytes.len() => return Visit::Idle,
            Progress::Bytes(sent) => self.keep(connection, &bytes[sent..]),
            Progress::Blocked => self.keep(connection, bytes),
            Progress::Closed => return Visit::Close,
        }
        Visit::Blocked
    }

    /// Keeps replies until the socket takes them.
    pub(crate) fn keep(&self, connection: &mut Connection, bytes: &[u8]) {
        connection.output.append(bytes);
        self.mine().metrics.kept_bytes_max.raise(connection.output.bytes().len() as u64);
    }

    /// Hands the connection with its large request to the worker for its size, or serves it here.
    fn lend(&mut self, state: &mut QueueState<M, I>, event: Ready, work: Work<M>, class: SizeClass) {
        let Some(connection) = state.connections.lend(event.token) else { return };
        let head = self.transmit_buffer.as_slice().to_vec();
        let transfer = Box::new(Transfer { connection, head, work, moved_bytes: 0 });
        match self.placement.home(class) {
            Some(worker) => self.hand_over(state, HeldBack { transfer, worker }),
            None => self.serve_inline(transfer),
        }
    }
}

/// Sends replies that are left over.
fn flush<M: Mode>(connection: &mut Connection) -> Visit<M> {
    while !connection.output.is_empty() {
        match connection.stream.send(connection.output.bytes()) {
            Progress::Bytes(sent) => connection.output.consume(sent),
            Progress::Blocked => return Visit::Blocked,
            Progress::Closed => return Visit::Close,
        }
    }
    Visit::Idle
}
