//! How a worker sleeps: on what, and when it may not.

use std::{
    os::fd::{AsFd, BorrowedFd},
    time::{Duration, Instant},
};

use arrayvec::ArrayVec;
use minos_engine::Mode;
use minos_net::{Poller, Readable, WAIT_MAX, Wait, wait_which};
use minos_sched::{WorkerId, WorkerSet};

use super::Worker;

/// Longest sleep: so often a worker looks after expired items and silent clients.
const SLEEP_MAX: Duration = Duration::from_millis(100);
/// Where a worker's waker stands among the descriptors that it sleeps on.
const WAKER_POSITION: usize = 0;
/// Where its transfer port stands among them, if the server has any.
const TRANSFERS_POSITION: usize = 1;

impl<M: Mode, P: Poller> Worker<'_, M, P> {
    /// Sleeps until something comes to what this worker polls.
    pub(crate) fn sleep(&mut self) {
        let (shared, mine) = (self.shared, self.mine());
        mine.waker.prepare();
        let mut readable = Readable::default();
        let watched = self.watched_queues();
        if self.may_sleep_on(watched) {
            mine.metrics.sleeps.add(1);
            let begun = Instant::now();
            // An error here shows again, and is dealt with, where the queue is polled.
            readable = wait_which(&self.sleep_descriptors(watched), Wait::For(SLEEP_MAX)).unwrap_or_default();
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
    fn may_sleep_on(&self, watched: WorkerSet) -> bool {
        let (shared, duty) = (self.shared, self.placement.duty());
        let mut rings = duty.drains.first.or(duty.drains.then).or(duty.relieves).iter();
        self.mine().ring.is_empty()
            && rings.all(|ring| shared.worker(ring).waiting.is_empty())
            && duty.borrows_from.iter().all(|lender| shared.worker(lender).lent.is_empty())
            && !watched.iter().any(|queue| shared.queues[queue.index()].has_silent_work())
            && shared.plan.version() == self.placement.version()
            && !shared.stop.is_requested()
    }

    /// The RX queues that end this worker's sleep: those that it polls, and of those that it helps with the next one and
    /// those whose workers are all busy. The next one's worker may be woken and get no processor. If all watched all,
    /// each request would wake a crowd.
    fn watched_queues(&self) -> WorkerSet {
        let duty = self.placement.duty();
        let polled = duty.polled();
        let Some(help) = duty.help else { return polled };
        if help.queues == WorkerSet::one(self.id) {
            return polled.with(self.id);
        }
        let next = help.queues.without(self.id).iter_from(self.id.index() + 1).next();
        let polled_by = &self.placement.assignment().polled_by;
        let is_awake = |worker: WorkerId| !self.shared.worker(worker).waker.is_asleep();
        let is_busy = |queue: WorkerId| polled_by[queue.index()].iter().all(is_awake);
        let watched = help.queues.iter().filter(|&queue| Some(queue) == next || is_busy(queue));
        watched.fold(polled, WorkerSet::with)
    }

    /// What becomes readable when there is work for this worker.
    fn sleep_descriptors(&self, watched: WorkerSet) -> ArrayVec<BorrowedFd<'_>, WAIT_MAX> {
        let shared = self.shared;
        let mut descriptors = ArrayVec::new();
        descriptors.push(self.mine().waker.as_fd());
        // At their positions, if they are there.
        descriptors.extend(self.port_descriptor(self.transfer_queue()));
        descriptors.push(self.large.descriptor());
        descriptors.extend(watched.iter().map(|queue| shared.queues[queue.index()].descriptor.as_fd()));
        descriptors.extend(watched.iter().filter_map(|queue| self.port_descriptor(queue.index())));
        descriptors
    }
}
