//! The thread that lets in other nodes of the rack, once they have proven to know its secret.
//!
//! No worker sees a byte before, so that a stranger costs a client nothing. Handshakes are bounded in number, bytes and
//! time. If there are too many, the oldest is given up: one that is honest takes a round trip.

use std::{
    collections::BTreeMap,
    os::fd::AsFd,
    sync::Arc,
    time::{Duration, Instant},
};

use minos_engine::Mode;
use minos_net::{Accepted, Interest, Io, Listener, Poller, Ready, Token, Wait, wait_readable};
use minos_sealed::{Keys, Purpose};

use super::{control::Seldom, shared::Shared};
use crate::{
    ops::counters::worker_counters,
    tcp::{
        connection::{Stream, Unproven},
        session::Protocol,
    },
};

/// Handshakes under way.
const HANDSHAKES_MAX: usize = 256;
/// Time for a handshake.
const HANDSHAKE_MAX: Duration = Duration::from_secs(3);
/// Connections accepted before those are served that are there.
const ACCEPT_BURST: usize = 64;
/// Longest sleep, so that a stop that no signal announced is noticed.
const SLEEP_MAX: Duration = Duration::from_millis(200);
/// Pause after a failure of the kernel.
const REST: Duration = Duration::from_millis(10);
/// Time between two lines about those who are refused.
const LINE_EVERY: Duration = Duration::from_secs(60);

worker_counters! {
    /// Counters of the handshakes of other nodes.
    GateCounters, "peers_":
    /// Streams of nodes that were let in.
    admitted,
    /// Streams refused because their other end does not know the secret, or means another rack or node.
    refused,
    /// Streams refused because their handshake took too long.
    late,
    /// Streams refused because too many handshakes were under way.
    crowded,
}

/// The thread's state.
pub(crate) struct Gate<M: Mode, I: Io> {
    shared: Arc<Shared<M, I>>,
    listener: Listener,
    keys: Keys,
    /// This node's number.
    own: u16,
    poller: I::Poller,
    ready: Vec<Ready>,
    /// Handshakes under way by their numbers: the oldest first.
    guests: BTreeMap<u64, Guest>,
    /// The number of the next handshake.
    next: u64,
    /// The queue that gets the next connection.
    next_queue: usize,
    log: Seldom,
}

/// A handshake under way.
struct Guest {
    incoming: Unproven,
    since: Instant,
}

impl<M: Mode, I: Io> Gate<M, I> {
    /// A gate at `listener` for nodes that know one of `keys`.
    pub(crate) fn new(
        shared: Arc<Shared<M, I>>,
        (listener, keys): (Listener, Keys),
        poller: I::Poller,
    ) -> Self {
        let own = shared.rack.as_ref().map_or(0, |rack| rack.config.node as u16);
        Self {
            shared,
            listener,
            keys,
            own,
            poller,
            ready: Vec::new(),
            guests: BTreeMap::new(),
            next: 0,
            next_queue: 0,
            log: Seldom::new(LINE_EVERY),
        }
    }

    /// Runs until the server is to stop.
    pub(crate) fn run(mut self) {
        while !self.shared.stop.is_requested() {
            self.accept();
            self.ready.clear();
            if self.poller.poll(&mut self.ready, usize::MAX, Wait::No).is_err() {
                std::thread::sleep(REST);
            }
            for at in 0..self.ready.len() {
                self.serve(self.ready[at].token.0);
            }
            self.give_up_late();
            self.sleep();
        }
    }

    fn sleep(&self) {
        let oldest = self.guests.values().next();
        let left = oldest.map(|oldest| HANDSHAKE_MAX.saturating_sub(oldest.since.elapsed()));
        let descriptors = [self.listener.as_fd(), self.poller.descriptor(), self.shared.stop.descriptor()];
        let sleep = left.map_or(SLEEP_MAX, |left| left.min(SLEEP_MAX));
        if wait_readable(&descriptors, Wait::For(sleep)).is_err() {
            std::thread::sleep(REST);
        }
    }

    fn accept(&mut self) {
        for _ in 0..ACCEPT_BURST {
            match self.listener.accept() {
                Ok(Accepted::Connection(socket)) => self.begin(Unproven::new(socket)),
                Ok(Accepted::Nobody) => return,
                Ok(Accepted::Later(_)) => return std::thread::sleep(REST),
                Err(error) => {
                    tracing::error!(%error, "cannot accept other nodes of the rack");
                    return self.shared.stop.request();
                }
            }
        }
    }

    fn begin(&mut self, incoming: Unproven) {
        if self.guests.len() == HANDSHAKES_MAX
            && let Some(oldest) = self.guests.keys().next().copied()
        {
            self.shared.gate.crowded.count();
            self.refuse(oldest, &"too many handshakes are under way");
        }
        incoming.wire().bound_silence();
        let number = self.next;
        self.next += 1;
        if self.poller.add(Token(number), incoming.as_fd(), Interest::ReadWrite).is_ok() {
            let guest = Guest { incoming, since: Instant::now() };
            self.guests.insert(number, guest);
        }
    }

    /// Goes on with a handshake.
    fn serve(&mut self, number: u64) {
        let Some(guest) = self.guests.get_mut(&number) else { return };
        match guest.incoming.advance(&self.keys, (&[Purpose::Commands], self.own)) {
            Ok(false) => {}
            Ok(true) => self.admit(number),
            Err(refusal) => {
                self.shared.gate.refused.count();
                self.refuse(number, &refusal);
            }
        }
    }

    /// Gives a stream whose other end has proven itself to an RX queue.
    fn admit(&mut self, number: u64) {
        let Some(Guest { incoming, .. }) = self.guests.remove(&number) else { return };
        self.poller.remove(Token(number), incoming.as_fd());
        let Some((sealed, _)) = incoming.open() else { return };
        self.shared.gate.admitted.count();
        let listener = (Protocol::ProvenPeer, self.listener.address());
        if self.shared.deal(Stream::Sealed(Box::new(sealed)), listener, self.next_queue) {
            self.next_queue = (self.next_queue + 1) % self.shared.queues.len();
        }
    }

    fn give_up_late(&mut self) {
        while let Some((&number, guest)) = self.guests.first_key_value()
            && guest.since.elapsed() >= HANDSHAKE_MAX
        {
            self.shared.gate.late.count();
            self.refuse(number, &"the handshake takes too long");
        }
    }

    /// Closes a stream, and says so if nothing was said for a while.
    fn refuse(&mut self, number: u64, reason: &dyn std::fmt::Display) {
        let Some(Guest { incoming, .. }) = self.guests.remove(&number) else { return };
        self.poller.remove(Token(number), incoming.as_fd());
        if let Some(times) = self.log.happened(Instant::now()) {
            let peer = incoming.wire().peer_text();
            tracing::warn!(peer, %reason, times, "a stream from another node of the rack is refused");
        }
    }
}
