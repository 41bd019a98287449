//! The thread that lets in other nodes of the rack, once they have proven to know its secret.
//!
//! No worker sees a byte before, so that a stranger costs a client nothing.

#[cfg(feature = "ucx")]
use std::collections::BTreeMap;
use std::sync::Arc;

use minos_engine::Mode;
use minos_net::{Io, Listener};
use minos_sealed::{Ends, Keys, Purpose};

use super::{
    handshakes::{HandshakeBounds, Handshakes, SecretDoor},
    shared::Shared,
};
#[cfg(feature = "ucx")]
use crate::rack::{ControlStream, tell_of_memory};
use crate::{
    rack::{Rack, Visitors, config::RackFabric},
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
    /// Streams of other nodes that were told of this one's memory, by their numbers: they end with this node.
    #[cfg(feature = "ucx")]
    told: BTreeMap<u16, ControlStream>,
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
        let is_told = |rack: &Arc<Rack<M>>| !matches!(rack.config.fabric, RackFabric::Mapped);
        let purposes: &'static [Purpose] = match (&visitors, shared.rack.as_ref().is_some_and(is_told)) {
            (None, false) => &[Purpose::Commands],
            (None, true) => &[Purpose::Commands, Purpose::Memory],
            (Some(_), false) => &[Purpose::Commands, Purpose::Control],
            (Some(_), true) => &[Purpose::Commands, Purpose::Control, Purpose::Memory],
        };
        let door = SecretDoor { keys, purposes, own };
        let handshakes = Handshakes::new(vec![listener], door, HandshakeBounds::PEERS, poller);
        Self {
            shared,
            handshakes,
            visitors,
            #[cfg(feature = "ucx")]
            told: BTreeMap::new(),
            next_queue: 0,
        }
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
        if ends.purpose == Purpose::Memory {
            return self.tell(sealed, ends.from);
        }
        let listener = (Protocol::Peer, self.handshakes.listeners()[0].address());
        if self.shared.deal(Stream::Sealed(Box::new(sealed)), listener, self.next_queue) {
            self.next_queue = (self.next_queue + 1) % self.shared.queues.len();
        }
    }

    /// Tells another node of this one's memory, if that is read over a fabric.
    #[cfg_attr(not(feature = "ucx"), expect(clippy::unused_self, reason = "there is no such fabric"))]
    fn tell(&mut self, _sealed: Proven, _from: u16) {
        #[cfg(feature = "ucx")]
        if let Some(RackFabric::Ucx(memory)) = self.shared.config.rack.as_ref().map(|rack| &rack.fabric) {
            match tell_of_memory(_sealed, _from, memory) {
                Ok(stream) => _ = self.told.insert(_from, stream),
                Err(error) => tracing::warn!(%error, node = _from, "a node is not told of this one's memory"),
            }
        }
    }
}
