//! The native protocol: vectors of operations in datagrams, sent to the queue that executes them (MICA §4.2,
//! vector interfaces §3.1). The client's core composes requests and reads answers.

use std::{
    io,
    net::{SocketAddr, UdpSocket},
    os::fd::BorrowedFd,
    time::Duration,
};

use minos_base::VALUE_BYTES_MAX;
use minos_client::{
    Config, Error, OPERATIONS_MAX, OnceFor, Outcome as Answer, QueueBy, Request, Verb,
    core::{Completion, Core},
};
use minos_net::{
    HostPort, Port, PortOptions, Source, Wait, Way,
    udp::{BURST_MESSAGES, UdpPort, header_bytes},
    wait_readable,
};
use minos_proto::native::{DATAGRAM_BYTES_ETHERNET, DATAGRAM_BYTES_MAX, WelcomeFlags};

use super::{
    Link, Moment, any_port,
    ledger::{Ledger, Outcome, Place, Terms},
    outbox::Outbox,
};
use crate::{
    Op, OpKind,
    driver::{
        clock::{RunClock, monotonic_ns},
        recorder::{ErrorKind, Recorder},
    },
    model::Dataset,
};

/// Longest wait for a server's first answer.
pub(super) const ANSWER_WITHIN: Duration = Duration::from_secs(10);

/// Bytes of datagrams that may wait at a port.
pub(super) const RECEIVE_BUFFER_BYTES: usize = 4 << 20;

/// Time without a fragment after which missing ones are requested again.
const STALL: Duration = Duration::from_millis(20);

/// The tag of the operation for which the core says hello. No place has it.
const GREETING: u64 = u64::MAX;

/// A socket that speaks the native protocol.
pub(in crate::driver) struct NativeLink<'a, P> {
    port: P,
    core: Core,
    /// The start of the run on the monotonic clock, which is the core's.
    start_ns: u64,
    ledger: Ledger<'a>,
    outbox: Outbox,
    /// Keys of ended operations, whose memory is reused.
    keys: Vec<Vec<u8>>,
    width: usize,
    /// The verb that reads: with the bytes of values only if they are compared.
    reads: Verb,
}

impl<'a, P: Port> NativeLink<'a, P> {
    /// Learns the directory of `server` through `port`. Random choices come from `seed`.
    ///
    /// # Errors
    /// The server does not answer as it should.
    pub(in crate::driver) fn connect(
        port: P,
        server: SocketAddr,
        dataset: &'a Dataset,
        terms: Terms,
        queue_by: QueueBy,
        seed: u64,
    ) -> io::Result<Self> {
        let seed = seed ^ (u64::from(port.address().port()) << 48);
        let core = Core::new(config(server, &port, terms, queue_by), server, seed, monotonic_ns());
        let mut link = Self {
            port,
            core: core.map_err(io::Error::other)?,
            start_ns: 0,
            ledger: Ledger::new(dataset, terms),
            outbox: Outbox::new(true),
            keys: Vec::new(),
            width: terms.width as usize,
            reads: if dataset.looks_at_bytes(terms.contents) { Verb::Get } else { Verb::Size },
        };
        link.learn()?;
        let has_choice = link.core.directory().is_some_and(|directory| {
            directory.queues > 1 && !directory.flags.contains(WelcomeFlags::SINGLE_PORT)
        });
        if queue_by == QueueBy::Wrong && !has_choice {
            return Err(io::Error::other("no queue is wrong: the server has one port or one queue only"));
        }
        Ok(link)
    }

    /// Says hello until the server has described itself.
    fn learn(&mut self) -> io::Result<()> {
        let mut burst = self.port.burst();
        let greeting = Request::new(Verb::Ping, "").timeout(ANSWER_WITHIN).tag(GREETING);
        // There is room for the first operation.
        let _ = self.core.submit(greeting, monotonic_ns());
        while self.core.directory().is_none() {
            let now_ns = monotonic_ns();
            self.core.on_timer(now_ns);
            if let Some(Completion { result: Err(error), .. }) = self.core.poll_completion() {
                return Err(no_answer(error));
            }
            self.compose(now_ns);
            self.flush();
            let until_ns = self.core.next_timer().unwrap_or(now_ns);
            let sleep = Duration::from_nanos(until_ns.saturating_sub(now_ns));
            wait_readable(&[self.port.descriptor()], Wait::For(sleep.max(Duration::from_millis(1))))?;
            self.port.receive_at_most(&mut burst, BURST_MESSAGES)?;
            self.take_in(&mut burst, monotonic_ns());
        }
        // The greeting shares no datagram with the first request.
        self.compose(monotonic_ns());
        self.flush();
        Ok(())
    }

    fn take_in(&mut self, burst: &mut P::Burst, core_ns: u64) {
        for message in P::messages(burst) {
            self.core.receive(message.peer, message.bytes, message.segment_bytes, core_ns);
        }
    }

    /// Submits an operation to the core.
    fn submit(&mut self, place: Place, now_ns: u64, recorder: &mut Recorder) {
        let asked = self.ledger.asked(place);
        let (verb, value) = match asked.kind {
            OpKind::Get | OpKind::ReadModifyWrite => (self.reads, Vec::new()),
            OpKind::Set | OpKind::Insert => match self.ledger.value(&asked) {
                Ok(value) => (Verb::Put, value),
                // Its file was removed.
                Err(_) => {
                    let outcome = Outcome::Failed(ErrorKind::File);
                    return self.ledger.settle(place, outcome, now_ns, recorder);
                }
            },
        };
        let mut key = self.keys.pop().unwrap_or_default();
        key.clear();
        self.ledger.dataset.write_key(asked.item, &mut key);
        let mut request = Request::new(verb, key);
        (request.value, request.tag) = (value, place.tag());
        if self.core.submit(request, self.start_ns + now_ns).is_err() {
            self.ledger.settle(place, Outcome::Lost, now_ns, recorder);
        }
    }

    /// Takes the core's datagrams. Trains stay as they are; single datagrams are gathered into trains.
    fn compose(&mut self, core_ns: u64) {
        while let Some(train) = self.core.poll_transmit(core_ns) {
            if train.bytes.len() > train.segment_bytes {
                self.outbox.push_train(&self.port, train.to, train.bytes, train.segment_bytes);
            } else {
                self.outbox.room().extend_from_slice(train.bytes);
                self.outbox.end_datagram(train.to);
            }
        }
    }

    /// Settles ended operations; the SET of a read-modify-write goes out now, in a request of its own.
    fn settle(&mut self, now_ns: u64, recorder: &mut Recorder) {
        while let Some(Completion { tag, key, result, .. }) = self.core.poll_completion() {
            if tag == GREETING {
                continue;
            }
            self.keys.push(key);
            let place = Place::of(tag);
            let asked = self.ledger.asked(place);
            let outcome = self.outcome(&asked, result);
            let was_read = matches!(outcome, Outcome::Done | Outcome::Missed);
            if was_read && asked.kind == OpKind::ReadModifyWrite {
                self.ledger.turn_to_set(place);
                self.submit(place, now_ns, recorder);
                self.compose(self.start_ns + now_ns);
            } else {
                self.ledger.settle(place, outcome, now_ns, recorder);
            }
        }
    }

    fn outcome(&self, asked: &Op, result: Result<Answer, Error>) -> Outcome {
        let kind = match result {
            Ok(Answer::Value(value)) => return self.ledger.judge(asked.item, &value.bytes),
            Ok(Answer::Number { number, .. }) => return self.ledger.judge_length(asked.item, number),
            Ok(Answer::Done { .. }) => return Outcome::Done,
            Ok(Answer::Missing) => return Outcome::Missed,
            Err(Error::TimedOut { .. }) => return Outcome::Lost,
            Ok(Answer::NotStored | Answer::Exists) => ErrorKind::NotStored,
            Err(Error::Busy) => ErrorKind::Busy,
            Err(Error::NotOwner) => ErrorKind::NotOwner,
            Err(Error::NoMemory | Error::TooLarge { .. }) => ErrorKind::Server,
            Err(Error::Key { .. } | Error::BadRequest | Error::Unsupported) => ErrorKind::Client,
            Ok(Answer::Text(_)) | Err(_) => ErrorKind::Protocol,
        };
        Outcome::Failed(kind)
    }
}

impl<'a, P: Port> Link<'a> for NativeLink<'a, P> {
    const IS_MIXED: bool = true;
    const IN_FLIGHT_MAX: usize = OPERATIONS_MAX;

    type Burst = P::Burst;

    fn burst(&self) -> P::Burst {
        self.port.burst()
    }

    fn socket(&self) -> BorrowedFd<'_> {
        self.port.descriptor()
    }

    fn begin(&mut self, clock: &RunClock) {
        self.start_ns = clock.start_ns();
    }

    fn ledger(&self) -> &Ledger<'a> {
        &self.ledger
    }

    fn is_full(&self) -> bool {
        self.core.room() < self.width
    }

    fn ask(&mut self, operations: &[Op], at: Moment, recorder: &mut Recorder) {
        let slot = self.ledger.open(operations, at);
        for index in 0..operations.len() as u32 {
            self.submit(Place { slot, index }, at.now_ns, recorder);
        }
        // Before the next request, with which this one shares no datagram.
        self.compose(self.start_ns + at.now_ns);
    }

    fn flush(&mut self) {
        self.outbox.send(&self.port);
    }

    fn receive(&mut self, burst: &mut P::Burst, clock: &RunClock, recorder: &mut Recorder) -> bool {
        let mut has_heard = false;
        // If the port fails, outstanding requests are lost.
        while let Ok(messages) = self.port.receive_at_most(burst, BURST_MESSAGES)
            && messages > 0
        {
            has_heard = true;
            let now_ns = clock.now_ns();
            self.take_in(burst, self.start_ns + now_ns);
            self.settle(now_ns, recorder);
            // A transfer's next datagrams must not wait for other answers.
            self.compose(self.start_ns + now_ns);
            self.flush();
            if messages < BURST_MESSAGES {
                break;
            }
        }
        has_heard
    }

    fn tend(&mut self, now_ns: u64, recorder: &mut Recorder) {
        self.core.on_timer(self.start_ns + now_ns);
        self.settle(now_ns, recorder);
        self.compose(self.start_ns + now_ns);
        self.flush();
    }

    fn inserts_answered(&mut self) -> std::vec::Drain<'_, u64> {
        self.ledger.inserts_answered.drain(..)
    }
}

/// Opens ports to `server`: with a socket each, or at the queues of the card that leads there.
///
/// # Errors
/// No socket could be opened, or the card's queues cannot be used.
pub(in crate::driver) fn open_ports(
    server: SocketAddr,
    count: usize,
    source: &Source,
) -> io::Result<Vec<HostPort>> {
    let mut wanted = PortOptions {
        address: any_port(server),
        count: 1,
        shares_address: false,
        receive_buffer_bytes: RECEIVE_BUFFER_BYTES,
        source: source.clone(),
    };
    if *source == Source::Sockets {
        let ports: io::Result<Vec<_>> = (0..count).map(|_| HostPort::open_all(&wanted)).collect();
        return Ok(ports?.into_iter().flatten().collect());
    }
    // The address that leads there. Connecting sends nothing.
    let route = UdpSocket::bind(wanted.address)?;
    route.connect(server)?;
    wanted.address.set_ip(route.local_addr()?.ip());
    wanted.count = count;
    let ports = HostPort::open_all(&wanted)?;
    match ports.first().map(|port| port.facts().way) {
        Some(Way::Refused(reason)) => Err(io::Error::other(reason)),
        _ => Ok(ports),
    }
}

/// Requests are repeated only while a data set is loaded; transfers are repaired. A client's limits are lifted, also that
/// on writes by their numbers.
fn config(server: SocketAddr, port: &impl Port, terms: Terms, queue_by: QueueBy) -> Config {
    let is_open = terms.repeats == 0;
    Config::new()
        .open_loop(is_open)
        .timeout(terms.timeout.saturating_mul(terms.repeats + 1))
        .retry_between(STALL, if is_open { STALL } else { terms.timeout.max(STALL) })
        .datagram_bytes_max(path_bytes(server, port))
        .value_bytes_max(VALUE_BYTES_MAX)
        .operations_max(OPERATIONS_MAX)
        .transfers_max(OPERATIONS_MAX)
        .refetches_max(u32::MAX)
        .queue_by(queue_by)
        .once_for(OnceFor::NotIdempotent)
}

/// Bytes of payload that the path from `port` to the server carries.
fn path_bytes(server: SocketAddr, port: &impl Port) -> usize {
    let of_path = || Some(UdpPort::path_mtu(server).ok()?.saturating_sub(header_bytes(&server)));
    let payload = port.facts().datagram_bytes_max.or_else(of_path).unwrap_or(DATAGRAM_BYTES_ETHERNET);
    payload.clamp(DATAGRAM_BYTES_ETHERNET, DATAGRAM_BYTES_MAX)
}

/// The error of a server whose directory could not be learned.
fn no_answer(error: Error) -> io::Error {
    match error {
        Error::TimedOut { .. } => {
            io::Error::new(io::ErrorKind::TimedOut, "nobody answers the native protocol's hello there")
        }
        error => io::Error::other(error),
    }
}
