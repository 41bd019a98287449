//! What waits at a worker: in its rings, for flash; and the rest of its shared state.

use std::{
    collections::VecDeque,
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
use minos_tier::SyncId;

use super::metrics::Metrics;
use crate::{
    datagram::native::{self, Job, Waiting},
    ops::{Fetch, Next, counters::Counters},
    rack::{Owed, RackCounters},
    tcp::{connection::Connection, transfer::Transfer},
};

/// Work that waits in a ring.
pub(crate) enum RingItem<M: Mode> {
    /// A connection with something to do, lent by its RX queue.
    Connection(Box<Connection>),
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

/// Requests that need items from flash.
pub(crate) struct Awaiting<M: Mode> {
    pub(crate) waiter: Waiter,
    pub(crate) fetch: Box<Fetch<M>>,
}

/// Where those requests came from.
pub(crate) enum Waiter {
    /// A connection. Its next requests wait behind them.
    Connection(Box<Connection>),
    Datagrams(Waiting),
}

/// What waits until the changes before it are durable, or have reached their followers.
pub(crate) enum Holder<M: Mode> {
    /// A connection, which holds the replies, and how its visit goes on.
    Connection(Box<Connection>, Next<M>),
    /// Answers to the datagrams of one burst.
    Answers(Vec<native::Held<M>>),
}

/// What replies wait for.
#[derive(Clone, Copy)]
pub(crate) enum Until {
    /// The changes before them are durable.
    Synced(SyncId),
    /// Followers have the changes before them.
    Followed(Owed),
}

/// All that waits at one worker, in the order in which it may go on.
pub(crate) type HeldReplies<M> = VecDeque<(Holder<M>, Until)>;

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
    /// Items that this worker has read from flash.
    pub(crate) fetched: Arc<SharedHistogram>,
    pub(crate) counters: Arc<Counters>,
    pub(crate) rack_counters: Arc<RackCounters>,
    pub(crate) metrics: Metrics,
}
