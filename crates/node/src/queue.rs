//! An RX queue: the connections dealt to one worker, and the lock that lets others poll them.

use std::{collections::VecDeque, os::fd::OwnedFd};

use minos_net::{Interest, Poller, Ready, Token, Wait};
use minos_sched::WorkerId;
use minos_sync::{Ring, SpinLock};

use crate::{connection::Connection, slab::Slab, transfer::Transfer};

/// Queue i, owned by worker i (Minos §3.1).
///
/// The owner's lock is uncontended; when the owner is a large worker, the small ones try it in turn.
/// What others have for the queue they put into `arrivals`, which takes no lock.
pub(crate) struct RxQueue<P> {
    pub(crate) state: SpinLock<QueueState<P>>,
    pub(crate) arrivals: Ring<Arrival>,
    /// Readable while the poller has events: what those sleep on who poll the queue.
    pub(crate) descriptor: OwnedFd,
}

/// What comes to a queue from outside.
pub(crate) enum Arrival {
    /// A connection that was just accepted.
    New(Box<Connection>),
    /// A connection that comes back from a large worker.
    Back(Box<Connection>),
    /// A connection that broke while it was away.
    Ended(Box<Connection>),
}

/// What the holder of a queue's lock may touch.
pub(crate) struct QueueState<P> {
    pub(crate) poller: P,
    pub(crate) connections: Slab,
    /// Connections with more to do than one visit allowed, or that just came.
    pub(crate) backlog: VecDeque<Token>,
    /// Transfers that cannot go yet. Their connections are not read meanwhile.
    pub(crate) held_back: VecDeque<HeldBack>,
    pub(crate) ready: Vec<Ready>,
}

/// A transfer that cannot go yet: the ring of its worker is full, or earlier replies of its connection are
/// still on their way.
pub(crate) struct HeldBack {
    pub(crate) transfer: Box<Transfer>,
    /// Whose it is; nobody's if it is to be served where it arrived.
    pub(crate) worker: Option<WorkerId>,
}

impl<P: Poller> RxQueue<P> {
    /// An empty queue of a server with at most `connections_max` connections.
    pub(crate) fn open(connections_max: usize) -> std::io::Result<Self> {
        let poller = P::open()?;
        let descriptor = poller.descriptor().try_clone_to_owned()?;
        let state = QueueState {
            poller,
            connections: Slab::default(),
            backlog: VecDeque::new(),
            held_back: VecDeque::new(),
            ready: Vec::new(),
        };
        // Each connection has at most one arrival on its way, so that a push never finds it full.
        let arrivals = Ring::new((connections_max + 1).next_power_of_two());
        Ok(Self { state: SpinLock::new(state), arrivals, descriptor })
    }
}

impl<P: Poller> QueueState<P> {
    /// Takes in what came from outside, at most `max` of it, and says whether anything did.
    pub(crate) fn admit(&mut self, arrivals: &Ring<Arrival>, max: usize) -> bool {
        for admitted in 0..max {
            match arrivals.pop() {
                None => return admitted > 0,
                Some(Arrival::New(connection)) => self.add(connection),
                Some(Arrival::Back(connection)) => {
                    // What arrived while it was away was reported to nobody.
                    self.backlog.push_back(connection.token);
                    self.connections.take_back(connection);
                }
                Some(Arrival::Ended(connection)) => {
                    self.connections.remove(connection.token);
                }
            }
        }
        true
    }

    /// Fills `ready` with at most `max` connections that have something to do: those left over from
    /// before, then those the poller names.
    pub(crate) fn gather(&mut self, max: usize) -> std::io::Result<()> {
        self.ready.clear();
        // Half of a burst at most is left to what is left over, so that neither starves the other.
        let left_over = self.backlog.len().min(max.div_ceil(2));
        if left_over < max {
            self.poller.poll(&mut self.ready, max - left_over, Wait::No)?;
        }
        for token in self.backlog.drain(..left_over) {
            if !self.ready.iter().any(|ready| ready.token == token) {
                self.ready.push(Ready { token, readable: true, writable: true, hangup: false });
            }
        }
        Ok(())
    }

    /// Closes a connection that is here.
    pub(crate) fn close(&mut self, token: Token) {
        if let Some(connection) = self.connections.remove(token) {
            self.poller.remove(token, &connection.socket);
        }
    }

    /// Takes a new connection in; one that cannot be watched is closed.
    fn add(&mut self, connection: Box<Connection>) {
        let connection = self.connections.insert(connection);
        let token = connection.token;
        if let Err(error) = self.poller.add(token, &connection.socket, Interest::Read) {
            tracing::warn!(%error, "cannot watch a new connection; it is closed");
            self.connections.remove(token);
        }
    }
}
