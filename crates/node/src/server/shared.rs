//! The state that all threads of a server share.

use std::{
    sync::{
        Arc, Weak,
        atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering, fence},
    },
    time::Instant,
};

use minos_base::{Clock, Seconds};
use minos_engine::{Engine, Mode, Observer};
use minos_net::{Address, Io};
use minos_sched::{Assignment, Decision, Plan, Policy, WorkerId, WorkerSet};
use minos_tier::Tier;
use parking_lot::Mutex;

use super::{
    config::{DispatchChoice, ServerConfig},
    handshakes::AllHandshakeCounters,
    mailbox::Mailbox,
    settings::Tuning,
    stop::Stop,
};
use crate::{
    access::Checks,
    datagram::{native::NativeShared, ports::Ports},
    ops::{Prefixes, counters::Totals, receiving::Receiving},
    rack::Rack,
    tcp::{
        connection::{Connection, Stream},
        queue::{Arrival, RxQueue},
        registry::{Entry, Registry},
        session::Protocol,
    },
    tracking::{Host, Seat, Tracking},
    watch::Watch,
    worker::{copies::ReadLately, rings::WorkerShared},
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
    /// Delayed `flush_all` that were executed.
    pub(crate) flushes: AtomicU64,
    pub(crate) connections: Arc<Registry>,
    /// The counters when they were last reset.
    pub(crate) counters_baseline: Mutex<Totals>,
    pub(crate) prefixes: Prefixes,
    /// Settings changed so far. Held while some change.
    pub(crate) settings_changes: Mutex<u64>,
    /// What the workers observe of requests.
    pub(crate) watch: Arc<Watch>,
    /// The native protocol, if it is served.
    pub(crate) native: Option<NativeSide<M, I::Port>>,
    /// The memory for values that are still arriving over streams.
    pub(crate) receiving: Arc<Receiving>,
    pub(crate) workers_left: AtomicUsize,
    /// The tier below the store's memory, if there is one.
    pub(crate) tier: Option<Arc<Tier>>,
    /// The keys that were read from there lately.
    pub(crate) read_lately: Option<Arc<ReadLately>>,
    /// The rack, if this server is one of its nodes.
    pub(crate) rack: Option<Arc<Rack<M>>>,
    pub(crate) handshakes: AllHandshakeCounters,
    /// Connections whose passwords wait to be checked.
    pub(crate) checks: Checks,
    /// Which of Redis' clients are told of which changes.
    pub(crate) tracking: Arc<Tracking>,
    /// Requests to the control thread.
    pub(crate) mailbox: Mailbox,
}

/// The server's part of the native protocol.
pub(crate) struct NativeSide<M: Mode, P> {
    pub(crate) core: Arc<NativeShared<M>>,
    pub(crate) ports: Ports<P>,
}

impl<M: Mode, I: Io> Shared<M, I> {
    pub(crate) fn worker(&self, id: WorkerId) -> &WorkerShared<M> {
        &self.workers[id.index()]
    }

    /// Gives a connection that was accepted at `address` to RX queue `home`; false if too many are open.
    pub(crate) fn deal(
        &self,
        mut stream: Stream,
        (protocol, address): (Protocol, &Address),
        home: usize,
    ) -> bool {
        let entry = || {
            let listen_address = address.to_string();
            Entry::new(stream.number(), home, listen_address, stream.peer_text(), self.clock.seconds())
        };
        let in_force = self.plan.in_force();
        let links_max = if protocol.is_link() { self.config.links_max() } else { 0 };
        let connections_max = in_force.tuning.connections_max as usize + links_max;
        let Some(registration) = self.connections.register(connections_max, entry) else {
            // A client that does not take these few bytes still sees the connection closed.
            let _ = stream.send(protocol.too_many_connections());
            stream.finish_sending();
            return false;
        };
        let mut session = protocol.session(&self.config, &in_force.tuning, registration.number());
        session.guard().into_iter().for_each(|guard| registration.wear(guard.badge()));
        let mut connection = Box::new(Connection::new(stream, session, home, registration));
        connection.settings = in_force.tuning.version;
        if self.queues[home].arrivals.push(Arrival::New(connection)).is_err() {
            // Cannot happen: the ring has room for every connection allowed. The client sees its connection
            // closed.
            tracing::error!(home, "an RX queue has no place for a connection that was permitted");
            return false;
        }
        self.wake_server(&in_force.assignment, home);
        true
    }

    /// Returns a connection that a thread without a queue has had.
    pub(crate) fn give_back(&self, connection: Box<Connection>) {
        let home = connection.home;
        let mut arrival = Arrival::Back { connection, has_more: true };
        // As in `Worker::send_home`.
        while let Err(refused) = self.queues[home].arrivals.push(arrival) {
            arrival = refused;
            std::thread::yield_now();
        }
        self.wake_server(&self.plan.in_force().assignment, home);
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

    /// Nanoseconds in which workers have worked: with each change to the store by one of them, it is another.
    pub(crate) fn busy_ns(&self) -> u64 {
        self.workers.iter().map(|worker| worker.metrics.busy_ns.value()).fold(0, u64::wrapping_add)
    }

    /// Changes with each event behind which dead items are to be found, and when flash takes items again.
    pub(crate) fn sweep_orders(&self, now: Seconds) -> SweepOrders {
        let is_flash_stuck = self.tier.as_ref().is_some_and(|tier| tier.engine().is_flash_stuck());
        (self.store.sweep_orders(now), self.flushes.load(Ordering::Relaxed), is_flash_stuck)
    }

    /// Wakes every worker.
    pub(crate) fn wake_all(&self) {
        for worker in &self.workers {
            worker.waker.wake();
        }
    }
}

/// Those of the store, delayed flushes so far, and whether flash takes nothing.
pub(crate) type SweepOrders = ([u64; 5], u64, bool);

/// The server of its tracking, as long as it is there.
pub(crate) struct TrackingHost<M: Mode, I: Io>(Weak<Shared<M, I>>);

impl<M: Mode, I: Io> TrackingHost<M, I> {
    /// Names a server to its tracking.
    pub(crate) fn of(shared: Shared<M, I>) -> Arc<Shared<M, I>> {
        let shared = Arc::new(shared);
        shared.tracking.serve(Box::new(Self(Arc::downgrade(&shared))));
        shared
    }
}

impl<M: Mode, I: Io> Host for TrackingHost<M, I> {
    fn observe(&self, observer: Option<&Arc<dyn Observer>>) {
        self.0.upgrade().into_iter().for_each(|shared| shared.store.observe(observer));
    }

    fn call(&self, Seat { queue, token }: Seat) {
        let Some(shared) = self.0.upgrade() else { return };
        shared.queues[queue].calls.put(token);
        shared.wake_server(&shared.plan.in_force().assignment, queue);
    }
}

/// A plan and the choice and numbers behind it.
#[derive(Clone, Debug)]
pub(crate) struct InForce {
    pub(crate) choice: DispatchChoice,
    pub(crate) plan: Plan,
    /// The numbers behind the plan.
    pub(crate) decision: Decision,
    pub(crate) assignment: Assignment,
    /// The settings in force.
    pub(crate) tuning: Tuning,
}

impl InForce {
    /// The present plan of `policy`, the policy of `choice`, under these settings.
    pub(crate) fn of(choice: DispatchChoice, policy: &Policy, tuning: Tuning) -> Self {
        let (plan, decision) = (policy.plan().clone(), policy.decision().clone());
        Self { choice, plan, decision, assignment: policy.assignment(), tuning }
    }
}

/// Holds the plan in force. Workers check a counter that seldom changes, and lock only when it has changed.
pub(crate) struct PlanCell {
    version: AtomicU64,
    current: Mutex<Arc<InForce>>,
}

impl PlanCell {
    pub(crate) fn new(in_force: InForce) -> Self {
        Self { version: AtomicU64::new(1), current: Mutex::new(Arc::new(in_force)) }
    }

    /// Number of plans so far. A worker that sees a new number finds that plan, or a later one, in force.
    #[inline]
    pub(crate) fn version(&self) -> u64 {
        // The lock orders the plan itself.
        self.version.load(Ordering::Relaxed)
    }

    pub(crate) fn in_force(&self) -> Arc<InForce> {
        Arc::clone(&self.current.lock())
    }

    /// Puts the plan of `policy` in force under the same settings and returns its version.
    pub(crate) fn publish(&self, choice: DispatchChoice, policy: &Policy) -> u64 {
        self.replace(|old| InForce::of(choice, policy, old.tuning))
    }

    /// Puts settings in force under the same plan and returns its new version.
    pub(crate) fn tune(&self, tuning: Tuning) -> u64 {
        self.replace(|old| InForce { tuning, ..old.clone() })
    }

    fn replace(&self, new: impl FnOnce(&InForce) -> InForce) -> u64 {
        let mut current = self.current.lock();
        *current = Arc::new(new(&current));
        // Under the lock, so that versions are in the order of the plans.
        self.version.fetch_add(1, Ordering::Relaxed) + 1
    }
}
