//! The worker loop.

use std::{
    os::fd::{AsFd, BorrowedFd},
    sync::Arc,
    time::{Duration, Instant},
};

use arrayvec::ArrayVec;
use minos_base::{Seconds, limits::BURST_MAX};
use minos_engine::Mode;
use minos_net::{Poller, Progress, Readable, WAIT_MAX, Wait, wait_readable, wait_which};
use minos_proto::memcache::Limits;
use minos_sched::{Discipline, Role, WorkerId};

use crate::{
    connection::Connection,
    datagrams::Datagrams,
    idle::Idle,
    large_set::{Ended, LargeSet},
    native::NativeWorker,
    placement::WorkerPlacement,
    queue::{Arrival, HeldBack, QueueState},
    shared::{RingItem, Shared, WorkerShared},
    transfer::{Slice, Transfer, Work},
};

/// Fewest connections visited in one look at an RX queue: one that is left over and one that has something
/// new, or one kind would keep the other waiting.
const VISITS_MIN: usize = 2;
/// Requests of one connection served in one visit, so that a pipelining client cannot keep others waiting.
const VISIT_REQUESTS_MAX: usize = 4 * BURST_MAX;
/// Longest sleep: so often a worker looks after expired items and silent clients.
const SLEEP_MAX: Duration = Duration::from_millis(100);
/// Where a worker's waker stands among the descriptors that it sleeps on.
const WAKER_POSITION: usize = 0;
/// Where its transfer port stands among them, if the server has any.
const TRANSFERS_POSITION: usize = 1;
/// Time between two slices of housekeeping.
const HOUSEKEEPING_EVERY: Duration = Duration::from_millis(5);
/// Buckets looked at in one slice of housekeeping, some tens of microseconds.
const SWEEP_BUCKETS: usize = 256;
/// Bytes received in one call. Small enough to stay in the L1 and L2 caches, and to bound the bytes of a
/// large value that have to be copied because they came with its head.
const RECEIVE_BYTES: usize = 16 << 10;

/// One worker: a thread with an RX queue, a ring and a set of large transfers.
///
/// The discipline and the poller are types, so that the loop holds no branch on either.
pub(crate) struct Worker<'s, M: Mode, D, P: Poller> {
    pub(crate) shared: &'s Shared<M, P>,
    pub(crate) id: WorkerId,
    pub(crate) placement: WorkerPlacement<D>,
    pub(crate) large: LargeSet<M>,
    /// Its side of the native protocol, if that is served.
    pub(crate) datagrams: Option<Datagrams<'s, M>>,
    idle: Idle,
    /// The clock, read once a turn of the loop.
    pub(crate) now: Instant,
    pub(crate) now_s: Seconds,
    housekeeping: Housekeeping,
    /// What `visit` receives into and composes replies in.
    pub(crate) receive_buffer: Box<[u8]>,
    pub(crate) transmit_buffer: Vec<u8>,
    pub(crate) limits: Limits,
}

/// How much of a queue is served in one look at it.
#[derive(Clone, Copy)]
struct Portion {
    connections: usize,
    /// Of each connection.
    requests: usize,
    /// Messages of datagrams.
    messages: usize,
}

impl Portion {
    /// For a worker that should be doing something else.
    const STOLEN: Self = Self { connections: VISITS_MIN, requests: 1, messages: 1 };

    /// So many connections, and as many messages.
    const fn of(connections: usize) -> Self {
        Self { connections, requests: VISIT_REQUESTS_MAX, messages: connections }
    }
}

/// Work that is nobody's request.
struct Housekeeping {
    next: Instant,
    partition: usize,
    connections_checked: Seconds,
}

impl<'s, M: Mode, D: Discipline, P: Poller> Worker<'s, M, D, P> {
    pub(crate) fn new(shared: &'s Shared<M, P>, id: WorkerId, large: LargeSet<M>) -> Self {
        let now = Instant::now();
        let config = &shared.config;
        let histogram = Arc::clone(&shared.workers[id.index()].histogram);
        Self {
            placement: WorkerPlacement::new(&shared.plan, id, histogram, config.control.sample_one_in),
            large,
            datagrams: datagrams(shared, id),
            idle: Idle::new(config.poll, config.spin_max),
            now,
            now_s: shared.clock.seconds_at(now),
            housekeeping: Housekeeping { next: now, partition: id.index(), connections_checked: 0 },
            receive_buffer: vec![0; RECEIVE_BYTES].into_boxed_slice(),
            transmit_buffer: Vec::new(),
            limits: Limits {
                value_bytes_max: config.value_bytes_max,
                line_bytes_max: config.buffer_bytes_max,
            },
            id,
            shared,
        }
    }

    /// Works until the server stops.
    pub(crate) fn run(mut self) {
        let shared = self.shared;
        while !shared.stop.is_requested() {
            self.read_clock();
            if self.placement.refresh(&shared.plan) {
                // What was this worker's to poll may not be any more.
                (0..shared.queues.len()).for_each(|queue| pass_on(shared, queue));
            }
            let worked = self.poll_queues(shared)
                | self.take_from_ring()
                | self.poll_transfers(false)
                | self.serve_large();
            self.keep_house();
            if worked {
                if self.idle.worked(self.now) && !self.large.is_runnable() {
                    // What came home in this turn may be others' to poll.
                    pass_on(shared, self.id.index());
                    self.sleep(shared);
                }
            } else if self.idle.may_sleep(self.now) {
                self.sleep(shared);
            } else {
                std::hint::spin_loop();
            }
        }
        self.finish();
    }

    pub(crate) fn mine(&self) -> &'s WorkerShared<M> {
        &self.shared.workers[self.id.index()]
    }

    fn read_clock(&mut self) {
        self.now = Instant::now();
        self.now_s = self.shared.clock.seconds_at(self.now);
    }

    pub(crate) fn role(&self) -> Role {
        self.placement.plan.role(self.id)
    }

    /// Polls the RX queues that are this worker's to poll: its own and, B/n_s at a time, those of the
    /// large workers (Minos §3.1).
    fn poll_queues(&mut self, shared: &Shared<M, P>) -> bool {
        let mine = self.id.index();
        if self.role() == Role::Large {
            if self.may_steal() {
                return self.poll_queue(shared, mine, Portion::STOLEN);
            }
            pass_on(shared, mine);
            return false;
        }
        let mut found = self.poll_queue(shared, mine, Portion::of(BURST_MAX));
        if self.placement.plan.large_workers() > 0 {
            let share = BURST_MAX.div_ceil(self.placement.plan.small_workers().max(1)).max(VISITS_MIN);
            for queue in 0..shared.queues.len() {
                if self.placement.plan.roles[queue] == Role::Large {
                    found |= self.poll_queue(shared, queue, Portion::of(share));
                }
            }
        }
        found
    }

    /// Whether this worker takes small requests though it is a large one.
    fn may_steal(&self) -> bool {
        self.shared.config.steal && self.large.len() == 0
    }

    /// Serves a portion of what has arrived at a queue, unless another worker does so at the moment.
    fn poll_queue(&mut self, shared: &Shared<M, P>, queue: usize, portion: Portion) -> bool {
        let Some(mut state) = shared.queues[queue].state.try_lock() else { return false };
        let admitted = state.admit(&shared.queues[queue].arrivals, BURST_MAX);
        let released = self.release_held_back(&mut state);
        if let Err(error) = state.gather(portion.connections) {
            tracing::error!(%error, queue, "cannot poll");
            shared.stop.request();
            return false;
        }
        let ready = std::mem::take(&mut state.ready);
        for &event in &ready {
            self.visit(&mut state, event, portion.requests);
        }
        let found = !ready.is_empty();
        if found {
            self.count_visits(ready.len() as u64, queue);
        }
        state.ready = ready;
        // The lock of the queue is that of its port too.
        let arrived = self.poll_port(queue, portion.messages);
        shared.queues[queue].note_left_over(&mut state);
        found | admitted | released | arrived
    }

    fn count_visits(&self, visits: u64, queue: usize) {
        let metrics = &self.mine().metrics;
        metrics.bursts.add(1);
        metrics.visits.add(visits);
        if queue != self.id.index() {
            metrics.visits_elsewhere.add(visits);
        }
    }

    /// Tries again to hand over what had to stay; says whether to come back soon.
    fn release_held_back(&mut self, state: &mut QueueState<M, P>) -> bool {
        let mut comes_back = false;
        state.awaits_ring = false;
        for _ in 0..state.held_back.len() {
            let Some(held) = state.held_back.pop_front() else { break };
            comes_back |= self.hand_over(state, held);
        }
        comes_back
    }

    /// Hands a transfer to the worker it belongs to, or serves it here if it belongs to none. What cannot go
    /// yet is held back. Says whether to try again, or to look at the ring, soon.
    pub(crate) fn hand_over(&mut self, state: &mut QueueState<M, P>, held: HeldBack<M>) -> bool {
        let connection = &held.transfer.connection;
        match state.poller.lend(connection.token, &connection.socket) {
            Progress::Bytes(_) => {}
            Progress::Blocked if self.now.duration_since(held.since) <= self.shared.config.stall_timeout => {
                state.held_back.push_back(held);
                return false;
            }
            Progress::Blocked => {
                self.mine().metrics.large_stalled.add(1);
                self.give_up(*held.transfer);
                return true;
            }
            Progress::Closed => {
                self.give_up(*held.transfer);
                return true;
            }
        }
        let Some(worker) = held.worker else {
            self.serve_inline(held.transfer);
            return true;
        };
        let target = &self.shared.workers[worker.index()];
        let metrics = &self.mine().metrics;
        match target.ring.push(RingItem::Transfer(held.transfer)) {
            Ok(()) => {
                metrics.handed_over.add(1);
                if worker != self.id {
                    target.waker.wake();
                }
            }
            Err(RingItem::Transfer(transfer)) => {
                metrics.ring_full.add(1);
                state.awaits_ring = true;
                state.held_back.push_back(HeldBack { transfer, ..held });
            }
            Err(RingItem::Job(_)) => unreachable!("a ring gives back what it was given"),
        }
        true
    }

    /// Takes a burst of what others have handed over from this worker's ring.
    fn take_from_ring(&mut self) -> bool {
        let (mut transfers, mut jobs) = (0, 0);
        while transfers + jobs < BURST_MAX as u64 {
            match self.mine().ring.pop() {
                Some(RingItem::Transfer(transfer)) => {
                    self.large.insert(transfer, self.now);
                    transfers += 1;
                }
                Some(RingItem::Job(job)) => {
                    self.do_job(job);
                    jobs += 1;
                }
                None => break,
            }
        }
        if jobs > 0 {
            self.answer_jobs();
        }
        self.mine().metrics.large_taken.add(transfers);
        transfers + jobs > 0
    }

    /// Serves one slice of a large transfer: as much as may come between two looks at the RX queues.
    fn serve_large(&mut self) -> bool {
        if self.large.len() == 0 {
            return false;
        }
        self.large.poll(self.now);
        if !self.large.is_runnable() {
            return false;
        }
        self.mine().metrics.slices.add(1);
        match self.large.serve_slice(self.shared.config.slice_bytes, self.now) {
            Some(Ended::Complete(transfer)) => self.complete(*transfer),
            Some(Ended::Broken(transfer)) => self.give_up(*transfer),
            None => {}
        }
        true
    }

    /// Serves a transfer to its end here and now, as far as its socket allows.
    pub(crate) fn serve_inline(&mut self, mut transfer: Box<Transfer<M>>) {
        self.mine().metrics.large_inline.add(1);
        loop {
            match transfer.advance(usize::MAX) {
                Slice::Moved(_) => {}
                Slice::Complete => return self.complete(*transfer),
                Slice::Broken => return self.give_up(*transfer),
                Slice::Blocked => return self.large.insert(transfer, self.now),
            }
        }
    }

    /// Ends a transfer: executes what waited for its bytes, and sends the connection home.
    fn complete(&mut self, transfer: Transfer<M>) {
        self.count_moved(&transfer);
        let Transfer { mut connection, head, work, .. } = transfer;
        match work {
            Work::Send { mut reply, .. } => connection.resume = reply.take_resume(),
            Work::Receive { store, .. } | Work::Finish { store } => {
                self.transmit_buffer.clear();
                self.transmit_buffer.extend_from_slice(&head);
                self.finish_store(*store);
                self.answer(&mut connection);
            }
        }
        self.mine().metrics.large_completed.add(1);
        connection.registration.active(self.now_s);
        self.send_home(connection.home, Arrival::Back(connection));
    }

    /// Sends the transmit buffer on a connection that was lent to this worker: its home may be busy, or may
    /// have stopped already.
    fn answer(&self, connection: &mut Connection) {
        let bytes = self.transmit_buffer.as_slice();
        if bytes.is_empty() {
            return;
        }
        self.mine().counters.bytes_written.add(bytes.len() as u64);
        match connection.socket.send(bytes) {
            Progress::Bytes(sent) => connection.output.append(&bytes[sent..]),
            Progress::Blocked => connection.output.append(bytes),
            Progress::Closed => connection.closing = true,
        }
    }

    fn count_moved(&self, transfer: &Transfer<M>) {
        let counters = &self.mine().counters;
        match transfer.work {
            Work::Send { .. } => counters.bytes_written.add(transfer.moved_bytes),
            Work::Receive { .. } | Work::Finish { .. } => counters.bytes_read.add(transfer.moved_bytes),
        }
    }

    fn give_up(&mut self, transfer: Transfer<M>) {
        self.count_moved(&transfer);
        self.mine().metrics.large_broken.add(1);
        let connection = transfer.connection;
        self.send_home(connection.home, Arrival::Ended(connection));
    }

    fn send_home(&self, queue: usize, mut arrival: Arrival) {
        // The ring has room for every connection of the server, so that this ends at the first try; a
        // second can only be needed while another worker is between two steps of its own push.
        while let Err(refused) = self.shared.queues[queue].arrivals.push(arrival) {
            arrival = refused;
            std::thread::yield_now();
        }
        if queue != self.id.index() {
            self.shared.wake_poller_of(queue);
        }
    }

    /// Sleeps until something comes to what this worker polls.
    fn sleep(&mut self, shared: &Shared<M, P>) {
        let mine = &shared.workers[self.id.index()];
        mine.waker.prepare();
        let mut readable = Readable::default();
        if self.may_sleep_on(shared) {
            mine.metrics.sleeps.add(1);
            let begun = Instant::now();
            // An error here shows again, and is dealt with, where the queue is polled.
            readable = wait_which(&self.sleep_descriptors(shared), Wait::For(SLEEP_MAX)).unwrap_or_default();
            self.idle.slept(begun.elapsed());
        }
        mine.waker.awake();
        // Whoever wakes writes after he has seen the wish, perhaps only after this sleep has ended otherwise: then it
        // ends the next one, and is taken back there.
        if readable.contains(WAKER_POSITION) {
            mine.waker.drain();
        }
        if shared.native.is_some() && readable.contains(TRANSFERS_POSITION) {
            self.poll_transfers(true);
        }
    }

    /// Whether nothing came since this worker last looked that no descriptor would tell of.
    fn may_sleep_on(&self, shared: &Shared<M, P>) -> bool {
        shared.workers[self.id.index()].ring.is_empty()
            && !self.polled_queues().any(|queue| shared.queues[queue].has_silent_work())
            && shared.plan.version() == self.placement.version()
            && !shared.stop.is_requested()
    }

    /// The queues that are this worker's to poll at the moment.
    fn polled_queues(&self) -> impl Iterator<Item = usize> {
        let (id, role, plan) = (self.id.index(), self.role(), &self.placement.plan);
        let steals = self.may_steal();
        (0..plan.workers()).filter(move |&queue| match role {
            Role::Large => queue == id && steals,
            Role::Small | Role::Standby => queue == id || plan.roles[queue] == Role::Large,
        })
    }

    /// What becomes readable when there is work for this worker.
    fn sleep_descriptors<'a>(&'a self, shared: &'a Shared<M, P>) -> ArrayVec<BorrowedFd<'a>, WAIT_MAX> {
        let mut descriptors = ArrayVec::new();
        descriptors.push(shared.workers[self.id.index()].waker.as_fd());
        // At their positions, if they are there.
        descriptors.extend(self.port_descriptor(shared.queues.len() + self.id.index()));
        descriptors.push(self.large.descriptor());
        descriptors.extend(self.polled_queues().map(|queue| shared.queues[queue].descriptor.as_fd()));
        descriptors.extend(self.polled_queues().filter_map(|queue| self.port_descriptor(queue)));
        descriptors
    }

    /// Does a bounded slice of what is nobody's request, when it is time.
    fn keep_house(&mut self) {
        if self.now < self.housekeeping.next {
            return;
        }
        self.housekeeping.next = self.now + HOUSEKEEPING_EVERY;
        self.sweep();
        self.give_up_stalled();
        self.poll_transfers(true);
        self.tick_datagrams();
        if self.housekeeping.connections_checked != self.now_s {
            self.housekeeping.connections_checked = self.now_s;
            self.close_silent();
        }
    }

    /// Reclaims expired items in one of the partitions that are this worker's to sweep.
    fn sweep(&mut self) {
        let workers = self.shared.workers.len();
        let partition = self.housekeeping.partition;
        if partition >= self.shared.store.partitions() {
            self.housekeeping.partition = self.id.index();
            return;
        }
        let swept = self.shared.store.sweep(partition, SWEEP_BUCKETS, self.now_s);
        self.mine().metrics.reclaimed.add(swept.expired + swept.flushed);
        if swept.pass_ended {
            self.housekeeping.partition = partition + workers;
        }
    }

    fn give_up_stalled(&mut self) {
        let Some(deadline) = self.now.checked_sub(self.shared.config.stall_timeout) else { return };
        while let Some(transfer) = self.large.take_stalled(deadline) {
            self.mine().metrics.large_stalled.add(1);
            self.give_up(*transfer);
        }
    }

    /// Closes the connections of this worker's queue that have said nothing for too long.
    fn close_silent(&mut self) {
        let Some(timeout) = self.shared.config.idle_timeout else { return };
        let timeout_s = Seconds::try_from(timeout.as_secs()).unwrap_or(Seconds::MAX);
        let Some(oldest) = self.now_s.checked_sub(timeout_s) else { return };
        let Some(mut state) = self.shared.queues[self.id.index()].state.try_lock() else { return };
        let silent: Vec<_> = state
            .connections
            .all_here()
            .filter(|c| c.registration.last_active() < oldest)
            .map(|c| c.token)
            .collect();
        for token in silent {
            state.close(token);
            self.mine().metrics.idle_closed.add(1);
        }
    }

    /// Gives what is under way a bounded time to end.
    fn finish(&mut self) {
        // A time that no clock reaches is no limit.
        let deadline = Instant::now().checked_add(self.shared.config.stop_timeout);
        loop {
            self.read_clock();
            self.take_from_ring();
            self.poll_transfers(true);
            self.tick_datagrams();
            if (self.large.len() == 0 && !self.has_transfers())
                || deadline.is_some_and(|deadline| self.now >= deadline)
                || self.shared.stop.is_at_once()
            {
                return;
            }
            if !self.serve_large() {
                let transfers = self.port_descriptor(self.shared.queues.len() + self.id.index());
                let descriptors: ArrayVec<_, 2> =
                    [Some(self.large.descriptor()), transfers].into_iter().flatten().collect();
                let _ = wait_readable(&descriptors, Wait::For(Duration::from_millis(10)));
            }
        }
    }
}

/// The side of worker `id` of the native protocol, if that is served.
fn datagrams<M: Mode, P: Poller>(shared: &Shared<M, P>, id: WorkerId) -> Option<Datagrams<'_, M>> {
    let side = shared.native.as_ref()?;
    let counters = Arc::clone(&shared.worker(id).counters);
    Some(Datagrams::new(NativeWorker::new(Arc::clone(&side.core), id, counters, shared)))
}

/// Wakes those whose `queue` is to poll, if there is work in it that no descriptor tells of.
fn pass_on<M: Mode, P: Poller>(shared: &Shared<M, P>, queue: usize) {
    if shared.queues[queue].has_silent_work() {
        shared.wake_poller_of(queue);
    }
}
