//! One visit to a connection that has something to do: receive, serve, reply.

use minos_engine::{Access, Mode};
use minos_net::{Io, Progress};
use minos_proto::memcache::text::TOO_MANY_LOGINS;

use super::{
    connection::Connection, patience::Patience, queue::Arrival, session::Session, transfer::Transfer,
};
use crate::{
    memcache::{self, MemcacheSession},
    ops::{Context, Next},
    rack::{Greeting, Holes},
    resp,
    tracking::Inbox,
    worker::{
        Worker,
        placement::WorkerPlacement,
        rings::{Awaiting, Holder, Waiter},
    },
};

/// Receive calls in one visit. They bound a visit that discards bytes, which count as no request.
const VISIT_RECEIPTS_MAX: usize = 8;

impl<M: Mode, I: Io> Worker<'_, M, I> {
    /// Serves at most `requests_max` requests of a connection that was lent to this worker. Returns the
    /// arrival for its queue, or `None` if the connection went on with a large request.
    pub(crate) fn visit(&mut self, mut connection: Box<Connection>, requests_max: usize) -> Option<Arrival> {
        connection.registration.active(self.now_s);
        let is_killed = connection.registration.inbox().is_some_and(Inbox::is_killed);
        let next = match connection.flush() {
            // Even if its client does not read.
            _ if is_killed => Next::Close,
            Next::Continue if connection.closing => Next::Close,
            Next::Continue => match self.deliver(&mut connection) {
                Next::Continue => self.serve(&mut connection, requests_max),
                other => other,
            },
            other => other,
        };
        self.end_sample(&connection);
        Some(match next {
            Next::Continue | Next::NeedMore { .. } | Next::Blocked => {
                Arrival::Back { connection, has_more: false }
            }
            Next::Yield => Arrival::Back { connection, has_more: true },
            Next::Unpaused => Arrival::Back { has_more: self.is_behind(), connection },
            Next::Close => Arrival::Ended(connection),
            Next::Away(work) => {
                // The replies so far are sent together with the value.
                self.keep_replies(&mut connection, &self.transmit_buffer);
                let mut transfer = Transfer::new(connection, work, Patience::new(self.now));
                transfer.timed = self.probe.take_away(self.now);
                self.pass_or_serve(Box::new(transfer));
                return None;
            }
            Next::Owner(worker) => return self.give_connection(worker, connection),
            Next::Fetch(fetch) => {
                self.pass_or_fetch(Box::new(Awaiting { waiter: Waiter::Connection(connection), fetch }));
                return None;
            }
            Next::Check(task) => {
                self.keep_replies(&mut connection, &self.transmit_buffer);
                let mut connection = match self.shared.checks.wait(connection, task) {
                    Ok(()) => return None,
                    Err(connection) => connection,
                };
                let farewell = connection.session.farewell(TOO_MANY_LOGINS);
                self.keep_replies(&mut connection, &farewell);
                connection.closing = true;
                Arrival::Back { connection, has_more: true }
            }
            Next::Forward(forwards) => {
                drop(self.probe.take_away(self.now));
                let replies = std::mem::take(&mut self.transmit_buffer);
                self.forward(connection, *forwards, &replies);
                self.transmit_buffer = replies;
                return None;
            }
            Next::Durable(next) => {
                drop(self.probe.take_away(self.now));
                self.keep_replies(&mut connection, &self.transmit_buffer);
                self.hold(Holder::Connection(connection, *next));
                return None;
            }
        })
    }

    /// True if another plan is in force than this worker knows. What it lets wait may have been called already.
    fn is_behind(&self) -> bool {
        self.placement.version() != self.shared.plan.version()
    }

    /// Sends notices to a connection that waits for commands.
    fn deliver(&mut self, connection: &mut Connection) -> Next<M> {
        match (&mut connection.session, connection.registration.inbox()) {
            (Session::Memcache(MemcacheSession { telling: None, .. }), _) | (Session::Resp(_), None) => {
                return Next::Continue;
            }
            (Session::Memcache(MemcacheSession { telling: Some(telling), .. }), _) => {
                self.transmit_buffer.clear();
                telling.deliver(&mut self.transmit_buffer);
            }
            (Session::Resp(session), inbox) => {
                self.transmit_buffer.clear();
                session.deliver(inbox, &mut self.transmit_buffer);
            }
        }
        self.send(connection)
    }

    /// Receives and serves until nothing more comes. A connection that was away, for a reply from elsewhere, is drained as a
    /// rule: it has missed no event.
    fn serve(&mut self, connection: &mut Connection, mut requests_left: usize) -> Next<M> {
        let mut receipts = 0;
        loop {
            let next = if connection.input.bytes().len() >= connection.wanted_bytes.max(1) {
                let mut input = std::mem::take(&mut connection.input);
                let (consumed, next) = self.process(connection, input.bytes(), &mut requests_left);
                input.consume(consumed);
                connection.input = input;
                self.reply(connection, next)
            } else if connection.is_drained {
                return Next::Continue;
            } else if receipts == VISIT_RECEIPTS_MAX {
                return Next::Yield;
            } else {
                receipts += 1;
                // The buffer is taken out of `self`, so that serving its requests can borrow `self` mutably.
                let mut buffer = std::mem::take(&mut self.receive_buffer);
                let next = match connection.stream.receive(&mut buffer) {
                    Progress::Bytes(received) => {
                        // If the peer has sent the last bytes, no event announces those that are left.
                        let is_over = connection.hangup || connection.stream.is_over();
                        let is_cut = connection.stream.is_cut();
                        connection.is_drained = !(is_over || is_cut || received == buffer.len());
                        // It took as long as a whole visit.
                        receipts = if is_cut { VISIT_RECEIPTS_MAX } else { receipts };
                        self.serve_received(connection, &buffer[..received], &mut requests_left)
                    }
                    Progress::Blocked => {
                        connection.is_drained = true;
                        Next::Continue
                    }
                    Progress::Closed => Next::Close,
                };
                self.receive_buffer = buffer;
                next
            };
            match next {
                Next::Continue | Next::NeedMore { .. } => {}
                Next::Unpaused => return self.receive_only(connection, receipts),
                next => return next,
            }
        }
    }

    /// Keeps what a client sends while its command waits for the end of CLIENT PAUSE, so that its end is seen.
    fn receive_only(&mut self, connection: &mut Connection, receipts: usize) -> Next<M> {
        for _ in receipts..VISIT_RECEIPTS_MAX {
            if connection.input.bytes().len() as u64 >= self.placement.tuning().buffer_bytes_max {
                break;
            }
            match connection.stream.receive(&mut self.receive_buffer) {
                Progress::Bytes(received) => {
                    self.mine.counters.bytes_read.add(received as u64);
                    connection.input.append(&self.receive_buffer[..received]);
                }
                Progress::Blocked => break,
                Progress::Closed => return Next::Close,
            }
        }
        Next::Unpaused
    }

    /// Serves bytes that were just received; behind kept ones, they are kept too.
    fn serve_received(
        &mut self,
        connection: &mut Connection,
        received: &[u8],
        requests_left: &mut usize,
    ) -> Next<M> {
        self.mine.counters.bytes_read.add(received.len() as u64);
        if !connection.input.is_empty() {
            connection.input.append(received);
            return Next::Continue;
        }
        let (consumed, next) = self.process(connection, received, requests_left);
        connection.input.append(&received[consumed..]);
        self.reply(connection, next)
    }

    /// Serves requests at the front of `input` in the connection's protocol; replies go to the transmit
    /// buffer. Returns the number of bytes consumed.
    fn process(
        &mut self,
        connection: &mut Connection,
        input: &[u8],
        requests_left: &mut usize,
    ) -> (usize, Next<M>) {
        self.transmit_buffer.clear();
        if connection.settings != self.placement.settings() {
            self.renew_limits(connection);
        }
        match &mut connection.session {
            Session::Memcache(session) => {
                if session.awaits_hello {
                    return self.greet(connection, input);
                }
                if session.begins_binary(input) {
                    self.mine.metrics.binary_connections.add(1);
                }
                let fetched = if M::HAS_FLASH { connection.fetched.take() } else { None };
                let (mut cx, tx) = self.context();
                cx.fetched = fetched.as_deref();
                let served = memcache::serve(&mut cx, session, input, requests_left, tx);
                match fetched {
                    // The rest of the line, and requests behind it, have their copies there. All had come before the
                    // look-up, so that a copy is of a moment within its request.
                    Some(fetched) if session.resume.is_some() || matches!(served.1, Next::Yield) => {
                        connection.fetched = Some(fetched);
                    }
                    Some(fetched) => self.take_back(*fetched),
                    None => {}
                }
                served
            }
            // Its code is not compiled for these.
            Session::Resp(_) if M::Access::IS_BY_THREAD => unreachable!("--resp is refused"),
            Session::Resp(session) => {
                let fetched = if M::HAS_FLASH { connection.fetched.take() } else { None };
                let (mut cx, tx) = self.context();
                cx.fetched = fetched.as_deref();
                // Notices may have come since the visit began, before a command whose client knew of the change.
                session.deliver(connection.registration.inbox(), tx);
                let served = resp::serve(&mut cx, session, input, requests_left, tx);
                session.go_on(&served.1, connection.registration.inbox(), tx);
                match fetched {
                    Some(fetched)
                        if session.is_midway() || matches!(served.1, Next::Yield | Next::Owner(_)) =>
                    {
                        connection.fetched = Some(fetched);
                    }
                    Some(fetched) => self.take_back(*fetched),
                    None => {}
                }
                served
            }
        }
    }

    /// Gives a connection the limits that settings have changed.
    #[cold]
    fn renew_limits(&self, connection: &mut Connection) {
        connection.settings = self.placement.settings();
        connection.session.set_limits(self.placement.tuning());
    }

    /// Takes the first line of another node, which says what it takes this one for.
    #[cold]
    fn greet(&self, connection: &mut Connection, input: &[u8]) -> (usize, Next<M>) {
        let Some(rack) = &self.shared.rack else { unreachable!("only nodes of a rack listen for others") };
        let Session::Memcache(session) = &mut connection.session else {
            unreachable!("nodes speak memcached's protocol")
        };
        match Greeting::of(&rack.config, input) {
            Greeting::Right(bytes) => {
                (session.awaits_hello, session.is_peer) = (false, true);
                (bytes, Next::Continue)
            }
            Greeting::Begun(wanted_bytes) => (0, Next::NeedMore { wanted_bytes }),
            Greeting::Wrong(why) => {
                rack.tell_of_wrong(input, why);
                (input.len(), Next::Close)
            }
        }
    }

    /// Sends the composed replies in one call and returns how the visit goes on.
    fn reply(&mut self, connection: &mut Connection, next: Next<M>) -> Next<M> {
        connection.wanted_bytes = 0;
        match if let Next::Forward(forwards) = &next { &forwards.then } else { &next } {
            Next::Close => connection.closing = true,
            Next::NeedMore { wanted_bytes } => connection.wanted_bytes = *wanted_bytes,
            _ => {}
        }
        match self.may_reply(connection, &next) {
            Some(true) => {}
            Some(false) => return Next::Close,
            None => {
                self.mine.counters.bytes_written.add(self.transmit_buffer.len() as u64);
                return Next::Durable(Box::new(next));
            }
        }
        match next {
            // The replies are sent together with the value, those of other nodes, or that to a login: later, but what was read
            // is right now.
            Next::Away(_) | Next::Forward(_) | Next::Check(_) => {
                return if self.may_answer() { next } else { Next::Close };
            }
            // The replies so far need not wait for flash.
            Next::Fetch(_) => {
                return if matches!(self.send(connection), Next::Close) { Next::Close } else { next };
            }
            _ => {}
        }
        match self.send(connection) {
            Next::Continue => {}
            other => return other,
        }
        if connection.wanted_bytes as u64 > self.placement.tuning().buffer_bytes_max {
            self.mine.metrics.buffer_overflows.add(1);
            return Next::Close;
        }
        next
    }

    /// Whether the replies may leave although there are changes before them, see [`Worker::may_acknowledge`]. Those of
    /// commands without replies wait for the next reply, and with holes all wait for what fills them.
    #[inline]
    fn may_reply(&self, connection: &mut Connection, next: &Next<M>) -> Option<bool> {
        if !connection.session.has_changed() {
            return Some(true);
        }
        self.note_owed(connection);
        let is_later = self.transmit_buffer.is_empty() || matches!(next, Next::Forward(_));
        if is_later { Some(true) } else { self.may_acknowledge(connection) }
    }

    /// Sends the transmit buffer; bytes that the socket does not take stay with the connection.
    fn send(&mut self, connection: &mut Connection) -> Next<M> {
        // Also what is not said is an answer: a miss without a reply.
        if !self.may_answer() {
            return Next::Close;
        }
        let bytes = self.transmit_buffer.as_slice();
        if bytes.is_empty() {
            return Next::Continue;
        }
        self.mine.counters.bytes_written.add(bytes.len() as u64);
        let sent = connection.stream.send(bytes);
        self.end_sample(connection);
        match sent {
            Progress::Bytes(sent) if sent == bytes.len() => return Next::Continue,
            Progress::Bytes(sent) => self.keep_replies(connection, &bytes[sent..]),
            Progress::Blocked => self.keep_replies(connection, bytes),
            Progress::Closed => return Next::Close,
        }
        Next::Blocked
    }

    /// Ends the request that the probe has chosen, if there is one: its reply was just sent, or is kept.
    #[inline]
    fn end_sample(&self, connection: &Connection) {
        if self.probe.is_pending() {
            self.probe.sent(self.now, self.now_s, || connection.registration.peer_address());
        }
    }

    /// Keeps replies until the socket takes them.
    fn keep_replies(&self, connection: &mut Connection, bytes: &[u8]) {
        connection.output.append(bytes);
        self.mine.metrics.kept_bytes_max.raise(connection.output.bytes().len() as u64);
    }

    /// Sends the transmit buffer behind the replies that the connection holds already. Its home worker may be
    /// busy or stopped.
    pub(crate) fn send_behind(&mut self, connection: &mut Connection) -> Next<M> {
        let held_bytes = connection.output.bytes().len();
        if held_bytes == 0 {
            return self.send(connection);
        }
        self.mine.counters.bytes_written.add((held_bytes + self.transmit_buffer.len()) as u64);
        connection.output.append(&self.transmit_buffer);
        let next = connection.flush();
        self.mine.metrics.kept_bytes_max.raise(connection.output.bytes().len() as u64);
        next
    }

    /// The execution context of this worker, and its buffer for replies.
    pub(crate) fn context(&mut self) -> (Context<'_, M, WorkerPlacement>, &mut Vec<u8>) {
        let shared = self.shared;
        let context = Context {
            store: &shared.store,
            clock: &shared.clock,
            now: self.now_s,
            counters: &shared.workers[self.id.index()].counters,
            placement: &mut self.placement,
            admin: shared,
            prefixes: shared.prefixes.enabled(),
            fetched: None,
            rack: self.rack.as_ref(),
            probe: &self.probe,
            holes: Holes::default(),
        };
        (context, &mut self.transmit_buffer)
    }
}
