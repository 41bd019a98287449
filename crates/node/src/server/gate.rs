//! The thread that lets in other nodes of the rack, once they have proven to know its secret.
//!
//! No worker sees a byte before, so that a stranger costs a client nothing.

use std::sync::Arc;

use minos_engine::Mode;
use minos_net::{Io, Listener};
use minos_sealed::{Ends, Keys, Purpose};

use super::{
    handshakes::{HandshakeBounds, Handshakes, SecretDoor},
    shared::Shared,
};
use crate::{
    rack::Visitors,
    tcp::{
        connection::{Proven, Stream},
        session::Protocol,
    },
};

/// The thread's state.
pub(crate) struct Gate<M: Mode, I: Io> {
    shared: Arc<Shared<M, I>>,
    handshakes: Handshakes<I::Poller, SecretDoor>,
    /// Takes streams for control, if the rack has a coordinator.
    visitors: Option<Visitors>,
    /// The queue that gets the next connection.
    next_queue: usize,
}

impl<M: Mode, I: Io> Gate<M, I> {
    /// A gate at a listener for nodes that know one of its keys.
    pub(crate) fn new(
        shared: Arc<Shared<M, I>>,
        (listener, keys): (Listener, Keys),
        poller: I::Poller,
        visitors: Option<Visitors>,
    ) -> Self {
        let own = shared.rack.as_ref().map_or(0, |rack| rack.config.node as u16);
        let purposes: &'static [Purpose] = match visitors {
            Some(_) => &[Purpose::Commands, Purpose::Control],
            None => &[Purpose::Commands],
        };
        let door = SecretDoor { keys, purposes, own };
        let handshakes = Handshakes::new(vec![listener], door, HandshakeBounds::PEERS, poller);
        Self { shared, handshakes, visitors, next_queue: 0 }
    }

    /// Runs until the server is to stop.
    pub(crate) fn run(mut self) {
        let shared = Arc::clone(&self.shared);
        let mut admitted = Vec::new();
        while !shared.stop.is_requested() {
            let turn = self.handshakes.turn(&shared.handshakes.peers, |open, _| admitted.push(open));
            if let Err(error) = turn {
                tracing::error!(%error, "cannot accept other nodes of the rack");
                shared.stop.request();
            }
            admitted.drain(..).for_each(|(sealed, ends)| self.admit(sealed, ends));
            self.handshakes.sleep(Some(shared.stop.descriptor()));
        }
    }

    /// Gives a stream with commands to an RX queue, and others to the thread that they are for.
    fn admit(&mut self, sealed: Proven, ends: Ends) {
        if let Some(visitors) = self.visitors.as_ref().filter(|_| ends.purpose == Purpose::Control) {
            return visitors.admit(sealed, ends.from);
        }
        let listener = (Protocol::ProvenPeer, self.handshakes.listeners()[0].address());
        if self.shared.deal(Stream::Sealed(Box::new(sealed)), listener, self.next_queue) {
            self.next_queue = (self.next_queue + 1) % self.shared.queues.len();
        }
    }
}
