//! What all threads of a server share.

use std::{
    io::Write,
    net::SocketAddr,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    sync::{
        Arc, Mutex, Once,
        atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering, fence},
    },
    time::Instant,
};

use minos_base::Clock;
use minos_engine::{Engine, Mode};
use minos_net::{Poller, Waker};
use minos_sched::{Assignment, SharedHistogram, WorkerId, WorkerSet};
use minos_sync::Ring;

use crate::{
    config::ServerConfig,
    connection::Connection,
    counters::{Counters, Totals},
    metrics::Metrics,
    native::{Job, NativeShared},
    operator::Mailbox,
    ops::Prefixes,
    plan_cell::PlanCell,
    ports::Ports,
    queue::RxQueue,
    receiving::Receiving,
    registry::Registry,
    transfer::Transfer,
};

/// What all threads of a server share. No lock in it is taken for each request, but for that of the
/// worker's own RX queue.
pub(crate) struct Shared<M: Mode, P> {
    pub(crate) config: ServerConfig,
    pub(crate) store: Arc<Engine<M>>,
    pub(crate) started: Instant,
    pub(crate) clock: Clock,
    pub(crate) plan: Arc<PlanCell>,
    pub(crate) queues: Vec<RxQueue<M, P>>,
    pub(crate) workers: Vec<WorkerShared<M>>,
    pub(crate) stop: Arc<Stop>,
    /// When a delayed `flush_all` is due, in seconds of `clock`; zero means never.
    pub(crate) flush_due_s: AtomicU32,
    pub(crate) connections: Arc<Registry>,
    /// The counters when they were last reset.
    pub(crate) counters_baseline: Mutex<Totals>,
    /// Commands by prefix.
    pub(crate) prefixes: Prefixes,
    /// The native protocol, if it is served.
    pub(crate) native: Option<NativeSide<M>>,
    /// The memory for values that are still arriving over streams.
    pub(crate) receiving: Arc<Receiving>,
    /// What is said once of clients that speak the binary protocol.
    pub(crate) binary_refused: Once,
    /// What the control thread is asked to do.
    pub(crate) mailbox: Mailbox,
}

/// What the native protocol has of a server.
pub(crate) struct NativeSide<M: Mode> {
    pub(crate) core: Arc<NativeShared<M>>,
    pub(crate) ports: Ports,
}

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

/// The wish to stop.
#[derive(Debug)]
pub struct Stop {
    requested: AtomicBool,
    /// What is under way is to be given up.
    at_once: AtomicBool,
    /// Readable once the wish was uttered. A pipe, so that a signal handler may write to it.
    reader: OwnedFd,
    writer: OwnedFd,
}

impl Stop {
    /// Nobody wants to stop yet.
    ///
    /// # Errors
    /// No descriptor is left.
    pub fn new() -> std::io::Result<Self> {
        let (reader, writer) = std::io::pipe()?;
        Ok(Self {
            requested: AtomicBool::new(false),
            at_once: AtomicBool::new(false),
            reader: reader.into(),
            writer: writer.into(),
        })
    }

    /// Asks the server to stop.
    pub fn request(&self) {
        if !self.requested.swap(true, Ordering::Relaxed) {
            // The flag is seen within a fraction of a second even if this does not wake anybody.
            let _ = self.writer.try_clone().map(|fd| std::fs::File::from(fd).write_all(b"s"));
        }
    }

    /// Asks the server to stop without giving time to what is under way.
    pub fn request_at_once(&self) {
        self.at_once.store(true, Ordering::Relaxed);
        self.request();
    }

    /// Whether what is under way is to be given up.
    pub fn is_at_once(&self) -> bool {
        self.at_once.load(Ordering::Relaxed)
    }

    /// Whether the server was asked to stop.
    pub fn is_requested(&self) -> bool {
        self.requested.load(Ordering::Relaxed)
    }

    /// Readable once the server was asked to stop.
    pub(crate) fn descriptor(&self) -> BorrowedFd<'_> {
        self.reader.as_fd()
    }
}

impl<M: Mode, P: Poller> Shared<M, P> {
    /// What others may touch of a worker.
    pub(crate) fn worker(&self, id: WorkerId) -> &WorkerShared<M> {
        &self.workers[id.index()]
    }

    /// Wakes the workers that poll RX queue `queue` under `assignment`; true if one of them slept. A worker that goes by
    /// another plan looks at every queue when it takes this one up.
    pub(crate) fn wake_pollers(&self, assignment: &Assignment, queue: usize) -> bool {
        let pollers = assignment.polled_by[queue].iter();
        pollers.fold(false, |slept, worker| slept | self.worker(worker).waker.wake())
    }

    /// Wakes the workers that poll RX queue `queue`, or one that helps with it: if none of the former slept, they may be
    /// busy for long.
    pub(crate) fn wake_comers(&self, assignment: &Assignment, queue: usize) {
        if !self.wake_pollers(assignment, queue) {
            self.wake_sleepers(assignment.helped_by[queue], queue, 1);
        }
    }

    /// Wakes as many as `count` sleepers among `workers`, from `start` on and round.
    pub(crate) fn wake_sleepers(&self, workers: WorkerSet, start: usize, count: usize) {
        if workers.is_empty() {
            return;
        }
        // The order that a waker wants, once for all: what was added before is seen by who sleeps later.
        fence(Ordering::SeqCst);
        let asleep = |&worker: &WorkerId| self.worker(worker).waker.is_asleep();
        let woken =
            workers.iter_from(start).filter(asleep).filter(|&worker| self.worker(worker).waker.wake());
        woken.take(count).for_each(drop);
    }

    /// Wakes every worker.
    pub(crate) fn wake_all(&self) {
        for worker in &self.workers {
            worker.waker.wake();
        }
    }
}
