//! How a worker sleeps: what wakes it, and when it may not sleep.

use std::{os::fd::AsFd, time::Duration};

use minos_engine::Mode;
use minos_net::{Io, Readable, Wait, WaitSet};
use minos_sched::{WorkerId, WorkerSet};

use super::{Worker, fetches::Fetches};
use crate::rack::{Links, RackView};

/// Longest sleep while something is under way, and so the longest delay of background work.
const NAP_MAX: Duration = Duration::from_millis(100);
/// Longest sleep.
const REST_MAX: Duration = Duration::from_secs(5);
/// Position of the worker's waker among the descriptors of a sleep.
const WAKER_POSITION: usize = 0;
/// Position of its transfer port, if the server has one.
const TRANSFERS_POSITION: usize = 1;

impl<M: Mode, I: Io> Worker<'_, M, I> {
    /// Sleeps until there is work in the queues and rings of this worker; false if there was some already.
    pub(crate) fn sleep(&mut self) -> bool {
        let (shared, mine) = (self.shared, self.mine);
        mine.waker.prepare();
        let now = (self.now, self.now_s);
        let is_watched = self.fetches.as_mut().is_none_or(|fetches| fetches.prepare_sleep(now));
        let mut readable = Readable::default();
        let watched = self.watched_queues();
        let are_armed = self.links.as_mut().is_none_or(Links::arm);
        let sleeps = is_watched && are_armed && !self.may_release() && self.may_sleep_on(watched);
        if sleeps {
            mine.metrics.sleeps.add(1);
            // The poll of the queue meets the same error and handles it.
            readable = self.wake_ups(watched).wait(Wait::For(self.sleep_max())).unwrap_or_default();
        }
        mine.waker.awake();
        // A worker that saw this one asleep may write to the waker only after the sleep has ended. Then the
        // write ends the next sleep and is drained there.
        if readable.contains(WAKER_POSITION) {
            mine.waker.drain();
        }
        if shared.native.is_some() && readable.contains(TRANSFERS_POSITION) {
            // What has arrived is served by the time after the sleep.
            self.read_clock();
            self.poll_transfers(true);
        }
        sleeps
    }

    /// Time until the next timer, or look at what no descriptor reports.
    fn sleep_max(&self) -> Duration {
        let fetches = self.fetches.as_ref().and_then(Fetches::sleep_max);
        let links = self.busy_links();
        let longest = match self.placement.tuning().idle_timeout {
            _ if links.is_some() || self.has_timers() || !self.is_swept() => NAP_MAX,
            // Silent connections are looked for once a second.
            timeout if !timeout.is_zero() => self.shared.clock.until_next_second(self.now),
            _ => REST_MAX,
        };
        let links = links.and_then(Links::sleep_max);
        [fetches, links].into_iter().flatten().fold(longest, Duration::min)
    }

    /// True if something is under way here that may end by time.
    fn has_timers(&self) -> bool {
        self.large.len() > 0
            || !self.held.is_empty()
            || self.fetches.as_ref().is_some_and(|fetches| !fetches.is_empty())
            || self.has_transfers()
    }

    /// The links to other nodes, if commands are under way there.
    #[inline]
    fn busy_links(&self) -> Option<&Links<M, I::Poller>> {
        self.links.as_ref().filter(|links| !links.is_idle())
    }

    /// True if there is no work that no descriptor would report.
    fn may_sleep_on(&self, watched: WorkerSet) -> bool {
        let (shared, duty) = (self.shared, self.placement.duty());
        let mut rings = duty.drains.first.or(duty.drains.then).or(duty.relieves).iter();
        self.mine.ring.is_empty()
            && rings.all(|ring| shared.worker(ring).waiting.is_empty())
            && duty.borrows_from.iter().all(|lender| shared.worker(lender).lent.is_empty())
            && !watched.iter().any(|queue| shared.queues[queue.index()].has_silent_work())
            && shared.plan.version() == self.placement.version()
            && self.rack.as_ref().is_none_or(RackView::is_current)
            && !shared.stop.is_requested()
    }

    /// The RX queues that end this worker's sleep: those it polls and, of those it helps with, the next one
    /// and those whose pollers are all awake. The next one's poller may be woken and get no processor. If
    /// every worker watched every queue, each request would wake them all.
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

    /// The descriptors that become readable when there is work for this worker.
    fn wake_ups(&self, watched: WorkerSet) -> WaitSet<'_> {
        let mut wake_ups = WaitSet::default();
        wake_ups.add(self.mine.waker.as_fd());
        if let Some(port) = self.port_descriptor(self.transfer_queue()) {
            // At `TRANSFERS_POSITION`.
            wake_ups.add(port);
        }
        wake_ups.add(self.large.descriptor());
        // Without requests it reports old reads, again and again.
        if let Some(fetches) = self.fetches.as_ref().filter(|fetches| !fetches.is_empty()) {
            wake_ups.add(fetches.descriptor());
        }
        if let Some(links) = self.busy_links() {
            wake_ups.add(links.descriptor());
            links.descriptor_afar().into_iter().for_each(|descriptor| wake_ups.add(descriptor));
        }
        for queue in watched.iter() {
            wake_ups.add(self.shared.queues[queue.index()].descriptor.as_fd());
            if let Some(port) = self.port_descriptor(queue.index()) {
                wake_ups.add(port);
            }
        }
        wake_ups
    }
}
