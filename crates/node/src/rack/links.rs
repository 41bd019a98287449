//! A worker's connections to the other nodes, over which it forwards commands.

#[cfg(feature = "ucx")]
mod afar;
#[cfg(not(feature = "ucx"))]
#[path = "links/no_afar.rs"]
mod afar;
#[cfg(test)]
mod tests;

use std::{
    collections::VecDeque,
    io,
    os::fd::{AsFd, BorrowedFd},
    time::{Duration, Instant},
};

use minos_base::limits::BURST_MAX;
use minos_engine::Mode;
use minos_net::{Address, Interest, Poller, Progress, Ready, Token, Wait};
use minos_proto::{
    memcache::{BadReply, Replies},
    resp::Id,
};
use minos_sealed::{Ends, Keys, Purpose};

use super::{
    END_OF_FORWARD, Forward, NOT_OWNER, NOWHERE, ORIGIN_MARK, RackView, Translate,
    config::RackConfig,
    greeting::hello,
    holes::{Forwards, Hole},
};
use crate::{
    ops::{Admin, Next, receiving::ReceivePermit},
    server::control::Seldom,
    tcp::{
        connection::{Buffer, Connection, Stream},
        queue::VISIT_REQUESTS_MAX,
        session::Session,
    },
    tracking::Origin,
};
#[cfg(feature = "ucx")]
pub(crate) use afar::Afar;

/// Links to each node: one for small commands and one for those that may be large.
const LINKS_PER_NODE: usize = 2;
/// Time after a failure in which a node is not tried again.
const RETRY: Duration = Duration::from_millis(10);
/// Time after which a command that is parked is tried again, if nothing has changed before.
const PARKED: Duration = Duration::from_micros(500);
/// The same, after a node has refused this one, or has not answered in time: a handshake costs both some work.
const REFUSED_RETRY: Duration = Duration::from_millis(100);
/// Time after a look at all links in which one that was open then is taken to be. What is sent to a node that has ended
/// meanwhile is lost, as what was on its way to it.
const WATCHED: Duration = Duration::from_millis(1);
/// Time for the handshake of a link on which no command waits.
const HANDSHAKE_MAX: Duration = Duration::from_secs(3);
/// Time between two lines about links that are refused.
pub(super) const LINE_EVERY: Duration = Duration::from_secs(60);
/// Bytes received at a time.
const RECEIVE_BYTES: usize = 64 << 10;
/// Bytes of a reply from which on it needs a permit.
const FREE_BYTES: usize = 64 << 10;
/// Bytes from which on no more commands join those that are about to be sent.
const SEND_BYTES: usize = 64 << 10;
/// Receive calls on one link in one turn.
const RECEIPTS_MAX: usize = 8;

/// The links of one worker.
pub(crate) struct Links<M: Mode, P> {
    links: Vec<Link>,
    poller: P,
    ready: Vec<Ready>,
    /// When the poller last said which links are closed.
    polled: Instant,
    /// Commands sent or to be sent, without a reply.
    under_way: usize,
    /// Connections whose commands are under way, parked or answered.
    connections: usize,
    /// True if a handshake may be under way.
    is_opening: bool,
    batches: Vec<Option<Batch<M>>>,
    free: Vec<usize>,
    answered: VecDeque<Answered<M>>,
    /// Commands whose owner is not known, or cannot be reached, at the moment.
    parked: Vec<Parked>,
    /// The version of the routes by which they were parked.
    routes: u64,
    buffer: Box<[u8]>,
    /// This node's number.
    own: u16,
    /// For sealed links.
    keys: Option<Keys>,
    log: RefusedLog,
    timeout: Duration,
    waiting_max: usize,
    /// Reads in memory that is not mapped here.
    #[cfg(feature = "ucx")]
    afar: Option<Afar>,
}

/// Says seldom that links are refused.
struct RefusedLog(Seldom);

impl RefusedLog {
    fn warn(&mut self, node: usize, now: Instant) {
        if let Some(times) = self.0.happened(now) {
            tracing::warn!(
                node,
                times,
                "a link was not opened: no route, or the other node has another --rack-secret"
            );
        }
    }
}

/// A connection to one node.
struct Link {
    node: usize,
    address: Address,
    /// Its first line.
    hello: Vec<u8>,
    stream: Option<Stream>,
    /// Bytes to send.
    output: Buffer,
    is_blocked: bool,
    input: Vec<u8>,
    replies: Replies,
    /// For the memory of a large reply that is arriving.
    permit: Option<ReceivePermit>,
    /// True while a reply arrives for which there is no memory.
    drops: bool,
    /// Those that are sent, or about to be, then the others.
    waiting: VecDeque<Waiting>,
    /// How many are sent, or about to be: their bytes are on their way or in `output`.
    begun: usize,
    /// The origin that the other end has for the commands behind.
    origin: Origin,
    /// Bytes that have left.
    sent: u64,
    /// When bytes of the oldest command, or of its reply, last moved.
    moved: Instant,
    /// When it may be tried again.
    retry: Instant,
    /// When the handshake of a sealed link has begun that is not over.
    opening: Option<Instant>,
}

/// A command that is at no link.
struct Parked {
    part: PartId,
    forward: Forward,
    /// When it came.
    since: Instant,
    /// When it is tried again, at the latest.
    due: Instant,
}

/// A forwarded command that waits for its reply.
struct Waiting {
    /// `None` once it was given up: its reply is still to come.
    part: Option<PartId>,
    forward: Forward,
    since: Instant,
    /// The bytes that have left once it has; 0 as long as it has not begun.
    end: u64,
}

/// Names a batch, and the part of it that belongs to one command.
#[derive(Clone, Copy, Debug)]
pub(super) struct PartId {
    pub(super) batch: usize,
    pub(super) part: usize,
}

/// The commands of one connection that are under way.
struct Batch<M: Mode> {
    connection: Box<Connection>,
    parts: Vec<Part>,
    /// Replies behind those of the last part.
    after: Vec<u8>,
    /// Replies that are to come: one for each part, and for each division of it.
    left: usize,
    then: Next<M>,
    permits: Vec<ReceivePermit>,
}

/// The replies before a hole, and those that fill it.
struct Part {
    before: Vec<u8>,
    reply: Vec<u8>,
    translate: Option<Translate>,
    command: Option<Id>,
    /// Where the reply to its line of keys begins, as in [`Hole`].
    line: Option<usize>,
}

impl Part {
    /// True if it stands for a key of a line, and an error has come in place of its value.
    fn has_failed(&self) -> bool {
        self.line.is_some() && !self.reply.is_empty() && !self.reply.starts_with(b"VALUE ")
    }
}

impl<M: Mode> Batch<M> {
    /// Makes one error, that of a part, of the reply to a line of keys. A client takes an error for the end of a reply, and
    /// would take what follows for the replies to its next commands.
    #[cold]
    fn end_line(&mut self, failed: usize) {
        let error = std::mem::take(&mut self.parts[failed].reply);
        let mut place = 0;
        for (at, part) in self.parts.iter_mut().enumerate() {
            let Some(line) = part.line else {
                place += part.before.len();
                continue;
            };
            part.before.truncate(line - place);
            part.reply = error;
            // No command of the burst is behind the line.
            self.parts.truncate(at + 1);
            break;
        }
        self.after.clear();
        // Neither the value that was to follow nor the keys that are left are in the reply any more.
        self.then = Next::Yield;
        if let Session::Memcache(session) = &mut self.connection.session {
            session.pass_over_line();
        }
    }
}

/// A connection whose commands are answered, and how it goes on.
pub(crate) struct Answered<M: Mode> {
    pub(crate) connection: Box<Connection>,
    pub(crate) then: Next<M>,
    /// Bytes of replies that it got.
    pub(crate) bytes: u64,
    /// Commands of Redis' protocol that have failed.
    pub(crate) failed: Vec<Id>,
}

/// What a client reads in place of a reply.
#[derive(Clone, Copy, Debug)]
enum Failure {
    Unsettled,
    Unreachable,
    Lost,
    Late,
    Busy,
    NoMemory,
}

impl Failure {
    fn text(self, node: usize) -> String {
        match self {
            Self::Unsettled => {
                "SERVER_ERROR the key changes hands in the rack; the command is not done\r\n".to_owned()
            }
            Self::Unreachable => format!("SERVER_ERROR node {node} of the rack cannot be reached\r\n"),
            Self::Lost => {
                format!("SERVER_ERROR node {node} of the rack was lost; the command may be done\r\n")
            }
            Self::Late => {
                format!("SERVER_ERROR node {node} of the rack is late; the command may be done\r\n")
            }
            Self::Busy => format!("SERVER_ERROR too many commands for node {node} of the rack\r\n"),
            Self::NoMemory => "SERVER_ERROR out of memory writing get response\r\n".to_owned(),
        }
    }
}

impl<M: Mode, P: Poller> Links<M, P> {
    /// Links to the nodes of `config`, none of them open yet.
    pub(crate) fn new(poller: P, config: &RackConfig, now: Instant) -> Self {
        let link = |number: usize| Link {
            node: number / LINKS_PER_NODE,
            address: config.nodes[number / LINKS_PER_NODE].address.clone(),
            hello: hello(config, number / LINKS_PER_NODE),
            stream: None,
            output: Buffer::default(),
            is_blocked: false,
            input: Vec::new(),
            replies: Replies::default(),
            permit: None,
            drops: false,
            waiting: VecDeque::new(),
            begun: 0,
            origin: Origin::default(),
            sent: 0,
            moved: now,
            retry: now,
            opening: None,
        };
        Self {
            links: (0..config.nodes.len() * LINKS_PER_NODE).map(link).collect(),
            poller,
            ready: Vec::new(),
            polled: now,
            under_way: 0,
            connections: 0,
            is_opening: false,
            batches: Vec::new(),
            free: Vec::new(),
            answered: VecDeque::new(),
            parked: Vec::new(),
            routes: 0,
            buffer: vec![0; RECEIVE_BYTES].into_boxed_slice(),
            own: config.node as u16,
            keys: config.keys(),
            log: RefusedLog(Seldom::new(LINE_EVERY)),
            timeout: config.timeout,
            waiting_max: config.waiting_max,
            #[cfg(feature = "ucx")]
            afar: None,
        }
    }

    /// True if no command is under way, whose connection may have been told that it is late, and no connection waits.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.under_way | self.connections == 0
    }

    /// True if there is nothing to advance.
    #[inline]
    pub(crate) fn is_idle(&self) -> bool {
        self.is_empty() && !self.is_reading()
    }

    /// True if [`give_up_late`](Self::give_up_late) may find something.
    #[inline]
    pub(crate) fn may_be_late(&self) -> bool {
        usize::from(self.is_opening) | self.under_way > 0 || self.is_reading()
    }

    /// How long a worker may sleep while commands are parked.
    pub(crate) fn sleep_max(&self) -> Option<Duration> {
        (!self.parked.is_empty()).then_some(PARKED)
    }

    /// True if there are bytes to send that no socket has refused.
    pub(crate) fn has_unsent(&self) -> bool {
        let may_send = |link: &Link| !link.output.is_empty() || link.may_begin(self.waiting_max);
        self.links.iter().any(|link| !link.is_blocked && may_send(link))
    }

    /// The descriptor that is readable when a link may go on.
    pub(crate) fn descriptor(&self) -> BorrowedFd<'_> {
        self.poller.descriptor()
    }

    /// Takes in commands for other nodes, which leave with the next [`advance`](Self::advance). Their replies come into
    /// the holes between `replies`.
    pub(crate) fn begin(
        &mut self,
        connection: Box<Connection>,
        forwards: Forwards<M>,
        replies: &[u8],
        (rack, now): (&RackView<M>, Instant),
    ) {
        let Forwards { mut holes, then } = forwards;
        let mut from = 0;
        let part = |hole: &mut Hole| {
            let before = replies[from..hole.at].to_vec();
            from = hole.at;
            let Forward { translate, command, .. } = &mut hole.forward;
            let (translate, command) = (translate.take(), *command);
            Part { before, reply: Vec::new(), translate, command, line: hole.line }
        };
        let parts: Vec<Part> = holes.iter_mut().map(part).collect();
        let (after, left) = (replies[from..].to_vec(), parts.len());
        let batch = self.free.pop().unwrap_or_else(|| {
            self.batches.push(None);
            self.batches.len() - 1
        });
        self.batches[batch] = Some(Batch { connection, parts, after, left, then, permits: Vec::new() });
        self.connections += 1;
        for (part, hole) in holes.into_iter().enumerate() {
            let part = PartId { batch, part };
            if let Some(forward) = self.read_afar(part, hole.forward, (rack, now)) {
                self.leave(part, forward, (rack, now), now);
            }
        }
    }

    /// Sends a command off, which came at `since`: to the owner of its key, to the owners of its keys, or to its node.
    fn leave(
        &mut self,
        part: PartId,
        mut forward: Forward,
        (rack, now): (&RackView<M>, Instant),
        since: Instant,
    ) {
        if let Some(divide) = forward.divide {
            if forward.node.is_some_and(|node| self.is_full(node, &forward)) {
                return self.park(part, forward, (Failure::Busy, since), (rack, now));
            }
            let divided = divide(&forward.bytes, &|key| rack.destination_of(key));
            self.expect_more(part, divided.len() - 1);
            let Forward { is_large, is_read, origin, .. } = forward;
            for (node, bytes) in divided {
                let divide = Some(divide);
                let one =
                    Forward { bytes, is_large, is_read, origin, divide, ..Forward::to_node(Some(node)) };
                self.append(part, one, (rack, now), since);
            }
            return;
        }
        if let Some(micro_shard) = forward.micro_shard.filter(|_| rack.is_managed()) {
            forward.node = rack.destination(micro_shard);
        }
        self.append(part, forward, (rack, now), since);
    }

    /// True if no more commands may wait for a node. Those that read wait until others have their replies, as many as so
    /// many clients may have under way.
    fn is_full(&self, node: u16, forward: &Forward) -> bool {
        let may_queue = forward.divide.is_none() && (forward.is_read || forward.is_part);
        let max =
            if may_queue { self.waiting_max.saturating_mul(VISIT_REQUESTS_MAX) } else { self.waiting_max };
        let link = self.links.get(usize::from(node) * LINKS_PER_NODE + usize::from(forward.is_large));
        link.is_some_and(|link| link.waiting.len() >= max)
    }

    /// Appends a command to those of the link to its node. Or parks it, if its keys may move, or if it is divided
    /// and too many are under way.
    fn append(
        &mut self,
        part: PartId,
        forward: Forward,
        (rack, now): (&RackView<M>, Instant),
        since: Instant,
    ) {
        let (counters, may_move) = (&rack.counters, rack.is_managed() && forward.follows_keys());
        let node = forward.node.unwrap_or(NOWHERE);
        let number = usize::from(node) * LINKS_PER_NODE + usize::from(forward.is_large);
        let failure = if node == NOWHERE {
            Some((Failure::Unsettled, may_move, &counters.forward_failed))
        } else if self.open(number, now).is_err() {
            Some((Failure::Unreachable, may_move, &counters.forward_failed))
        } else if self.is_full(node, &forward) {
            Some((Failure::Busy, forward.divide.is_some(), &counters.forward_refused))
        } else {
            None
        };
        match failure {
            Some((failure, true, _)) => return self.park(part, forward, (failure, since), (rack, now)),
            Some((failure, false, counter)) => {
                counter.count();
                return self.fail(part, forward.is_silent, failure, usize::from(node));
            }
            None => {}
        }
        counters.forwarded.count();
        let link = &mut self.links[number];
        if link.waiting.is_empty() {
            link.moved = now;
        } else if link.waiting.len() >= self.waiting_max {
            counters.forward_parked.count();
        }
        link.waiting.push_back(Waiting { part: Some(part), forward, since, end: 0 });
        self.under_way += 1;
    }

    /// Lets a command wait until the routes change, or a moment, unless its time is over or too many wait.
    fn park(
        &mut self,
        part: PartId,
        forward: Forward,
        (failure, since): (Failure, Instant),
        (rack, now): (&RackView<M>, Instant),
    ) {
        let counters = &rack.counters;
        let is_late = now.saturating_duration_since(since) >= self.timeout;
        if is_late || self.parked.len() >= self.waiting_max {
            if is_late {
                counters.forward_late.count()
            } else {
                counters.forward_refused.count()
            }
            let node = forward.node.map_or(0, usize::from);
            return self.fail(part, forward.is_silent, failure, node);
        }
        counters.forward_parked.count();
        self.parked.push(Parked { part, forward, since, due: now + PARKED });
    }

    /// Tries parked commands again whose time has come, or all after a change of the routes.
    fn unpark(&mut self, rack: &RackView<M>, now: Instant) {
        let has_changed = self.routes != rack.version();
        self.routes = rack.version();
        for parked in std::mem::take(&mut self.parked) {
            if has_changed || parked.due <= now {
                self.leave(parked.part, parked.forward, (rack, now), parked.since);
            } else {
                self.parked.push(parked);
            }
        }
    }

    fn fail(&mut self, part: PartId, is_silent: bool, failure: Failure, node: usize) {
        let text = if is_silent { String::new() } else { failure.text(node) };
        self.fill(part, text.into_bytes(), None);
    }

    /// Lets so many more replies come for a part.
    fn expect_more(&mut self, PartId { batch, .. }: PartId, more: usize) {
        self.batches[batch].iter_mut().for_each(|entry| entry.left += more);
    }

    /// Takes in a reply. With the last one, the connection goes on.
    fn fill(&mut self, PartId { batch, part }: PartId, reply: Vec<u8>, permit: Option<ReceivePermit>) {
        let Some(entry) = &mut self.batches[batch] else { unreachable!("a part is filled once") };
        let filled = &mut entry.parts[part].reply;
        if filled.is_empty() {
            *filled = reply;
        } else {
            filled.extend_from_slice(&reply);
        }
        entry.permits.extend(permit);
        entry.left -= 1;
        if entry.left > 0 {
            return;
        }
        let Some(mut filled) = self.batches[batch].take() else { return };
        self.free.push(batch);
        if let Some(failed) = filled.parts.iter().position(Part::has_failed) {
            filled.end_line(failed);
        }
        let Batch { mut connection, parts, after, then, permits, .. } = filled;
        let held_bytes = connection.output.bytes().len();
        let mut failed = Vec::new();
        for Part { before, reply, translate, command, .. } in parts {
            connection.output.append(&before);
            let reply = match translate {
                Some(translate) => translate(&reply),
                None => reply,
            };
            failed.extend(command.filter(|_| reply.first() == Some(&b'-')));
            connection.output.append(&reply);
        }
        connection.output.append(&after);
        connection.output_permits.extend(permits);
        let bytes = (connection.output.bytes().len() - held_bytes) as u64;
        self.answered.push_back(Answered { connection, then, bytes, failed });
    }

    /// Sends notes, to which there is no reply. They are lost if the node cannot be reached or takes no more bytes: it
    /// may be stopped for long, while its memory is read.
    pub(crate) fn note(&mut self, node: usize, frame: &[u8], rack: &RackView<M>, now: Instant) {
        let number = node * LINKS_PER_NODE;
        if self.open(number, now).is_ok() && !self.links[number].is_blocked {
            self.links[number].output.append(frame);
            self.send(number, rack, now);
        }
    }

    fn open(&mut self, number: usize, now: Instant) -> io::Result<()> {
        let link = &mut self.links[number];
        if let Some(stream) = &mut link.stream {
            // Nobody watches links while all are idle: its node may be another process by now.
            let is_watched = !link.waiting.is_empty() || now.saturating_duration_since(self.polled) < WATCHED;
            let is_there = is_watched || stream.receive(&mut [0]) == Progress::Blocked;
            if is_there {
                return Ok(());
            }
            self.poller.remove(Token(number as u64), stream.as_fd());
            if link.reset(now) {
                self.log.warn(link.node, now);
            }
        }
        if now < link.retry {
            return Err(io::ErrorKind::NotConnected.into());
        }
        let ends = Ends { purpose: Purpose::Commands, from: self.own, to: link.node as u16 };
        let sealing = self.keys.as_ref().map(|keys| (keys, ends));
        let stream = Stream::connect(&link.address, sealing).inspect_err(|_| link.retry = now + RETRY)?;
        self.poller.add(Token(number as u64), stream.as_fd(), Interest::ReadWrite)?;
        link.output.append(&link.hello);
        link.opening = (!stream.is_open()).then_some(now);
        self.is_opening |= link.opening.is_some();
        link.stream = Some(stream);
        Ok(())
    }

    /// Sends and receives; true if anything moved.
    pub(crate) fn advance(&mut self, admin: &dyn Admin, rack: &RackView<M>, now: Instant) -> bool {
        self.advance_afar(rack, now);
        if !self.parked.is_empty() {
            self.unpark(rack, now);
        }
        if self.under_way == 0 {
            return !self.answered.is_empty();
        }
        let mut found = false;
        for number in 0..self.links.len() {
            found |= self.send(number, rack, now);
        }
        self.ready.clear();
        match self.poller.poll(&mut self.ready, usize::MAX, Wait::No) {
            // More may wait behind a full burst.
            Ok(()) if self.ready.len() < BURST_MAX => self.polled = now,
            Ok(()) => {}
            Err(_) => self.ready.clear(),
        }
        for at in 0..self.ready.len() {
            let Ready { token, writable, hangup, .. } = self.ready[at];
            let number = token.0 as usize;
            if writable {
                self.links[number].is_blocked = false;
                self.send(number, rack, now);
            }
            self.receive(number, hangup, (admin, rack), now);
            found = true;
        }
        found
    }

    /// A connection whose commands are answered: the replies are behind those that it holds.
    pub(crate) fn take_answered(&mut self) -> Option<Answered<M>> {
        let answered = self.answered.pop_front()?;
        self.connections -= 1;
        Some(answered)
    }

    fn send(&mut self, number: usize, rack: &RackView<M>, now: Instant) -> bool {
        let link = &mut self.links[number];
        let mut found = false;
        while !link.is_blocked && link.stream.is_some() {
            if link.output.is_empty() {
                link.begin(rack.is_managed(), self.waiting_max);
            }
            let Some(stream) = &mut link.stream else { break };
            if link.output.is_empty() {
                break;
            }
            match stream.send(link.output.bytes()) {
                Progress::Bytes(sent) => {
                    // A node that is stopped is late also while others' commands leave.
                    if link.waiting.front().is_some_and(|oldest| oldest.end > link.sent) {
                        link.moved = now;
                    }
                    link.sent += sent as u64;
                    link.output.consume(sent);
                    found = true;
                }
                Progress::Blocked => link.is_blocked = true,
                Progress::Closed => {
                    self.close(number, rack, now);
                    return true;
                }
            }
        }
        found
    }

    /// Receives what has come on a link; up to the end of the stream, which no other event reports, if that `is_over`.
    fn receive(
        &mut self,
        number: usize,
        is_over: bool,
        (admin, rack): (&dyn Admin, &RackView<M>),
        now: Instant,
    ) {
        for _ in 0..RECEIPTS_MAX {
            let link = &mut self.links[number];
            let Some(stream) = &mut link.stream else { return };
            let received = match stream.receive(&mut self.buffer) {
                Progress::Bytes(received) => received,
                Progress::Blocked => return,
                Progress::Closed => return self.close(number, rack, now),
            };
            link.input.extend_from_slice(&self.buffer[..received]);
            link.moved = now;
            if self.take_replies(number, (admin, rack), now).is_err() {
                return self.close(number, rack, now);
            }
            if received < self.buffer.len() && !is_over {
                return;
            }
        }
        // Edges are not repeated.
        let link = &self.links[number];
        if let Some(stream) = &link.stream
            && self.poller.change(Token(number as u64), stream.as_fd(), Interest::ReadWrite).is_err()
        {
            self.close(number, rack, now);
        }
    }

    /// Passes on the replies that have arrived.
    fn take_replies(
        &mut self,
        number: usize,
        (admin, rack): (&dyn Admin, &RackView<M>),
        now: Instant,
    ) -> Result<(), BadReply> {
        let mut taken = 0;
        loop {
            let link = &mut self.links[number];
            let Some(end) = link.replies.find_end(&link.input[taken..])? else { break };
            let Some(waiting) = link.take_oldest() else {
                // Nobody has asked.
                return Err(BadReply);
            };
            let reply = taken..taken + end;
            taken = reply.end + Replies::END_BYTES;
            self.under_way -= 1;
            let drops = std::mem::take(&mut link.drops);
            let permit = link.permit.take();
            let Waiting { part: Some(part), forward, since, .. } = waiting else { continue };
            if drops {
                let node = link.node;
                self.fail(part, forward.is_silent, Failure::NoMemory, node);
                continue;
            }
            if rack.is_managed() && forward.follows_keys() && link.input[reply.clone()] == *NOT_OWNER {
                let owner = forward.micro_shard.and_then(|micro_shard| rack.destination(micro_shard));
                if owner.is_some_and(|owner| usize::from(owner) != link.node) {
                    // The routes have changed since it was sent there.
                    self.leave(part, forward, (rack, now), since);
                } else {
                    self.park(part, forward, (Failure::Unsettled, since), (rack, now));
                }
                continue;
            }
            let bytes = link.input[reply].to_vec();
            self.fill(part, forward.shortened(bytes), permit);
        }
        let link = &mut self.links[number];
        link.input.drain(..taken);
        link.bound_memory(admin);
        Ok(())
    }

    /// Closes a link; the commands under way there may or may not have been executed, if it was open. Where micro-shards
    /// may move, those that were not, and reads, are tried again.
    fn close(&mut self, number: usize, rack: &RackView<M>, now: Instant) {
        let counters = &rack.counters;
        let link = &mut self.links[number];
        if let Some(stream) = &link.stream {
            self.poller.remove(Token(number as u64), stream.as_fd());
        }
        let node = link.node;
        let is_refused = link.reset(now);
        let failure = if is_refused { Failure::Unreachable } else { Failure::Lost };
        if is_refused {
            self.log.warn(node, now);
        }
        for Waiting { part, forward, since, .. } in std::mem::take(&mut self.links[number].waiting) {
            self.under_way -= 1;
            match part {
                Some(part)
                    if rack.is_managed() && forward.follows_keys() && (is_refused || forward.is_read) =>
                {
                    self.park(part, forward, (failure, since), (rack, now));
                }
                Some(part) => {
                    counters.forward_failed.count();
                    self.fail(part, forward.is_silent, failure, node);
                }
                None => counters.forward_failed.count(),
            }
        }
    }

    /// Gives up the commands whose time is over.
    #[inline]
    pub(crate) fn give_up_late(&mut self, rack: &RackView<M>, now: Instant) {
        let counters = &rack.counters;
        self.give_up_afar(rack, now);
        if self.is_opening {
            self.go_on_opening(rack, now);
        }
        for number in 0..self.links.len() {
            let link = &mut self.links[number];
            let (node, waiting) = (link.node, link.waiting.len());
            let late = link.take_late(self.timeout, now);
            self.under_way -= waiting - link.waiting.len();
            for (part, is_silent) in late {
                counters.forward_late.count();
                self.fail(part, is_silent, Failure::Late, node);
            }
        }
    }

    /// Goes on with handshakes, also where no command waits. A link that is late is closed: the commands there were not
    /// sent, and must not be executed after they have failed.
    fn go_on_opening(&mut self, rack: &RackView<M>, now: Instant) {
        for number in 0..self.links.len() {
            let link = &mut self.links[number];
            let (Some(since), Some(stream)) = (link.opening, &mut link.stream) else { continue };
            if stream.receive(&mut []) == Progress::Closed {
                self.close(number, rack, now);
            } else if stream.is_open() {
                (link.opening, link.is_blocked) = (None, false);
                self.send(number, rack, now);
            } else {
                let oldest = link.waiting.front().map(|waiting| waiting.since);
                let (since, time) = oldest.map_or((since, HANDSHAKE_MAX), |oldest| (oldest, self.timeout));
                if now.saturating_duration_since(since) >= time {
                    self.close(number, rack, now);
                }
            }
        }
        self.is_opening = self.links.iter().any(|link| link.opening.is_some());
    }
}

impl Link {
    /// True if a command waits to be sent, and no more than `max` are under way with it.
    fn may_begin(&self, max: usize) -> bool {
        self.begun < self.waiting.len().min(max)
    }

    /// Begins to send commands. No more than these cannot be taken back, and have a copy of their bytes here.
    fn begin(&mut self, is_managed: bool, max: usize) {
        while self.output.bytes().len() < SEND_BYTES && self.may_begin(max) {
            let Waiting { forward, end, .. } = &mut self.waiting[self.begun];
            if self.origin != forward.origin {
                self.origin = forward.origin;
                self.output.append(&[&[ORIGIN_MARK][..], &forward.origin.0.to_le_bytes()].concat());
            }
            self.output.append(&forward.bytes);
            self.output.append(forward.tail);
            self.output.append(END_OF_FORWARD);
            if !(is_managed && forward.follows_keys()) {
                forward.bytes = Vec::new();
            }
            *end = self.sent + self.output.bytes().len() as u64;
            self.begun += 1;
        }
    }

    /// The oldest command that has been sent.
    fn take_oldest(&mut self) -> Option<Waiting> {
        self.begun = self.begun.checked_sub(1)?;
        self.waiting.pop_front()
    }

    /// Takes the parts of the commands whose time is over, and whether each is silent. None of them keeps memory, of which
    /// a node that is stopped would take ever more: those that have not begun are never sent. The others stay without it,
    /// for their replies are to come; closed, the link would let newer commands overtake them.
    fn take_late(&mut self, timeout: Duration, now: Instant) -> Vec<(PartId, bool)> {
        // As long as bytes of the oldest one move, a large value is on its way.
        let is_late = |one: &&Waiting| now.saturating_duration_since(one.since.max(self.moved)) >= timeout;
        let late = self.waiting.iter().take_while(is_late).count();
        let begun = self.begun.min(late);
        let mut parts = Vec::new();
        for Waiting { part, forward, .. } in self.waiting.iter_mut().take(begun) {
            (forward.bytes, forward.permit) = Default::default();
            parts.extend(part.take().map(|part| (part, forward.is_silent)));
        }
        for Waiting { part, forward, .. } in self.waiting.drain(begun..late) {
            parts.extend(part.map(|part| (part, forward.is_silent)));
        }
        parts
    }

    /// Closes the stream, and forgets what belonged to it; true if it was never open.
    fn reset(&mut self, now: Instant) -> bool {
        let is_refused = self.stream.take().is_some_and(|stream| !stream.is_open());
        if is_refused {
            self.retry = now + REFUSED_RETRY;
        }
        (self.opening, self.origin, self.sent, self.begun) = (None, Origin::default(), 0, 0);
        (self.output, self.replies, self.drops, self.is_blocked) = Default::default();
        self.input = Vec::new();
        self.permit = None;
        is_refused
    }

    /// Asks for memory once a reply turns out to be large, or else drops it as it arrives.
    fn bound_memory(&mut self, admin: &dyn Admin) {
        let known = self.replies.known_bytes();
        if known > FREE_BYTES && self.permit.is_none() && !self.drops {
            self.permit = admin.admit(known as u64);
            self.drops = self.permit.is_none();
        }
        if self.drops {
            let dropped = known.min(self.input.len());
            self.input.drain(..dropped);
            self.replies.drop_front(dropped);
        }
    }
}
