//! A client of one server or of all nodes of a rack, without I/O: a [`Core`] for each node, and who gets what.
//!
//! The calls are those of a [`Core`]. The client begins with the first server that it was told. If that is a node of a
//! rack, it gets the rack's directory there. Then an operation that writes goes to the owner of its key, and one that
//! reads to a node of the owner's unit, or to a copy ([`ReadBy`](crate::ReadBy)); reads that are submitted together
//! share a node, so that they share datagrams. A node that does not own a key, or cannot read it, names the owner, who gets the
//! operation then. If a node is silent, another one of its unit gets the reads; the rest goes to
//! its successor once the rack has named one, but for what it may have executed and nobody must repeat.

mod choose;
mod failover;
mod flush;
mod learn;
mod map;
mod route;
mod slots;
#[cfg(test)]
mod tests;

use std::{collections::VecDeque, net::SocketAddr};

use minos_base::seeded;
use minos_proto::native::WelcomeFlags;
use minos_unit::Weights;
use rand::{
    RngExt, SeedableRng,
    rngs::{SmallRng, StdRng},
};

use self::{
    failover::Watch,
    map::Map,
    route::Parked,
    slots::{Slot, Slots},
};
use crate::{
    Config, Error, Request,
    config::{OPERATIONS_MAX, nanoseconds},
    core::{Completion, Core, Counters, Full, OpId, Transmit},
};

/// Operations of the client itself at one node: the directory and a probe.
const OWN_MAX: usize = 2;

/// Reads of copies that a node may refuse one after another, before they go elsewhere for a while.
const REFUSED_COPIES_MAX: u32 = 8;
const COPIES_REST_NS: u64 = 100_000_000;

/// The server at which the client begins.
const FIRST: usize = 0;

/// A client without I/O that knows racks.
#[derive(Debug)]
pub struct Router {
    config: Config,
    failover_ns: u64,
    timeout_ns: u64,
    /// The bytes of payload that the path to a node carries, if that is known.
    path_bytes: fn(SocketAddr) -> Option<usize>,
    /// For the seeds of further cores.
    random: StdRng,
    /// For the choice of nodes.
    dice: SmallRng,
    seats: Vec<Seat>,
    /// True if there is one server in no rack, which gets everything as it comes. That is for ever: should the server
    /// become a node of a rack, its clients must be made anew.
    is_plain: bool,
    /// The seat that sends next.
    next: usize,
    /// The rack, once it is known.
    map: Option<Map>,
    /// The newest weights that came with a directory.
    weights: Option<Weights>,
    learning: Learning,
    /// The seat that has told of a newer directory or newer weights.
    teller: Option<usize>,
    /// News is not acted on before. So a server that tells what it cannot show gets few questions.
    rests_until_ns: u64,
    slots: Slots,
    parked: Vec<Parked>,
    watches: VecDeque<Watch>,
    completions: VecDeque<Completion>,
    /// Nobody is asked for news on behalf of silent nodes before.
    asks_from_ns: u64,
    /// Operations that went to another node because theirs was silent.
    failed_over: u64,
}

/// A server and its client.
#[derive(Debug)]
struct Seat {
    core: Core,
    /// It did not answer in time, and has not answered since.
    is_silent: bool,
    /// A probe is under way there.
    is_probed: bool,
    /// Reads of copies that it has refused one after another.
    refused_copies: u32,
    /// Its copies are not read before.
    rests_until_ns: u64,
}

impl Seat {
    /// True if reads are better sent to another node.
    fn is_away(&self) -> bool {
        self.is_silent || self.core.is_draining()
    }

    /// True if its copies may be read.
    fn reads_copies(&self, now_ns: u64) -> bool {
        now_ns >= self.rests_until_ns && !self.is_away()
    }

    /// Notes that it has not read a copy: the value is large, or the copy is not there, or not fresh.
    fn refuse_copy(&mut self, now_ns: u64) {
        self.refused_copies = self.refused_copies.saturating_add(1);
        if self.refused_copies >= REFUSED_COPIES_MAX {
            self.rests_until_ns = now_ns.saturating_add(COPIES_REST_NS);
        }
    }
}

/// What the client knows of its servers' rack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Learning {
    /// No server has answered.
    Nothing,
    /// The server is in no rack.
    Alone,
    /// The directory is wanted, from this time on.
    Wanted { from_ns: u64 },
    /// It was asked for.
    Asked,
    /// It is at hand.
    Known,
}

impl Router {
    /// Creates a client that begins at `server`, the address of a queue 0. Each client needs a seed of its own; an
    /// attacker who guesses it can forge answers.
    ///
    /// # Errors
    /// [`Error::Option`]: an option of `config` is invalid.
    pub fn new(config: Config, server: SocketAddr, seed: u64, now_ns: u64) -> Result<Self, Error> {
        config.check()?;
        let mut random = seeded(seed);
        let mut router = Self {
            failover_ns: nanoseconds(config.failover_after),
            timeout_ns: nanoseconds(config.timeout),
            dice: SmallRng::from_rng(&mut random),
            random,
            path_bytes: |_| None,
            seats: Vec::new(),
            is_plain: false,
            next: 0,
            map: None,
            weights: None,
            learning: Learning::Nothing,
            teller: None,
            rests_until_ns: 0,
            slots: Slots::default(),
            parked: Vec::new(),
            watches: VecDeque::new(),
            completions: VecDeque::new(),
            asks_from_ns: 0,
            failed_over: 0,
            config,
        };
        let seat = router.seat_at(server, now_ns)?;
        router.seats.push(seat);
        Ok(router)
    }

    fn seat_at(&mut self, server: SocketAddr, now_ns: u64) -> Result<Seat, Error> {
        let operations_max = (self.config.operations_max + OWN_MAX).min(OPERATIONS_MAX);
        let config = self.config.clone().operations_max(operations_max);
        let mut core = Core::new(config, server, self.random.random(), now_ns)?.in_rack();
        if let Some(bytes) = (self.path_bytes)(server) {
            core.limit_datagrams(bytes);
        }
        Ok(Seat { core, is_silent: false, is_probed: false, refused_copies: 0, rests_until_ns: 0 })
    }

    /// Adds servers to begin at, should the first one not answer: other nodes of the rack, servers of the same items, or
    /// caches that stand in for each other. Outside a rack the client also moves on from one that is stopping.
    pub fn add_servers(&mut self, others: impl IntoIterator<Item = SocketAddr>) {
        self.seats[FIRST].core.add_servers(others);
    }

    /// Submits a request. Requests for the same queue of the same node share datagrams.
    ///
    /// # Errors
    /// [`Full`]: the unfinished operations and the completions not yet taken have reached `operations_max`.
    pub fn submit(&mut self, request: Request, now_ns: u64) -> Result<OpId, Full> {
        if self.room() == 0 {
            return Err(Full(request));
        }
        if self.is_plain || self.becomes_plain() {
            return self.seats[FIRST].core.submit(request, now_ns);
        }
        let timeout_ns = request.timeout.map_or(self.timeout_ns, nanoseconds);
        let id = self.slots.insert(Slot::new(request.tag, now_ns.saturating_add(timeout_ns)));
        self.route(id, request, now_ns);
        Ok(id)
    }

    /// Ends the batch delay of all waiting operations: the next [`Router::poll_transmit`] sends them.
    pub fn flush(&mut self) {
        self.seats.iter_mut().for_each(|seat| seat.core.flush());
        self.end_batches();
    }

    /// Composes the next train, which counts as sent; `None` if there is nothing to send.
    pub fn poll_transmit(&mut self, now_ns: u64) -> Option<Transmit<'_>> {
        if self.is_plain {
            return self.seats[FIRST].core.poll_transmit(now_ns);
        }
        for _ in 0..self.seats.len() {
            if let Some(train) = self.seats[self.next].core.compose_next(now_ns) {
                return Some(self.seats[self.next].core.composed(train));
            }
            self.next = (self.next + 1) % self.seats.len();
        }
        self.end_batches();
        None
    }

    /// Handles one message from `from`: datagrams of `segment_bytes`, of which the last may be shorter.
    pub fn receive(&mut self, from: SocketAddr, bytes: &[u8], segment_bytes: usize, now_ns: u64) {
        if self.is_plain {
            return self.seats[FIRST].core.receive(from, bytes, segment_bytes, now_ns);
        }
        let Some(at) = self.seats.iter().position(|seat| seat.core.is_server(from)) else { return };
        self.seats[at].core.receive(from, bytes, segment_bytes, now_ns);
        self.seats[at].is_silent &= self.seats[at].core.heard_ns() != now_ns;
        self.collect(at, now_ns);
        self.hear(at, now_ns);
        self.learn(now_ns);
    }

    /// The time to call [`Router::on_timer`], unless something else happens before.
    pub fn next_timer(&self) -> Option<u64> {
        if self.is_plain {
            return self.seats[FIRST].core.next_timer();
        }
        if self.slots.is_empty() {
            return None;
        }
        let cores = self.seats.iter().filter_map(|seat| seat.core.next_timer());
        let parked = self.parked.iter().map(|parked| parked.due_ns);
        let watched = self.watches.front().map(|watch| watch.due_ns);
        let wanted = match self.learning {
            Learning::Wanted { from_ns } => Some(from_ns),
            _ => None,
        };
        cores.chain(parked).chain(watched).chain(wanted).min()
    }

    /// Does what is due by now.
    pub fn on_timer(&mut self, now_ns: u64) {
        if self.is_plain {
            return self.seats[FIRST].core.on_timer(now_ns);
        }
        for at in 0..self.seats.len() {
            self.seats[at].core.on_timer(now_ns);
            self.collect(at, now_ns);
        }
        self.learn(now_ns);
        self.unpark(now_ns);
        self.fail_over(now_ns);
    }

    /// Takes the next completion.
    pub fn poll_completion(&mut self) -> Option<Completion> {
        if self.is_plain { self.seats[FIRST].core.poll_completion() } else { self.completions.pop_front() }
    }

    /// The number of requests that can be submitted now.
    pub fn room(&self) -> usize {
        if self.is_plain {
            return self.seats[FIRST].core.room().saturating_sub(OWN_MAX);
        }
        let unfinished = self.slots.len() + self.completions.len();
        self.config.operations_max.saturating_sub(unfinished)
    }

    /// Operations that have not ended.
    pub fn unfinished(&self) -> usize {
        if self.is_plain { self.seats[FIRST].core.unfinished() } else { self.slots.len() }
    }

    /// Lowers the limit of datagrams to `bytes`, as [`Core::limit_datagrams`] does.
    pub fn limit_datagrams(&mut self, bytes: usize) {
        let bytes = bytes.max(minos_proto::native::DATAGRAM_BYTES_MIN);
        self.config.datagram_bytes_max = self.config.datagram_bytes_max.min(bytes);
        self.seats.iter_mut().for_each(|seat| seat.core.limit_datagrams(bytes));
    }

    /// From now on asks for the bytes of payload that the path to a node carries, when it gets to know one.
    pub fn know_paths(&mut self, path_bytes: fn(SocketAddr) -> Option<usize>) {
        self.path_bytes = path_bytes;
    }

    /// Lowers the limit of datagrams to each node to what its path carries by now.
    pub fn limit_to_paths(&mut self) {
        for Seat { core, .. } in &mut self.seats {
            if let Some(bytes) = (self.path_bytes)(core.server()) {
                core.limit_datagrams(bytes);
            }
        }
    }

    /// The server at which the client has begun.
    pub fn server(&self) -> SocketAddr {
        self.seats[FIRST].core.server()
    }

    /// The epoch of the directory at hand, and the numbers of its nodes; `None` outside a rack.
    pub fn rack(&self) -> Option<(u32, usize)> {
        self.map.as_ref().map(|map| (map.epoch(), map.nodes()))
    }

    /// The number of the node that owns `key`, as the directory at hand says; `None` outside a rack.
    pub fn owner(&self, key: &[u8]) -> Option<u32> {
        self.map.as_ref().map(|map| map.owner_number(key))
    }

    /// The version of the weights by which nodes are drawn for reads; 0 without weights.
    pub fn weights(&self) -> u32 {
        self.weights.as_ref().map_or(0, Weights::version)
    }

    /// The sums of the counters of all nodes. An operation counts at each node that it was sent to.
    pub fn counters(&self) -> Counters {
        let mut sum = Counters { failovers: self.failed_over, ..Counters::default() };
        self.seats.iter().for_each(|seat| sum.add(seat.core.counters()));
        sum
    }

    /// True if from now on everything may go to the one server, because nothing is under way.
    fn becomes_plain(&mut self) -> bool {
        let is_idle = self.slots.is_empty() && self.completions.is_empty();
        let seat = &mut self.seats[FIRST];
        if self.learning == Learning::Alone && is_idle && seat.core.unfinished() == 0 {
            self.is_plain = true;
            seat.core.keep_strays();
        }
        self.is_plain
    }

    /// Takes over what has ended at a seat.
    fn collect(&mut self, at: usize, now_ns: u64) {
        while let Some(completion) = self.seats[at].core.poll_completion() {
            self.on_completion(at, completion, now_ns);
        }
        while let Some(stray) = self.seats[at].core.poll_stray() {
            self.on_stray(at, stray, now_ns);
        }
    }

    /// True if the first server has said that it is a node of a rack.
    fn is_in_rack(&self) -> Option<bool> {
        let welcome = self.seats[FIRST].core.directory()?;
        Some(welcome.flags.contains(WelcomeFlags::RACK))
    }
}
