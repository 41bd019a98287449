//! The rings between workers, and the rest of a worker's shared state.

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64},
    },
};

use minos_engine::Mode;
use minos_net::Waker;
use minos_sched::SharedHistogram;
use minos_sync::Ring;

use super::{fetches::Awaiting, metrics::Metrics};
use crate::{
    datagram::native::Job,
    ops::counters::Counters,
    tcp::{connection::Connection, transfer::Transfer},
};

/// Work that waits in a ring.
pub(crate) enum RingItem<M: Mode> {
    /// A connection with something to do, lent by its RX queue.
    Connection(Box<Connection>),
    /// A message of datagrams.
    Message(Message),
    /// A connection with a large request.
    Transfer(Box<Transfer<M>>),
    /// Requests that need items from flash.
    Fetch(Box<Awaiting<M>>),
    /// A datagram that names another queue, or a large request out of one.
    Job(Job),
}

/// A message of datagrams, copied out of the receive buffer.
pub(crate) struct Message {
    /// The RX queue at whose port the message arrived.
    pub(crate) queue: usize,
    pub(crate) peer: SocketAddr,
    pub(crate) bytes: Box<[u8]>,
    /// Length of each datagram; only the last may be shorter.
    pub(crate) segment_bytes: usize,
}

/// The part of a worker that other workers may access.
pub(crate) struct WorkerShared<M: Mode> {
    /// Work handed to this worker alone.
    pub(crate) ring: Ring<RingItem<M>>,
    /// Work that several workers drain: the rings of SHO and HKH+WS (Minos §5.2), and those of large workers
    /// that serve each other's ranges.
    pub(crate) waiting: Ring<RingItem<M>>,
    /// Connections taken in the current poll of an RX queue and not yet served, but for the first. Helpers may
    /// take them. Empty between polls.
    pub(crate) lent: Ring<Box<Connection>>,
    /// Number of the plan in force for this worker.
    pub(crate) plan_version: AtomicU64,
    pub(crate) waker: Waker,
    /// Connections of this worker wait until changes are durable.
    pub(crate) holds: AtomicBool,
    pub(crate) histogram: Arc<SharedHistogram>,
    pub(crate) counters: Arc<Counters>,
    pub(crate) metrics: Metrics,
}
