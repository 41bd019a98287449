//! The client without I/O: it takes bytes, time and randomness, and returns bytes and completions.
//!
//! The caller submits requests, sends the trains of [`Core::poll_transmit`], passes arrived datagrams to
//! [`Core::receive`], calls [`Core::on_timer`] at the time that [`Core::next_timer`] returns, and takes
//! completions. The same calls at the same times give the same bytes, so that a simulated network can repeat
//! a run. Time is in nanoseconds from any origin, and never goes back.
//!
//! ```
//! use minos_client::{Config, Request, Verb, core::Core};
//!
//! let server = "127.0.0.1:11311".parse().unwrap();
//! let mut core = Core::new(Config::new(), server, 1, 0)?;
//! core.submit(Request::new(Verb::Get, "key"), 0).unwrap();
//! // Nothing is known of the server yet, so that the first datagram is a Hello.
//! let hello = core.poll_transmit(0).unwrap();
//! assert_eq!((hello.to, hello.bytes.len()), (server, 256));
//! # Ok::<(), minos_client::Error>(())
//! ```
//!
//! **An operation** is parked until the server is known, waits in a lane for its queue, travels with others
//! in a request, and ends with a reply, with an error, or at its deadline. A request without a timely answer
//! counts as lost, and its operations return to their lanes. Large values take another path: see `fetch` and
//! `store`. `leaving` moves the client off a server that is stopping.

mod answers;
mod assign;
mod compose;
mod counters;
mod ending;
mod fetch;
mod flight;
mod lanes;
mod leaving;
mod link;
mod operation;
mod receive;
mod refusals;
mod round_trip;
mod session;
mod store;
mod strays;
mod timers;
mod transfers;

#[cfg(test)]
pub(crate) mod tests;

use std::{collections::VecDeque, net::SocketAddr};

use minos_base::{limits::KEY_BYTES_MAX, seeded};
use minos_proto::native::{FragmentRange, Welcome};
use rand::{
    RngExt, SeedableRng,
    rngs::{SmallRng, StdRng},
};

use self::{
    flight::Flight, lanes::Lanes, leaving::Servers, link::Link, operation::Operations, round_trip::RoundTrip,
    transfers::Turns,
};
use crate::{
    Config, Error, Outcome, Request,
    config::{TIMEOUT_ZERO, nanoseconds},
};

pub(crate) use self::round_trip::below;
pub use self::{counters::Counters, operation::OpId, strays::Stray};

/// Bits of the first datagram's number: enough that it cannot be guessed, few enough that numbers never run
/// out.
const SEQUENCE_BITS: u32 = 48;

/// A train to be sent to the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transmit<'a> {
    /// The destination.
    pub to: SocketAddr,
    /// Bytes of each datagram except the last.
    pub segment_bytes: usize,
    /// All datagrams, one behind the other.
    pub bytes: &'a [u8],
}

/// An operation that has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Completion {
    /// The operation.
    pub id: OpId,
    /// The tag of its request.
    pub tag: u64,
    /// The key of its request, whose memory may be reused.
    pub key: Vec<u8>,
    /// Its outcome, or the error.
    pub result: Result<Outcome, Error>,
}

/// The client holds its maximum of operations: take completions first. Contains the rejected request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Full(pub Request);

/// A client of one server, without I/O.
#[derive(Debug)]
pub struct Core {
    config: Config,
    timeout_ns: u64,
    batch_delay_ns: u64,
    random: StdRng,
    /// For what nobody need guess: queues and the times of repeats.
    dice: SmallRng,
    link: Link,
    servers: Servers,
    round_trip: RoundTrip,
    operations: Operations,
    lanes: Lanes,
    flight: Flight,
    fetches: Turns,
    stores: Turns,
    /// Operations whose large value is on its way to the server.
    storing: Vec<OpId>,
    /// Transfers that have something to send.
    transfers_due: VecDeque<OpId>,
    completions: VecDeque<Completion>,
    /// Operations for other nodes of the rack, if the caller asks for them.
    strays: VecDeque<Stray>,
    hands_over: bool,
    /// A session that answers of this datagram do not know.
    session_lost: Option<u64>,
    /// The last composed train.
    out: Vec<u8>,
    ranges: Vec<FragmentRange>,
    range_bytes: Vec<u8>,
    ids: Vec<OpId>,
    sequence_first: u64,
    sequence_next: u64,
    /// Masks the time in stamps, so that only an observer of a datagram can forge its answer.
    stamp_mask: u64,
    begun_ns: u64,
    /// The earliest time at which a timer may be due.
    wake_ns: u64,
    /// The time at which an operation became ready to be sent, since the last timer.
    ready_ns: u64,
    counters: Counters,
}

impl Core {
    /// Creates a client of the server whose queue 0 is at `server`. Each client needs a seed of its own; an
    /// attacker who guesses it can forge answers.
    ///
    /// # Errors
    /// [`Error::Option`]: an option of `config` is invalid.
    pub fn new(config: Config, server: SocketAddr, seed: u64, now_ns: u64) -> Result<Self, Error> {
        config.check()?;
        let mut random = seeded(seed);
        let sequence_first = 1 + (random.random::<u64>() >> (u64::BITS - SEQUENCE_BITS));
        Ok(Self {
            timeout_ns: nanoseconds(config.timeout),
            batch_delay_ns: nanoseconds(config.batch_delay),
            stamp_mask: random.random(),
            dice: SmallRng::from_rng(&mut random),
            random,
            link: Link::new(server, config.secret.is_some()),
            servers: Servers::new(server),
            round_trip: RoundTrip::new(nanoseconds(config.retry_min), nanoseconds(config.retry_max)),
            operations: Operations::default(),
            lanes: Lanes::default(),
            flight: Flight::default(),
            fetches: Turns::new(config.transfers_max),
            stores: Turns::new(config.transfers_max),
            storing: Vec::new(),
            transfers_due: VecDeque::new(),
            completions: VecDeque::new(),
            strays: VecDeque::new(),
            hands_over: false,
            session_lost: None,
            out: Vec::new(),
            ranges: Vec::new(),
            range_bytes: Vec::new(),
            ids: Vec::new(),
            sequence_first,
            sequence_next: sequence_first,
            begun_ns: now_ns,
            wake_ns: u64::MAX,
            ready_ns: u64::MAX,
            counters: Counters::default(),
            config,
        })
    }

    /// Submits a request. [`Core::poll_transmit`] returns it at once, or after the batch delay. Consecutive
    /// requests for the same queue share datagrams.
    ///
    /// # Errors
    /// [`Full`]: the unfinished operations and the completions not yet taken have reached `operations_max`.
    pub fn submit(&mut self, mut request: Request, now_ns: u64) -> Result<OpId, Full> {
        if self.operations.len() + self.completions.len() >= self.config.operations_max {
            return Err(Full(request));
        }
        if let Some(initial) = request.initial {
            request.value = initial.to_le_bytes().to_vec();
        }
        let fault = self.fault_of(&request);
        let timeout_ns = request.timeout.map_or(self.timeout_ns, nanoseconds);
        let id = self.operations.insert(request, timeout_ns, now_ns, &mut self.random);
        self.counters.submitted += 1;
        self.wake_at(now_ns.saturating_add(timeout_ns));
        match fault {
            Some(error) => self.finish(id, Err(error), now_ns),
            None => self.assign(id, now_ns, self.batch_delay_ns),
        }
        Ok(id)
    }

    /// Ends the batch delay of all waiting operations: the next [`Core::poll_transmit`] sends them.
    pub fn flush(&mut self) {
        self.lanes.flush();
    }

    /// Takes the next completion.
    #[inline]
    pub fn poll_completion(&mut self) -> Option<Completion> {
        self.completions.pop_front()
    }

    /// The number of requests that can be submitted now.
    pub fn room(&self) -> usize {
        let unfinished = self.operations.len() + self.completions.len();
        self.config.operations_max.saturating_sub(unfinished)
    }

    /// Operations that have not ended.
    pub fn unfinished(&self) -> usize {
        self.operations.len()
    }

    /// Lowers the limit of datagrams to `bytes`, for a path that carries no more, but not below the
    /// protocol's minimum. A higher limit than the present one changes nothing.
    pub fn limit_datagrams(&mut self, bytes: usize) {
        let bytes = bytes.max(minos_proto::native::DATAGRAM_BYTES_MIN);
        if bytes < self.config.datagram_bytes_max {
            self.config.datagram_bytes_max = bytes;
            // The next Hello tells the server, whose answers must be shorter, too.
            self.link.doubt();
        }
    }

    /// The server's description of itself; `None` before its first Welcome.
    pub fn directory(&self) -> Option<&Welcome> {
        self.link.directory()
    }

    /// The counters.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// The reason why no server can accept a request.
    fn fault_of(&self, request: &Request) -> Option<Error> {
        if request.timeout.is_some_and(|timeout| timeout.is_zero()) {
            return Some(Error::Option(TIMEOUT_ZERO));
        }
        let bytes = request.key.len();
        if bytes > KEY_BYTES_MAX || (bytes == 0 && request.verb.names_item()) {
            return Some(Error::Key { bytes, bytes_max: KEY_BYTES_MAX });
        }
        let bytes_max = self.config.value_bytes_max.min(minos_base::VALUE_BYTES_MAX);
        (request.value.len() as u64 > bytes_max).then_some(Error::TooLarge { bytes_max })
    }

    /// Sets a timer at `at_ns`.
    fn wake_at(&mut self, at_ns: u64) {
        self.wake_ns = self.wake_ns.min(at_ns);
    }

    fn is_sealed(&self) -> bool {
        self.config.secret.is_some()
    }
}
