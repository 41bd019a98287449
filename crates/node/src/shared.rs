//! What all threads of a server share.

use std::{
    io::Write,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU32, Ordering},
    },
    time::Instant,
};

use minos_base::Clock;
use minos_engine::{Engine, Mode};
use minos_net::{Poller, Waker};
use minos_sched::{Role, SharedHistogram, WorkerId};
use minos_sync::Ring;

use crate::{
    config::ServerConfig,
    counters::{Counters, Totals},
    metrics::Metrics,
    native::{Job, NativeShared},
    plan_cell::PlanCell,
    ports::Ports,
    queue::RxQueue,
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
    pub(crate) plan: PlanCell,
    pub(crate) queues: Vec<RxQueue<M, P>>,
    pub(crate) workers: Vec<WorkerShared<M>>,
    pub(crate) stop: Arc<Stop>,
    /// When a delayed `flush_all` is due, in seconds of `clock`; zero means never.
    pub(crate) flush_due_s: AtomicU32,
    pub(crate) connections: Arc<Registry>,
    /// The counters when they were last reset.
    pub(crate) counters_baseline: Mutex<Totals>,
    /// The native protocol, if it is served.
    pub(crate) native: Option<NativeSide<M>>,
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

/// What others may touch of a worker.
pub(crate) struct WorkerShared<M: Mode> {
    /// What others have handed to it.
    pub(crate) ring: Ring<RingItem<M>>,
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

    /// Wakes whoever polls queue `queue` under the plan in force.
    pub(crate) fn wake_poller_of(&self, queue: usize) {
        self.workers[queue].waker.wake();
        let plan = self.plan.plan();
        if plan.roles[queue] == Role::Large {
            for (worker, role) in self.workers.iter().zip(&plan.roles) {
                if *role != Role::Large {
                    worker.waker.wake();
                }
            }
        }
    }

    /// Wakes every worker.
    pub(crate) fn wake_all(&self) {
        for worker in &self.workers {
            worker.waker.wake();
        }
    }
}
