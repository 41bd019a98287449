//! The state that all threads of a server share.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicU32, AtomicUsize, Ordering, fence},
    },
    time::Instant,
};

use minos_base::Clock;
use minos_engine::{Engine, Mode};
use minos_net::Io;
use minos_sched::{Assignment, WorkerId, WorkerSet};
use minos_tier::Tier;

use super::{config::ServerConfig, mailbox::Mailbox, plan_cell::PlanCell, stop::Stop};
use crate::{
    datagram::{native::NativeShared, ports::Ports},
    ops::{Prefixes, counters::Totals, receiving::Receiving},
    tcp::{queue::RxQueue, registry::Registry},
    worker::rings::WorkerShared,
};

/// The state that all threads of a server share. A request takes none of its locks but that of the worker's
/// own RX queue.
pub(crate) struct Shared<M: Mode, I: Io> {
    pub(crate) config: ServerConfig,
    pub(crate) store: Arc<Engine<M>>,
    pub(crate) started: Instant,
    pub(crate) clock: Clock,
    pub(crate) plan: Arc<PlanCell>,
    pub(crate) queues: Vec<RxQueue<I>>,
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
    pub(crate) native: Option<NativeSide<M, I::Port>>,
    /// The memory for values that are still arriving over streams.
    pub(crate) receiving: Arc<Receiving>,
    /// Workers that have not ended.
    pub(crate) workers_left: AtomicUsize,
    /// The tier below the store's memory, if there is one.
    pub(crate) tier: Option<Arc<Tier>>,
    /// Requests to the control thread.
    pub(crate) mailbox: Mailbox,
}

/// The server's part of the native protocol.
pub(crate) struct NativeSide<M: Mode, P> {
    pub(crate) core: Arc<NativeShared<M>>,
    pub(crate) ports: Ports<P>,
}

impl<M: Mode, I: Io> Shared<M, I> {
    /// The shared state of a worker.
    pub(crate) fn worker(&self, id: WorkerId) -> &WorkerShared<M> {
        &self.workers[id.index()]
    }

    /// Wakes the workers that poll RX queue `queue` under `assignment`; true if one of them slept. A worker
    /// that still runs under another plan looks at every queue when it takes this one up.
    pub(crate) fn wake_pollers(&self, assignment: &Assignment, queue: usize) -> bool {
        let pollers = assignment.polled_by[queue].iter();
        pollers.fold(false, |slept, worker| slept | self.worker(worker).waker.wake())
    }

    /// Wakes the workers that poll RX queue `queue`. If none of them slept, they may be busy for long, so it
    /// wakes a helper too.
    pub(crate) fn wake_server(&self, assignment: &Assignment, queue: usize) {
        if !self.wake_pollers(assignment, queue) {
            self.wake_sleepers(assignment.helped_by[queue], queue, 1);
        }
    }

    /// Wakes up to `count` sleeping workers of `workers`, round robin from `start`.
    pub(crate) fn wake_sleepers(&self, workers: WorkerSet, start: usize, count: usize) {
        if workers.is_empty() {
            return;
        }
        // One fence for all wakers: a worker that goes to sleep later sees the work added before.
        fence(Ordering::SeqCst);
        let asleep = |&worker: &WorkerId| self.worker(worker).waker.is_asleep();
        let woken =
            workers.iter_from(start).filter(asleep).filter(|&worker| self.worker(worker).waker.wake());
        woken.take(count).for_each(drop);
    }

    /// A worker has ended: it changes nothing any more.
    pub(crate) fn worker_ended(&self) {
        // Release: after its last change.
        self.workers_left.fetch_sub(1, Ordering::Release);
        self.tier.iter().for_each(|tier| tier.call_keeper());
    }

    /// Wakes every worker.
    pub(crate) fn wake_all(&self) {
        for worker in &self.workers {
            worker.waker.wake();
        }
    }
}
