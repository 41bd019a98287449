//! A server without threads and sockets: the workers' native parts, their rings and queues, in virtual time.

use std::{
    collections::VecDeque,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    sync::Arc,
    time::{Duration, Instant},
};

use minos_base::{
    Clock, SizeClass,
    limits::{BURST_MAX, SLICE_BYTES},
    seeded_stream,
};
use minos_engine::{Engine, ItemMeta, Mode, StoreConfig};
use minos_node::{
    config::NativeConfig,
    native::{Job, NativeSetting, NativeShared, NativeWorker, Turn},
};
use minos_proto::native::TRAIN_BYTES_MAX;
use minos_sched::WorkerId;
use minos_testkit::network::Network;
use rand::{RngExt as _, rngs::StdRng};

use crate::{
    outbox::Outbox,
    plan::FixedPlan,
    scenario::{MS, Scenario, US},
};

/// The server's address.
pub(crate) const SERVER: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 100));
const BASE_PORT: u16 = 11_311;

/// The secret of clients and server, if datagrams are sealed.
pub(crate) const SECRET: &str = "7:00112233445566778899aabbccddeeff0123456789abcdeffedcba9876543210";

const VALUE_BYTES_MAX: u64 = 8 << 20;
/// Time between two checks for timeouts, in nanoseconds.
const TICK_NS: u64 = 5 * MS;
const SOCKET_DATAGRAMS: usize = 300;
/// Jobs of its ring that a worker does in one turn.
const JOBS_MAX: usize = 4;

/// The server's clocks under virtual time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Times {
    start: Instant,
    clock: Clock,
}

impl Times {
    /// Virtual time begins now.
    pub(crate) fn new() -> Self {
        Self { start: Instant::now(), clock: Clock::new() }
    }

    fn instant(&self, now_ns: u64) -> Instant {
        self.start + Duration::from_nanos(now_ns)
    }
}

/// The address that clients are told.
pub(crate) fn address() -> SocketAddr {
    SocketAddr::new(SERVER, BASE_PORT)
}

/// Datagrams that wait in a socket.
type Inbox = VecDeque<(SocketAddr, Vec<u8>)>;

/// Messages as a socket delivers them: source, bytes, and length of the segments.
type Messages = Vec<(SocketAddr, Vec<u8>, usize)>;

pub(crate) struct SimServer<M: Mode> {
    pub(crate) shared: Arc<NativeShared<M>>,
    store: Arc<Engine<M>>,
    workers: Vec<NativeWorker<'static, M>>,
    plans: Vec<FixedPlan>,
    rings: Vec<VecDeque<Job>>,
    ring_capacity: usize,
    /// The sockets of the RX queues, then of the transfer queues.
    inboxes: Vec<Inbox>,
    /// Time of each worker's next turn, in nanoseconds.
    turns_ns: Vec<Option<u64>>,
    tick_ns: u64,
    changes_plans: bool,
    times: Times,
    rng: StdRng,
    /// Memory in use when nothing is stored, in bytes.
    used_bytes_empty: u64,
}

impl<M: Mode> SimServer<M> {
    /// An empty server; `boot` counts its starts.
    pub(crate) fn new(scenario: &Scenario, boot: u64, times: Times, now_ns: u64) -> Self {
        let mut rng = seeded_stream(scenario.seed, 100 + boot);
        let (value_bytes_max, hash_seed) = (VALUE_BYTES_MAX, rng.random());
        let (owners, config) = (scenario.workers.into(), StoreConfig::new(scenario.memory_bytes));
        let config = StoreConfig { partitions: Some(4), value_bytes_max, hash_seed, owners, ..config };
        let store = Arc::new(Engine::<M>::create(&config).expect("that much memory can be had"));
        let setting = NativeSetting {
            queues: scenario.workers,
            base_port: BASE_PORT,
            value_bytes_max,
            evicts_from_flash: false,
            holds_replies: false,
            direction_seed: None,
            entropy: std::array::from_fn(|_| rng.random()),
            start: times.instant(now_ns),
        };
        let native = native_config(scenario);
        let shared = Arc::new(NativeShared::new(Arc::clone(&store), times.clock, &native, &setting));
        if scenario.forgets_outcomes {
            shared.sessions().forget_outcomes();
        }
        let ids = || (0..scenario.workers).map(WorkerId);
        let (threshold, workers) = (scenario.threshold(), scenario.workers);
        let large_worker = WorkerId(workers - 1);
        let plan = |worker| FixedPlan { worker, threshold, large_worker, workers };
        Self {
            workers: ids().map(|id| NativeWorker::standalone(Arc::clone(&shared), id)).collect(),
            plans: ids().map(plan).collect(),
            rings: ids().map(|_| VecDeque::new()).collect(),
            ring_capacity: scenario.ring_capacity,
            inboxes: vec![Inbox::new(); 2 * usize::from(scenario.workers)],
            turns_ns: vec![None; usize::from(scenario.workers)],
            tick_ns: now_ns + TICK_NS,
            changes_plans: scenario.changes_plans && !scenario.is_owned(),
            times,
            rng,
            used_bytes_empty: used_bytes_empty(&store),
            shared,
            store,
        }
    }

    /// Time of the next event, in nanoseconds.
    pub(crate) fn next_ns(&self) -> u64 {
        self.turns_ns.iter().flatten().copied().chain([self.tick_ns]).min().unwrap_or(self.tick_ns)
    }

    /// Puts a datagram into its socket, if there is one with room.
    pub(crate) fn arrive(&mut self, from: SocketAddr, port: u16, bytes: Vec<u8>, now_ns: u64) {
        let queue = usize::from(port.wrapping_sub(BASE_PORT));
        let Some(inbox) = self.inboxes.get_mut(queue) else { return };
        if inbox.len() < SOCKET_DATAGRAMS {
            inbox.push_back((from, bytes));
            let worker = queue % self.workers.len();
            self.wake(worker, now_ns);
        }
    }

    /// Runs all events due at `now_ns`.
    pub(crate) fn run(&mut self, now_ns: u64, network: &mut Network) {
        if self.tick_ns <= now_ns {
            self.tick_ns = now_ns + TICK_NS;
            let now = self.times.instant(now_ns);
            for worker in 0..self.workers.len() {
                let queue = self.workers.len() + worker;
                self.with_turn(worker, now_ns, network, queue, |native, turn| {
                    native.on_tick(now);
                    native.admit_waiting(turn);
                });
            }
            if self.changes_plans && self.rng.random_bool(0.3) {
                self.change_plans();
            }
        }
        for worker in 0..self.workers.len() {
            if self.turns_ns[worker].is_some_and(|turn_ns| turn_ns <= now_ns) {
                self.turns_ns[worker] = None;
                self.turn(worker, now_ns, network);
            }
        }
    }

    /// Puts another plan in force, with another threshold and another large worker.
    fn change_plans(&mut self) {
        let threshold = SizeClass::of(1 << self.rng.random_range(6..20));
        let large_worker = WorkerId(self.rng.random_range(0..self.workers.len() as u16));
        for plan in &mut self.plans {
            *plan = FixedPlan { threshold, large_worker, ..*plan };
        }
    }

    /// True if the server has evicted an item, so that values may be missing.
    pub(crate) fn has_evicted(&self) -> bool {
        self.store.stats().evictions() > 0
    }

    /// True if no message and no job waits in the server.
    pub(crate) fn is_quiet(&self) -> bool {
        self.rings.iter().all(VecDeque::is_empty) && self.inboxes.iter().all(VecDeque::is_empty)
    }

    pub(crate) fn value(&self, key: &[u8], now_ns: u64) -> Option<Vec<u8>> {
        let now = self.times.clock.seconds_at(self.times.instant(now_ns));
        let mut value = Vec::new();
        let found = self.store.read(self.store.hash(key), key, now, |item| {
            value.clear();
            item.copy_value_to(&mut value);
        });
        found.map(|()| value)
    }

    pub(crate) fn delete(&self, key: &[u8]) {
        self.store.entry(self.store.hash(key), key, Clock::START).remove();
    }

    /// Checks that everything is as before the first request, once every item is deleted; the error names a
    /// difference.
    pub(crate) fn check_empty(&self, scenario: &Scenario) -> Result<(), String> {
        let open: usize = self.workers.iter().map(NativeWorker::transfers_open).sum();
        let sessions = self.shared.sessions().totals();
        let stats = self.store.stats();
        // A cache's log frees memory only when it wraps around.
        let used_bytes = if scenario.is_cache { 0 } else { stats.used_bytes.abs_diff(self.used_bytes_empty) };
        let checks = [
            ("stores that are still arriving", open as u64, 0),
            ("bytes that are still arriving", self.shared.transfer_bytes(), 0),
            ("operations under way", sessions.in_progress, 0),
            ("sessions above the bound", sessions.open.saturating_sub(scenario.sessions_max as u64), 0),
            ("items", stats.items, 0),
            ("pinned values", stats.pinned, 0),
            ("used bytes", used_bytes, 0),
        ];
        match checks.iter().find(|(_, is, should_be)| is != should_be) {
            Some((what, is, should_be)) => Err(format!("{what}: {is} and not {should_be}")),
            None => self.store.check(),
        }
    }

    /// A worker's turn: its queue, sometimes another's as if that worker were busy, its transfers, and its
    /// ring.
    fn turn(&mut self, worker: usize, now_ns: u64, network: &mut Network) {
        let count = self.workers.len();
        let other = self.rng.random_range(0..4 * count);
        let polled = if other < count && !self.inboxes[other].is_empty() { other } else { worker };
        for queue in [polled, count + worker] {
            let messages = self.receive(queue);
            if !messages.is_empty() {
                self.with_turn(worker, now_ns, network, queue, |native, turn| {
                    let messages =
                        messages.iter().map(|(peer, bytes, segment)| (*peer, bytes.as_slice(), *segment));
                    native.on_messages(queue, messages, turn);
                });
            }
        }
        for _ in 0..JOBS_MAX {
            let Some(job) = self.rings[worker].pop_front() else { break };
            self.with_turn(worker, now_ns, network, worker, |native, turn| native.on_job(job, turn));
        }
        if self.workers[worker].is_copying() {
            self.with_turn(worker, now_ns, network, count + worker, |native, turn| {
                native.advance(SLICE_BYTES, turn);
            });
        }
        let has_more = [worker, count + worker].iter().any(|&queue| !self.inboxes[queue].is_empty());
        if has_more || self.workers[worker].is_copying() || !self.rings[worker].is_empty() {
            self.wake(worker, now_ns);
        }
    }

    /// Calls a worker with its environment; sends its answers and hands over its jobs.
    fn with_turn(
        &mut self,
        worker: usize,
        now_ns: u64,
        network: &mut Network,
        queue: usize,
        act: impl FnOnce(
            &mut NativeWorker<'static, M>,
            Turn<'_, FixedPlan, Outbox, &mut dyn FnMut(WorkerId, Job) -> Result<(), Job>>,
        ),
    ) {
        let now = self.times.instant(now_ns);
        let mut outbox = Outbox::default();
        let mut woken = Vec::new();
        let (rings, capacity) = (&mut self.rings, self.ring_capacity);
        let mut hand_off: &mut dyn FnMut(WorkerId, Job) -> Result<(), Job> = &mut |to, job| {
            if rings[to.index()].len() >= capacity {
                return Err(job);
            }
            rings[to.index()].push_back(job);
            woken.push(to.index());
            Ok(())
        };
        let placement = &mut self.plans[worker];
        act(&mut self.workers[worker], Turn { now, placement, egress: &mut outbox, hand_off: &mut hand_off });
        woken.into_iter().for_each(|worker| self.wake(worker, now_ns));
        let from = SocketAddr::new(SERVER, BASE_PORT + queue as u16);
        for (peer, datagram) in outbox.datagrams {
            network.send(from, peer, &datagram);
        }
    }

    /// Receives a burst from a socket, sometimes with datagrams joined as the kernel does.
    fn receive(&mut self, queue: usize) -> Messages {
        let mut messages = Messages::new();
        let may_join = self.rng.random_bool(0.7);
        while messages.len() < BURST_MAX {
            let Some((peer, bytes)) = self.inboxes[queue].pop_front() else { break };
            let joins = |(last_peer, last, segment): &&mut (SocketAddr, Vec<u8>, usize)| {
                let is_whole = last.len() % *segment == 0;
                may_join
                    && *last_peer == peer
                    && is_whole
                    && !bytes.is_empty()
                    && bytes.len() <= *segment
                    && last.len() + bytes.len() <= TRAIN_BYTES_MAX
            };
            match messages.last_mut().filter(joins) {
                Some((_, last, _)) => last.extend_from_slice(&bytes),
                None => {
                    let segment_bytes = bytes.len().max(1);
                    messages.push((peer, bytes, segment_bytes));
                }
            }
        }
        messages
    }

    fn wake(&mut self, worker: usize, now_ns: u64) {
        let delay_ns = self.rng.random_range(0..30 * US);
        self.turns_ns[worker].get_or_insert(now_ns + delay_ns);
    }
}

/// Bytes in use when nothing is stored: a partition keeps the first block of memory that it got.
fn used_bytes_empty<M: Mode>(store: &Engine<M>) -> u64 {
    let keys: Vec<_> = (0..100u32).map(u32::to_le_bytes).collect();
    for key in &keys {
        let mut entry = store.entry(store.hash(key), key, Clock::START);
        entry.insert(&[&[0; 100]], ItemMeta::default()).expect("there is memory");
    }
    for key in &keys {
        store.entry(store.hash(key), key, Clock::START).remove();
    }
    store.stats().used_bytes
}

fn native_config(scenario: &Scenario) -> NativeConfig {
    NativeConfig {
        datagram_bytes: scenario.datagram_bytes[0],
        window: scenario.window,
        transfers_per_source: scenario.transfers_per_source,
        transfer_timeout: Duration::from_millis(scenario.transfer_timeout_ms),
        transfer_memory_bytes: scenario.transfer_memory_bytes,
        sessions: scenario.sessions_max,
        secrets: scenario.is_sealed.then(|| SECRET.parse().expect("a secret")).into_iter().collect(),
        ..NativeConfig::new(address())
    }
}
