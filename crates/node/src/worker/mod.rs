//! A worker: the loop of its turns, and the steps that a turn takes. It polls RX queues, drains rings, serves slices of
//! large values, helps, keeps house and sleeps.

mod arrivals;
mod housekeeping;
mod idle;
mod large;
pub(crate) mod large_set;
#[cfg(test)]
mod lockstep;
pub(crate) mod metrics;
pub(crate) mod patience;
pub(crate) mod placement;
pub(crate) mod rings;
mod sleep;
mod waiting;

use std::{
    sync::{Arc, atomic::Ordering},
    time::{Duration, Instant},
};

use arrayvec::ArrayVec;
use minos_base::{Seconds, limits::LONG_TURN};
use minos_engine::Mode;
use minos_net::{Poller, Wait, wait_readable};
use minos_proto::memcache::Limits;
use minos_sched::{Role, Seen, Step, WorkerId, next_step};

use crate::{
    datagram::{datagrams::Datagrams, native::NativeWorker},
    server::shared::Shared,
};
use idle::Idle;
use large_set::LargeSet;
use placement::WorkerPlacement;
use rings::WorkerShared;

/// Bytes received in one call. Small enough to stay in the L1 and L2 caches, and to bound the bytes of a
/// large value that have to be copied because they came with its head.
const RECEIVE_BYTES: usize = 16 << 10;

/// A turn of the loop.
struct Turn {
    began: Instant,
    /// It found something to do.
    worked: bool,
}

/// Work that is nobody's request.
pub(crate) struct Housekeeping {
    next: Instant,
    partition: usize,
    connections_checked: Seconds,
}

impl Housekeeping {
    /// That of worker `id`, due at `now`.
    pub(crate) fn new(now: Instant, id: WorkerId) -> Self {
        Self { next: now, partition: id.index(), connections_checked: 0 }
    }
}

/// One worker: a thread with an RX queue, two rings and a set of large transfers.
///
/// The poller is a type, so that the path of a request holds no branch on it. What the design asks of the worker is data:
/// the duty in its placement.
pub(crate) struct Worker<'s, M: Mode, P: Poller> {
    pub(crate) shared: &'s Shared<M, P>,
    pub(crate) id: WorkerId,
    pub(crate) placement: WorkerPlacement,
    pub(crate) large: LargeSet<M>,
    /// Its side of the native protocol, if that is served.
    pub(crate) datagrams: Option<Datagrams<'s, M>>,
    pub(crate) idle: Idle,
    /// The clock, read once a turn of the loop.
    pub(crate) now: Instant,
    pub(crate) now_s: Seconds,
    pub(crate) housekeeping: Housekeeping,
    /// Where the next look round other workers' queues and rings begins, so that nobody always comes first.
    pub(crate) round: usize,
    /// What `visit` receives into and composes replies in.
    pub(crate) receive_buffer: Box<[u8]>,
    pub(crate) transmit_buffer: Vec<u8>,
    /// Bytes of replies after which they are sent before another request is executed.
    pub(crate) replies_bytes_max: usize,
    pub(crate) limits: Limits,
}

impl<'s, M: Mode, P: Poller> Worker<'s, M, P> {
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
            housekeeping: Housekeeping::new(now, id),
            round: id.index(),
            receive_buffer: vec![0; RECEIVE_BYTES].into_boxed_slice(),
            transmit_buffer: Vec::new(),
            replies_bytes_max: config.replies_bytes_max(),
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
        self.note_plan();
        let mut last = None;
        while !self.shared.stop.is_requested() {
            self.read_clock();
            self.count_turn(last.take());
            if self.placement.refresh(&self.shared.plan) {
                self.note_plan();
            }
            let worked = self.turn();
            self.keep_house();
            last = Some(Turn { began: self.now, worked });
            if worked {
                if self.idle.worked(self.now) && !self.has_slices() {
                    // What came home in this turn may be others' to poll.
                    self.pass_on(self.id.index());
                    self.read_clock();
                    self.count_turn(last.take());
                    self.sleep();
                }
            } else if self.idle.may_sleep(self.now) {
                last = None;
                self.sleep();
            } else {
                std::hint::spin_loop();
            }
        }
        self.finish();
    }

    /// One turn of the loop; true if there was work.
    fn turn(&mut self) -> bool {
        self.turn_watched(|_, _| {})
    }

    /// The same; `watch` is told of each step, and whether it found something.
    #[inline]
    fn turn_watched(&mut self, mut watch: impl FnMut(Step, bool)) -> bool {
        let mut seen = Seen { ring_is_empty: self.mine().waiting.is_empty(), ..Seen::default() };
        loop {
            seen.holds_large = self.large.is_runnable();
            let Some(step) = next_step(self.placement.duty(), &seen) else { return seen.worked };
            let found = self.take(step);
            seen.note(step, found);
            watch(step, found);
        }
    }

    /// Takes a step of a turn; true if it found something.
    #[inline]
    fn take(&mut self, step: Step) -> bool {
        match step {
            Step::Poll => self.take_arrivals(),
            Step::GiveBack => self.give_back(),
            Step::Collect => self.take_from_ring(),
            Step::Draw => self.serve_waiting(),
            Step::Slice => self.poll_transfers(false) | self.copy_slice() | self.serve_large(),
            Step::Repay | Step::Help => self.help(),
            Step::Relieve => self.relieve(),
        }
    }

    /// Goes by a plan that was just taken over.
    fn note_plan(&mut self) {
        self.mine().metrics.role_changes.add(u64::from(self.placement.has_changed_role()));
        // What was this worker's to poll, or to take, may not be any more.
        (0..self.shared.queues.len()).for_each(|queue| self.pass_on(queue));
        self.pass_rings_on();
        if self.placement.has_changed_design() && !self.placement.enqueues() {
            self.empty_ring();
        }
        // Release: whoever waits for it sees what was done under the plan before.
        self.mine().plan_version.store(self.placement.version(), Ordering::Release);
    }

    pub(crate) fn mine(&self) -> &'s WorkerShared<M> {
        &self.shared.workers[self.id.index()]
    }

    /// Counts the time of a turn that has just ended.
    fn count_turn(&self, turn: Option<Turn>) {
        let Some(Turn { began, worked }) = turn else { return };
        let (time, metrics) = (self.now.saturating_duration_since(began), &self.mine().metrics);
        if worked {
            metrics.busy_ns.add(time.as_nanos() as u64);
        }
        if time > LONG_TURN {
            metrics.long_turns.add(1);
        }
    }

    fn read_clock(&mut self) {
        self.now = Instant::now();
        self.now_s = self.shared.clock.seconds_at(self.now);
    }

    pub(crate) fn role(&self) -> Role {
        self.placement.role()
    }

    /// Gives what is under way a bounded time to end.
    fn finish(&mut self) {
        // A time that no clock reaches is no limit.
        let deadline = Instant::now().checked_add(self.shared.config.stop_timeout);
        loop {
            self.read_clock();
            self.take_from_ring();
            while self.serve_waiting() {}
            self.poll_transfers(true);
            while self.copy_slice() {}
            self.tick_datagrams();
            if (self.large.len() == 0 && self.mine().ring.is_empty() && !self.has_transfers())
                || deadline.is_some_and(|deadline| self.now >= deadline)
                || self.shared.stop.is_at_once()
            {
                return;
            }
            if !self.serve_large() {
                let transfers = self.port_descriptor(self.transfer_queue());
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
