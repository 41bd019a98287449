//! The rings between workers, and everything else of a worker that others may touch.

use std::{
    net::SocketAddr,
    sync::{Arc, atomic::AtomicU64},
};

use minos_engine::Mode;
use minos_net::Waker;
use minos_sched::SharedHistogram;
use minos_sync::Ring;

use super::metrics::Metrics;
use crate::{
    datagram::native::Job,
    ops::counters::Counters,
    tcp::{connection::Connection, transfer::Transfer},
};

/// What one worker hands to another.
pub(crate) enum RingItem<M: Mode> {
    /// A connection with a large request.
    Transfer(Box<Transfer<M>>),
    /// A datagram, or a large request out of one.
    Job(Job),
}

/// What has been taken from an RX queue and is anybody's to serve who takes from the ring that it waits in.
pub(crate) enum Waiting<M: Mode> {
    /// A connection with a large request, of those that several workers serve.
    Transfer(Box<Transfer<M>>),
    /// A connection with something to do.
    Connection(Lent),
    /// A message of datagrams.
    Message(Message),
}

impl<M: Mode> Waiting<M> {
    /// What a ring gives back is what it was given.
    pub(crate) fn into_transfer(self) -> Box<Transfer<M>> {
        match self {
            Self::Transfer(transfer) => transfer,
            Self::Connection(_) | Self::Message(_) => unreachable!("it was given a transfer"),
        }
    }
}

impl<M: Mode> RingItem<M> {
    /// What a ring gives back is what it was given.
    pub(crate) fn into_transfer(self) -> Box<Transfer<M>> {
        match self {
            Self::Transfer(transfer) => transfer,
            Self::Job(_) => unreachable!("it was given a transfer"),
        }
    }
}

/// A connection with something to do, lent by its RX queue.
pub(crate) struct Lent {
    pub(crate) connection: Box<Connection>,
    /// Its peer has sent the last bytes.
    pub(crate) to_the_end: bool,
}

/// A message of datagrams that does not lie in the memory it was received into.
pub(crate) struct Message {
    /// The RX queue at whose port it arrived.
    pub(crate) queue: usize,
    pub(crate) peer: SocketAddr,
    pub(crate) bytes: Box<[u8]>,
    /// Length of its datagrams, of which only the last may be shorter.
    pub(crate) segment_bytes: usize,
}

/// What others may touch of a worker.
pub(crate) struct WorkerShared<M: Mode> {
    /// What others have handed to it, and to nobody else.
    pub(crate) ring: Ring<RingItem<M>>,
    /// What waits for whoever takes it: the rings of SHO and HKH+WS (Minos §5.2), and those of large workers who
    /// serve each other's ranges.
    pub(crate) waiting: Ring<Waiting<M>>,
    /// What it has taken from an RX queue in the look that it is at, and has not come to: who helps may take it. Empty
    /// between its looks.
    pub(crate) lent: Ring<Lent>,
    /// Number of the plan that this worker goes by.
    pub(crate) plan_version: AtomicU64,
    pub(crate) waker: Waker,
    pub(crate) histogram: Arc<SharedHistogram>,
    pub(crate) counters: Arc<Counters>,
    pub(crate) metrics: Metrics,
}
