//! The thread that shakes hands with clients over TLS.
//!
//! Public keys cost a hundred times what a request does. No worker pays for them, so that no client waits behind another's
//! handshake.

use std::sync::Arc;

use minos_engine::Mode;
use minos_net::Io;
use minos_tls::{Acceptor, Refusal};

use super::{
    handshakes::{Door, HandshakeBounds, Handshakes},
    shared::Shared,
};
use crate::tcp::{
    connection::{Raw, Stream, Tls, TlsHandshake},
    session::{Protocol, StreamListener},
};

/// The thread's state.
pub(crate) struct TlsFront<M: Mode, I: Io> {
    shared: Arc<Shared<M, I>>,
    handshakes: Handshakes<I::Poller, TlsDoor>,
    /// The protocol within, by listener.
    protocols: Vec<Protocol>,
    /// The queue that gets the next connection.
    next_queue: usize,
}

/// The door for clients with TLS, and with a certificate if the acceptor asks for one.
struct TlsDoor(Arc<Acceptor>);

impl Door for TlsDoor {
    type Guest = TlsHandshake;
    type Open = Tls;
    type Refusal = Refusal;
    const WHO: &'static str = "a client over TLS";

    fn begin(&self, socket: Raw) -> Option<TlsHandshake> {
        self.0.accept(socket)
    }

    fn advance(&self, guest: &mut TlsHandshake) -> Result<bool, Refusal> {
        guest.advance()
    }

    fn open(&self, guest: TlsHandshake) -> Option<Tls> {
        Some(guest.open())
    }

    fn peer_text(guest: &TlsHandshake) -> String {
        guest.wire().peer_text()
    }
}

impl<M: Mode, I: Io> TlsFront<M, I> {
    /// A front for clients at `listeners`; `None` if there are none.
    pub(crate) fn new(
        shared: &Arc<Shared<M, I>>,
        listeners: Vec<StreamListener>,
        poller: I::Poller,
    ) -> Option<Self> {
        let tls = shared.config.tls.as_ref().filter(|_| !listeners.is_empty())?;
        let bounds = HandshakeBounds::of(&shared.plan.in_force().tuning);
        let (listeners, protocols) = listeners
            .into_iter()
            .map(|StreamListener { listener, protocol, .. }| (listener, protocol))
            .unzip();
        let handshakes = Handshakes::new(listeners, TlsDoor(Arc::clone(&tls.acceptor)), bounds, poller);
        Some(Self { shared: Arc::clone(shared), handshakes, protocols, next_queue: 0 })
    }

    /// Runs until the server is to stop.
    pub(crate) fn run(mut self) {
        let shared = Arc::clone(&self.shared);
        let mut open = Vec::new();
        while !shared.stop.is_requested() {
            self.handshakes.set_bounds(HandshakeBounds::of(&shared.plan.in_force().tuning));
            let turn = self
                .handshakes
                .turn(&shared.handshakes.tls, |stream, listener| open.push((stream, listener)));
            if let Err(error) = turn {
                tracing::error!(%error, "cannot accept connections over TLS");
                shared.stop.request();
            }
            open.drain(..).for_each(|(stream, listener)| self.deal(stream, listener));
            self.handshakes.sleep(Some(shared.stop.descriptor()));
        }
    }

    fn deal(&mut self, stream: Tls, listener: usize) {
        let address = self.handshakes.listeners()[listener].address();
        let stream = Stream::Tls(Box::new(stream));
        if self.shared.deal(stream, (self.protocols[listener], address), self.next_queue) {
            self.next_queue = (self.next_queue + 1) % self.shared.queues.len();
        }
    }
}
