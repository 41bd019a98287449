//! A worker: the loop of its turns and the steps of a turn. It polls RX queues, drains rings, serves slices
//! of large values, helps other workers, does background work and sleeps.

mod arrivals;
pub(crate) mod copies;
pub(crate) mod fetches;
pub(crate) mod flash;
mod forwards;
mod gather;
mod housekeeping;
mod idle;
mod large;
pub(crate) mod large_set;
#[cfg(test)]
pub(crate) mod lockstep;
pub(crate) mod metrics;
pub(crate) mod placement;
#[cfg(test)]
mod rights;
pub(crate) mod rings;
mod sleep;
#[cfg(test)]
mod tests;
mod waiting;

use std::{
    sync::{Arc, atomic::Ordering},
    time::{Duration, Instant},
};

use arrayvec::ArrayVec;
use minos_base::{
    Seconds,
    limits::{BURST_MAX, LONG_TURN},
};
use minos_engine::Mode;
use minos_net::{Io, Port, Wait, wait_readable};
use minos_sched::{Role, Seen, Step, WorkerId, is_due};

use crate::{
    datagram::{Datagrams, native::NativeWorker},
    rack::{Links, RackView},
    server::shared::Shared,
    tcp::connection::Connection,
    watch::Probe,
};
use fetches::Fetches;
use housekeeping::Housekeeping;
use idle::Idle;
use large_set::LargeSet;
use placement::WorkerPlacement;
use rings::{HeldReplies, WorkerShared};

/// Bytes received in one call. Small enough for the L1 and L2 caches, and to bound the bytes of a large value
/// that must be copied because they came with its head.
const RECEIVE_BYTES: usize = 16 << 10;

/// One worker: a thread with an RX queue, two rings and a set of large transfers.
///
/// The transports are a type, so that the path of a request does not branch on it. The demands of the design are
/// data: the duty in the placement.
pub(crate) struct Worker<'s, M: Mode, I: Io> {
    pub(crate) shared: &'s Shared<M, I>,
    /// The part of this worker that others may access.
    pub(crate) mine: &'s WorkerShared<M>,
    pub(crate) id: WorkerId,
    pub(crate) placement: WorkerPlacement,
    /// Chooses the requests that are looked at.
    pub(crate) probe: Probe,
    pub(crate) large: LargeSet<M, I::Poller>,
    /// Requests that wait for items from flash, if the store is above one.
    pub(crate) fetches: Option<Fetches<M>>,
    /// The rack as this worker sees it, and its links to the other nodes, if there is one.
    pub(crate) rack: Option<RackView<M>>,
    pub(crate) links: Option<Links<M, I::Poller>>,
    /// Replies that wait until changes are durable.
    pub(crate) held: HeldReplies<M>,
    /// The worker's part of the native protocol, if that is served.
    pub(crate) datagrams: Option<Datagrams<'s, M, I::Port>>,
    pub(crate) idle: Idle,
    /// The clock, read once a turn of the loop.
    pub(crate) now: Instant,
    pub(crate) now_s: Seconds,
    pub(crate) housekeeping: Housekeeping,
    /// Where the next round over other workers' queues and rings begins, so that none always comes first.
    pub(crate) round: usize,
    /// Connections that this worker visits next, because no ring holds them. Empty between polls.
    pub(crate) taken: ArrayVec<Box<Connection>, BURST_MAX>,
    pub(crate) receive_buffer: Box<[u8]>,
    pub(crate) transmit_buffer: Vec<u8>,
}

impl<'s, M: Mode, I: Io> Worker<'s, M, I> {
    pub(crate) fn new(
        shared: &'s Shared<M, I>,
        id: WorkerId,
        large: LargeSet<M, I::Poller>,
        fetches: Option<Fetches<M>>,
        links: Option<Links<M, I::Poller>>,
    ) -> Self {
        let now = Instant::now();
        let config = &shared.config;
        let mine = shared.worker(id);
        let histogram = Arc::clone(&mine.histogram);
        Self {
            placement: WorkerPlacement::new(&shared.plan, id, histogram),
            probe: shared.watch.probe(id.index()),
            large,
            fetches,
            rack: rack_view(shared, id),
            links,
            held: HeldReplies::new(),
            datagrams: datagrams(shared, id),
            idle: Idle::new(config.poll),
            now,
            now_s: shared.clock.seconds_at(now),
            housekeeping: Housekeeping::new(now, id),
            round: id.index(),
            taken: ArrayVec::new(),
            receive_buffer: vec![0; RECEIVE_BYTES].into_boxed_slice(),
            transmit_buffer: Vec::new(),
            id,
            mine,
            shared,
        }
    }

    /// Runs turns until the server stops.
    pub(crate) fn run(mut self) {
        self.note_plan();
        self.read_clock();
        while !self.shared.stop.is_requested() {
            if self.placement.refresh(&self.shared.plan) {
                self.note_plan();
            }
            self.refresh_rack();
            let began = self.now;
            let worked = self.turn(|_, _| {});
            if self.now >= self.housekeeping.next {
                self.keep_house();
            }
            self.read_clock();
            self.count_turn(began, worked);
            if self.may_sleep(began, worked) {
                let asleep = self.now;
                if self.sleep() {
                    self.read_clock();
                    self.idle.slept(self.now.saturating_duration_since(asleep));
                }
            } else if !worked {
                std::hint::spin_loop();
            }
        }
        self.finish();
    }

    /// True if the worker may sleep after a turn.
    fn may_sleep(&mut self, began: Instant, worked: bool) -> bool {
        if !worked {
            return self.idle.may_sleep(began);
        }
        let may_sleep = self.idle.worked(began) && !self.has_slices();
        if may_sleep {
            // Connections returned in this turn may be for other workers to poll.
            self.pass_on(self.id.index());
        }
        may_sleep
    }

    /// One turn of the loop; true if there was work. Calls `watch` with each step and whether it found work.
    #[inline]
    pub(crate) fn turn(&mut self, mut watch: impl FnMut(Step, bool)) -> bool {
        let mut seen = Seen { ring_is_empty: self.mine.waiting.is_empty(), ..Seen::default() };
        // Unrolled by the compiler, so that no step is looked up at run time.
        for step in Step::ORDER {
            seen.holds_large = self.large.is_runnable();
            if is_due(self.placement.duty(), &seen, step) {
                let found = self.take(step);
                seen.note(step, found);
                watch(step, found);
            }
        }
        let forwarded = self.serve_forwards();
        self.release() || forwarded || seen.worked
    }

    /// Takes one step of a turn; true if it found work. A function of its own, so that the turn is still unrolled.
    #[inline(always)]
    fn take(&mut self, step: Step) -> bool {
        match step {
            Step::Poll => self.take_arrivals(),
            Step::GiveBack => self.give_back(),
            Step::Collect => self.take_from_ring(),
            Step::Draw => self.serve_waiting(),
            Step::Slice => self.serve_slices(),
            Step::Help => self.help(),
            Step::Relieve => self.relieve(),
        }
    }

    /// Acts on a plan that was just taken over.
    fn note_plan(&mut self) {
        let small_max = self.placement.small_max();
        self.probe.set_small_max(small_max);
        let tuning = *self.placement.tuning();
        self.probe.set_one_in(tuning.sample_one_in as u32);
        self.large.set_terms(tuning.terms());
        if let Some(datagrams) = &self.datagrams {
            datagrams.set_small_max(small_max);
            datagrams.set_one_in(tuning.sample_one_in as u32);
        }
        self.mine.metrics.role_changes.add(u64::from(self.placement.has_changed_role()));
        // This worker may no longer poll these queues or drain these rings.
        (0..self.shared.queues.len()).for_each(|queue| self.pass_on(queue));
        self.pass_rings_on();
        if self.placement.has_changed_design() && !self.placement.enqueues() {
            self.empty_ring();
        }
        // Release: a thread that reads the new version sees all work done under the old plan.
        self.mine.plan_version.store(self.placement.version(), Ordering::Release);
    }

    /// Counts the time of a turn that has just ended.
    fn count_turn(&self, began: Instant, worked: bool) {
        let (time, metrics) = (self.now.saturating_duration_since(began), &self.mine.metrics);
        if worked {
            metrics.busy_ns.add(time.as_nanos() as u64);
            self.shared.mailbox.call();
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

    /// Gives transfers in progress a bounded time to end.
    fn finish(&mut self) {
        // A timeout beyond the range of the clock is no limit.
        let deadline = Instant::now().checked_add(self.placement.tuning().stop_timeout);
        loop {
            self.read_clock();
            self.take_from_ring();
            while self.serve_waiting() {}
            self.poll_transfers(true);
            while self.copy_slice() {}
            let fetched = self.serve_fetches();
            self.release();
            self.serve_forwards();
            self.keep_forwards();
            self.tick_datagrams();
            let awaits = !self.held.is_empty()
                || self.fetches.as_ref().is_some_and(|fetches| !fetches.is_empty())
                || self.links.as_ref().is_some_and(|links| !links.is_empty());
            if (self.large.len() == 0 && !awaits && self.mine.ring.is_empty() && !self.has_transfers())
                || deadline.is_some_and(|deadline| self.now >= deadline)
                || self.shared.stop.is_at_once()
            {
                return;
            }
            if !self.serve_large() && !fetched {
                let transfers = self.port_descriptor(self.transfer_queue());
                let descriptors: ArrayVec<_, 2> =
                    [Some(self.large.descriptor()), transfers].into_iter().flatten().collect();
                let _ = wait_readable(&descriptors, Wait::For(Duration::from_millis(10)));
            }
        }
    }
}

/// Worker `id`'s part of the native protocol, if that is served.
fn datagrams<M: Mode, I: Io>(shared: &Shared<M, I>, id: WorkerId) -> Option<Datagrams<'_, M, I::Port>> {
    let side = shared.native.as_ref()?;
    let counters = Arc::clone(&shared.worker(id).counters);
    let native = NativeWorker::new(Arc::clone(&side.core), id, counters, shared);
    let native = native.of_rack(rack_view(shared, id));
    let native = native.with_probe(shared.watch.probe(id.index()));
    Some(Datagrams::new(native, side.ports.port(id.index()).burst()))
}

/// The rack as worker `id` sees it, if the server is one of its nodes.
fn rack_view<M: Mode, I: Io>(shared: &Shared<M, I>, id: WorkerId) -> Option<RackView<M>> {
    let rack = Arc::clone(shared.rack.as_ref()?);
    Some(RackView::new(rack, &shared.clock, Arc::clone(&shared.worker(id).rack_counters)))
}
