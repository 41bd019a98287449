//! The client without I/O: bytes, time and randomness come in, bytes and completions go out.
//!
//! Whoever drives it submits requests, sends what [`Core::poll_transmit`] says, hands in what arrives
//! ([`Core::receive`]), calls [`Core::on_timer`] when [`Core::next_timer`] says, and takes completions. The same
//! calls at the same times give the same bytes, so that a simulated network can repeat a run. Time is in
//! nanoseconds from any beginning, and never goes back.
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
//! **An operation** is parked until the server is known, waits in a lane for its queue, travels with others in a
//! request, and ends with a reply, with an error, or at its deadline. A request whose answer is late is taken for
//! lost, and what it carried waits in a lane again. Large values leave that path: see `fetch` and `store`. A server
//! that is stopping is left: see `leaving`.

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
mod outcomes;
mod receive;
mod refusals;
mod round_trip;
mod session;
mod store;
mod timers;
mod transfers;
mod turns;

#[cfg(test)]
pub(crate) mod tests;

use std::{collections::VecDeque, net::SocketAddr};

use minos_base::{limits::KEY_BYTES_MAX, seeded};
use minos_proto::native::{FragmentRange, Welcome};
use rand::{RngExt, rngs::StdRng};

use self::{
    flight::Flight, lanes::Lanes, leaving::Servers, link::Link, operation::Operation, operation::Operations,
    round_trip::RoundTrip, turns::Turns,
};
use crate::{
    Config, Error, Outcome, Request,
    config::{TIMEOUT_ZERO, nanoseconds},
};

pub use self::{counters::Counters, operation::OpId};

/// Bits of the first datagram's number: high enough that nobody guesses it, low enough that numbers never end.
const SEQUENCE_BITS: u32 = 48;

/// A train to be sent to the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transmit<'a> {
    /// Where it goes.
    pub to: SocketAddr,
    /// Bytes of each datagram but the last.
    pub segment_bytes: usize,
    /// All datagrams, one behind the other.
    pub bytes: &'a [u8],
}

/// An operation that has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Completion {
    /// The operation.
    pub id: OpId,
    /// What came of it.
    pub result: Result<Outcome, Error>,
}

/// As many operations are unfinished as may be: take completions first. The request is handed back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Full(pub Request);

/// A client of one server, without I/O.
#[derive(Debug)]
pub struct Core {
    config: Config,
    timeout_ns: u64,
    batch_delay_ns: u64,
    random: StdRng,
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
    /// The train that was composed last.
    out: Vec<u8>,
    ranges: Vec<FragmentRange>,
    range_bytes: Vec<u8>,
    ids: Vec<OpId>,
    sequence_first: u64,
    sequence_next: u64,
    /// Hides the time in stamps, so that only who saw a datagram can forge an answer.
    stamp_mask: u64,
    begun_ns: u64,
    /// Nothing that time brings about happens before this.
    wake_ns: u64,
    counters: Counters,
}

impl Core {
    /// A client of the server at `server`, the port of whose queue 0 that is. Different clients need different
    /// seeds; who can guess one can forge answers.
    ///
    /// # Errors
    /// [`Error::Option`]: an option of `config` cannot be.
    pub fn new(config: Config, server: SocketAddr, seed: u64, now_ns: u64) -> Result<Self, Error> {
        config.check()?;
        let mut random = seeded(seed);
        let sequence_first = 1 + (random.random::<u64>() >> (u64::BITS - SEQUENCE_BITS));
        Ok(Self {
            timeout_ns: nanoseconds(config.timeout),
            batch_delay_ns: nanoseconds(config.batch_delay),
            stamp_mask: random.random(),
            random,
            link: Link::new(server, config.secret.is_some()),
            servers: Servers::new(server),
            round_trip: RoundTrip::new(nanoseconds(config.retry_min), nanoseconds(config.retry_max)),
            operations: Operations::new(),
            lanes: Lanes::default(),
            flight: Flight::default(),
            fetches: Turns::new(config.transfers_max),
            stores: Turns::new(config.transfers_max),
            storing: Vec::new(),
            transfers_due: VecDeque::new(),
            completions: VecDeque::new(),
            out: Vec::new(),
            ranges: Vec::new(),
            range_bytes: Vec::new(),
            ids: Vec::new(),
            sequence_first,
            sequence_next: sequence_first,
            begun_ns: now_ns,
            wake_ns: u64::MAX,
            counters: Counters::default(),
            config,
        })
    }

    /// Takes a request in, to be sent by the next [`Core::poll_transmit`], or a batch's delay later. Requests that
    /// are submitted one after the other share datagrams where they are for the same queue.
    ///
    /// # Errors
    /// [`Full`]: as many as may be are unfinished, or have ended and wait to be taken.
    pub fn submit(&mut self, mut request: Request, now_ns: u64) -> Result<OpId, Full> {
        if self.operations.len() + self.completions.len() >= self.config.operations_max {
            return Err(Full(request));
        }
        if let Some(initial) = request.initial {
            request.value = initial.to_le_bytes().to_vec();
        }
        let fault = self.fault_of(&request);
        let timeout_ns = request.timeout.map_or(self.timeout_ns, nanoseconds);
        let operation = Operation::new(request, timeout_ns, now_ns);
        let deadline_ns = operation.deadline_ns;
        let id = self.operations.insert(operation, &mut self.random);
        self.counters.submitted += 1;
        self.wake_at(deadline_ns);
        match fault {
            Some(error) => self.finish(id, Err(error), now_ns),
            None => self.assign(id, now_ns, self.batch_delay_ns),
        }
        Ok(id)
    }

    /// Sends what waits for others to share its datagram.
    pub fn flush(&mut self) {
        self.lanes.flush();
    }

    /// The next operation that has ended.
    pub fn poll_completion(&mut self) -> Option<Completion> {
        self.completions.pop_front()
    }

    /// How many more requests can be submitted now.
    pub fn room(&self) -> usize {
        let unfinished = self.operations.len() + self.completions.len();
        self.config.operations_max.saturating_sub(unfinished)
    }

    /// Operations that have not ended.
    pub fn unfinished(&self) -> usize {
        self.operations.len()
    }

    /// Datagrams from now on have at most `bytes`, as when the path turns out to carry no more. Nothing below
    /// what the protocol needs is taken.
    pub fn limit_datagrams(&mut self, bytes: usize) {
        let bytes = bytes.max(minos_proto::native::DATAGRAM_BYTES_MIN);
        if bytes < self.config.datagram_bytes_max {
            self.config.datagram_bytes_max = bytes;
            // The server is to answer in shorter ones, too.
            self.link.doubt();
        }
    }

    /// What the server said of itself, once it has.
    pub fn directory(&self) -> Option<&Welcome> {
        self.link.directory()
    }

    /// The smoothed round trip in nanoseconds, once there was an answer.
    pub fn round_trip_ns(&self) -> Option<u64> {
        self.round_trip.smooth_ns()
    }

    /// What was counted so far.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// What forbids a request whatever the server is like.
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

    /// Takes note that something is to happen at `at_ns`.
    fn wake_at(&mut self, at_ns: u64) {
        self.wake_ns = self.wake_ns.min(at_ns);
    }

    fn is_sealed(&self) -> bool {
        self.config.secret.is_some()
    }
}
