//! One visit to a connection that has something to do: receive, parse, execute, reply.

mod rare;

use arrayvec::ArrayVec;
use minos_base::{SizeClass, limits::BURST_MAX};
use minos_engine::Mode;
use minos_net::{Poller, Progress, Ready};
use minos_proto::memcache::{Command, Malformed, Parsed, Request, Resume, Value, parse, parse_resumed};

use super::{
    connection::Connection,
    queue::{Arrival, HeldBack, QueueState},
    transfer::{Transfer, Work},
};
use crate::{
    memcache::{self, Executed, LargeStore, Lookup, Outcome},
    ops::{Context, Placement},
    worker::{Worker, placement::WorkerPlacement, rings::Lent},
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

/// A parsed command of a burst, the lookup of its key, and its end in the input.
struct Pending<'a> {
    command: Command<'a>,
    lookup: Option<Lookup<'a>>,
    end: usize,
}

/// The input behind the commands of a burst.
enum Tail {
    /// Possibly more commands.
    Unknown,
    /// An incomplete command.
    NeedMore,
    /// An invalid command.
    Malformed(Malformed),
}

impl<'s, M: Mode, P: Poller> Worker<'s, M, P> {
    /// Serves a connection that has something to do, at most `requests_max` requests of it.
    pub(crate) fn visit(&mut self, state: &mut QueueState<M, P>, event: Ready, requests_max: usize) {
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
                let visit = match connection.socket.receive(&mut buffer) {
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
        match connection.socket.send(bytes) {
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
    fn lend(&mut self, state: &mut QueueState<M, P>, event: Ready, work: Work<M>, class: SizeClass) {
        let Some(connection) = state.connections.lend(event.token) else { return };
        let head = self.transmit_buffer.as_slice().to_vec();
        let transfer = Box::new(Transfer { connection, head, work, moved_bytes: 0 });
        match self.placement.home(class) {
            Some(worker) => self.hand_over(state, HeldBack { transfer, worker }),
            None => self.serve_inline(transfer),
        }
    }

    /// Parses and executes requests at the front of `input`; replies go to the transmit buffer.
    fn process(&mut self, connection: &mut Connection, input: &[u8], requests_max: &mut usize) -> Stopped<M> {
        self.transmit_buffer.clear();
        if !connection.has_spoken && !self.is_understood(connection, input) {
            return Stopped { consumed: input.len(), why: Why::Close };
        }
        let mut consumed = swallow(connection, input);
        while consumed < input.len() {
            if *requests_max == 0 || self.has_composed_enough() {
                return Stopped { consumed, why: Why::Budget };
            }
            let (used, why) = self.process_burst(connection, &input[consumed..], requests_max);
            consumed += used;
            if let Some(why) = why {
                return Stopped { consumed, why };
            }
            consumed += swallow(connection, &input[consumed..]);
        }
        Stopped { consumed, why: Why::NeedMore { wanted_bytes: 1 } }
    }

    /// True if the composed replies must be sent before another request is executed.
    #[inline]
    fn has_composed_enough(&self) -> bool {
        self.transmit_buffer.len() >= self.replies_bytes_max
    }

    /// Parses a burst of requests while their index buckets are fetched, then executes it. Returns the bytes
    /// of `input` consumed and, unless the caller is to look at the rest, the reason to stop.
    fn process_burst(
        &mut self,
        connection: &mut Connection,
        input: &[u8],
        requests_max: &mut usize,
    ) -> (usize, Option<Why<M>>) {
        let mut burst = ArrayVec::new();
        let tail = self.parse_burst(connection.resume.take(), input, &mut burst, *requests_max);
        self.stage(&mut burst);
        let mut consumed = 0;
        for pending in &burst {
            *requests_max = requests_max.saturating_sub(1);
            let executed = self.execute(pending, requests_max);
            let before = consumed;
            consumed = pending.end - executed.unread_bytes;
            let why = match executed.outcome {
                Outcome::Done if self.has_composed_enough() => return (consumed, None),
                Outcome::Done => continue,
                Outcome::ListConnections if self.list_connections(connection) => continue,
                Outcome::ListConnections => {
                    consumed = before;
                    Why::Budget
                }
                Outcome::Refused { swallow } => {
                    connection.swallow_bytes = swallow;
                    return (consumed, None);
                }
                Outcome::Paused(resume) => {
                    connection.resume = Some(resume);
                    Why::Budget
                }
                Outcome::NeedMore { body_bytes } => {
                    consumed = before;
                    Why::NeedMore { wanted_bytes: pending.end - before + body_bytes as usize }
                }
                other => self.leave(other),
            };
            return (consumed, Some(why));
        }
        match tail {
            Tail::Unknown => (consumed, None),
            Tail::NeedMore => (consumed, Some(Why::NeedMore { wanted_bytes: input.len() - consumed + 1 })),
            Tail::Malformed(malformed) => {
                *requests_max = requests_max.saturating_sub(1);
                (consumed + malformed.consumed, self.refuse(connection, &malformed))
            }
        }
    }

    /// Looks the keys of a burst up in their buckets, which are cached by now, and prefetches their items.
    fn stage<'a>(&self, burst: &mut [Pending<'a>])
    where
        's: 'a,
    {
        if burst.len() < 2 {
            return;
        }
        let store = &self.shared.store;
        for pending in burst {
            let Some(lookup) = &mut pending.lookup else { continue };
            match pending.command.request {
                Request::Get(_) => lookup.staged = Some(store.stage(lookup.hash)),
                _ => store.prefetch_item(lookup.hash),
            }
        }
    }

    /// Parses commands at the front of `input` and prefetches their index buckets.
    fn parse_burst<'a>(
        &self,
        mut resume: Option<Resume>,
        input: &'a [u8],
        burst: &mut ArrayVec<Pending<'a>, BURST_MAX>,
        requests_max: usize,
    ) -> Tail {
        let (store, limits) = (&self.shared.store, &self.limits);
        let mut end = 0;
        while burst.len() < BURST_MAX.min(requests_max) && end < input.len() {
            let rest = &input[end..];
            let parsed = match resume.take() {
                None => parse(rest, limits),
                Some(resume) => parse_resumed(resume, rest),
            };
            match parsed {
                Parsed::Request { command, consumed } => {
                    end += consumed;
                    let lookup = Lookup::of(store, &command);
                    if let Some(lookup) = &lookup {
                        store.prefetch_bucket(lookup.hash);
                    }
                    let is_last = match command.request {
                        // The value follows.
                        Request::Store(store) => !matches!(store.value, Value::Whole(_)),
                        // It may pause, and then the commands behind it would be parsed again each time.
                        Request::GetMany(_) => true,
                        _ => false,
                    };
                    burst.push(Pending { command, lookup, end });
                    if is_last {
                        return Tail::Unknown;
                    }
                }
                Parsed::NeedMore => return Tail::NeedMore,
                Parsed::Malformed(malformed) => return Tail::Malformed(malformed),
            }
        }
        Tail::Unknown
    }

    fn execute(&mut self, pending: &Pending<'_>, requests_left: &mut usize) -> Executed<M> {
        let (mut context, tx) = self.context();
        memcache::execute(&mut context, &pending.command, pending.lookup, requests_left, tx)
    }

    /// The execution context of this worker, and its buffer for replies.
    fn context(&mut self) -> (Context<'_, M, WorkerPlacement>, &mut Vec<u8>) {
        let shared = self.shared;
        let context = Context {
            store: &shared.store,
            clock: &shared.clock,
            now: self.now_s,
            counters: &shared.workers[self.id.index()].counters,
            placement: &mut self.placement,
            admin: shared,
            prefixes: shared.prefixes.enabled(),
        };
        (context, &mut self.transmit_buffer)
    }

    /// The reason for which an outcome ends the visit.
    fn leave(&self, outcome: Outcome<M>) -> Why<M> {
        match outcome {
            Outcome::SendLarge(reply) => {
                let class = reply.class();
                Why::Large(Work::Send { reply, sent_bytes: 0 }, class)
            }
            Outcome::ReceiveLarge(store) => {
                let class = store.class();
                Why::Large(Work::Receive { store, received_bytes: 0 }, class)
            }
            Outcome::FinishLarge(store) => {
                let class = store.class();
                Why::Large(Work::Finish { store }, class)
            }
            Outcome::Shutdown { graceful } => {
                tracing::info!(graceful, "a client asked the server to stop");
                if graceful {
                    self.shared.stop.request()
                } else {
                    self.shared.stop.request_at_once()
                }
                Why::Close
            }
            Outcome::Quit
            | Outcome::Done
            | Outcome::ListConnections
            | Outcome::Paused(_)
            | Outcome::NeedMore { .. }
            | Outcome::Refused { .. } => Why::Close,
        }
    }

    /// Ends a large store whose bytes have all arrived: the reply goes to the transmit buffer. Returns the
    /// store if bytes still have to be copied.
    pub(crate) fn finish_store(&mut self, store: Box<LargeStore<M>>) -> Option<Box<LargeStore<M>>> {
        let (context, tx) = self.context();
        store.finish(&context, tx)
    }
}

/// Sends replies that are left over.
fn flush<M: Mode>(connection: &mut Connection) -> Visit<M> {
    while !connection.output.is_empty() {
        match connection.socket.send(connection.output.bytes()) {
            Progress::Bytes(sent) => connection.output.consume(sent),
            Progress::Blocked => return Visit::Blocked,
            Progress::Closed => return Visit::Close,
        }
    }
    Visit::Idle
}

/// Discards the bytes of a refused value in `input`; returns their number.
fn swallow(connection: &mut Connection, input: &[u8]) -> usize {
    let swallowed = connection.swallow_bytes.min(input.len() as u64);
    connection.swallow_bytes -= swallowed;
    swallowed as usize
}
