//! The rings: work that one worker has taken from RX queues and the same or another worker serves.

use minos_base::limits::BURST_MAX;
use minos_engine::Mode;
use minos_net::Io;
use minos_sched::{WorkerId, WorkerSet};
use minos_sync::Ring;

use super::{
    Worker,
    rings::{Awaiting, RingItem, Waiter},
};
use crate::{
    ops::Placement,
    tcp::{connection::Connection, queue::Arrival, transfer::Transfer},
};

impl<M: Mode, I: Io> Worker<'_, M, I> {
    /// Takes a burst of requests that other workers pushed into the ring of this worker alone.
    pub(super) fn take_from_ring(&mut self) -> bool {
        let mut taken = 0;
        while taken < BURST_MAX
            && let Some(item) = self.mine.ring.pop()
        {
            self.serve_item(item);
            taken += 1;
        }
        if taken > 0 {
            self.answer_jobs();
        }
        taken > 0
    }

    /// Serves one item from the rings that this worker drains.
    pub(crate) fn serve_waiting(&mut self) -> bool {
        let drains = self.placement.duty().drains;
        match self.take_waiting(drains.first, drains.then) {
            Some(item) => self.serve_item(item),
            None => return false,
        }
        true
    }

    /// Takes a large request from the ring of a worker that this one relieves.
    pub(crate) fn relieve(&mut self) -> bool {
        match self.take_waiting(self.placement.duty().relieves, WorkerSet::EMPTY) {
            Some(item) => self.serve_item(item),
            None => return false,
        }
        self.mine.metrics.relieved.add(1);
        true
    }

    /// Empties this worker's shared ring of items from an earlier design, so that small requests do not wait
    /// behind large ones.
    pub(crate) fn empty_ring(&mut self) {
        while let Some(item) = self.mine.waiting.pop() {
            match item {
                RingItem::Connection(connection) => {
                    self.send_home(connection.home, Arrival::Back { connection, has_more: true });
                }
                other => self.serve_item(other),
            }
        }
    }

    /// Serves an item, or adds it to the large set. The answers to jobs wait for [`Worker::answer_jobs`].
    fn serve_item(&mut self, item: RingItem<M>) {
        match item {
            RingItem::Connection(connection) => self.visit_apart(connection),
            RingItem::Message(message) => self.serve_message(&message),
            RingItem::Fetch(awaiting) => self.begin_fetch(awaiting),
            RingItem::Transfer(transfer) => {
                self.mine.metrics.large_taken.add(1);
                self.large.insert(transfer, self.now);
            }
            RingItem::Job(job) => self.do_job(job),
        }
    }

    fn take_waiting(&mut self, first: WorkerSet, then: WorkerSet) -> Option<RingItem<M>> {
        let shared = self.shared;
        let pop = |rings: WorkerSet| {
            rings.iter_from(self.round).find_map(|ring| Some((ring, shared.worker(ring).waiting.pop()?)))
        };
        let (ring, item) = pop(first).or_else(|| pop(then))?;
        let metrics = &self.mine.metrics;
        metrics.queued_taken.add(1);
        if ring != self.id {
            metrics.queued_taken_elsewhere.add(1);
            self.round = (ring.index() + 1) % self.shared.workers.len();
        }
        Some(item)
    }

    /// Pushes work into this worker's shared ring and wakes a worker that drains it. Returns the item if the
    /// ring is full.
    pub(crate) fn put_waiting(&self, item: RingItem<M>) -> Result<(), RingItem<M>> {
        let mine = self.mine;
        let was_empty = mine.waiting.is_empty();
        mine.waiting.push(item)?;
        mine.metrics.queued.add(1);
        let drainers = self.placement.assignment().drained_by[self.id.index()];
        // This worker, if it drains the ring, serves the first item itself.
        if !(was_empty && drainers.contains(self.id)) {
            self.shared.wake_sleepers(drainers.without(self.id), self.id.index() + 1, 1);
        }
        Ok(())
    }

    /// Wakes the workers that drain a ring that is not empty. The push has woken those that drained it under
    /// the old plan.
    pub(crate) fn pass_rings_on(&self) {
        for (index, owner) in self.shared.workers.iter().enumerate().filter(|(_, w)| !w.waiting.is_empty()) {
            let drainers = self.placement.assignment().drained_by[index];
            self.shared.wake_sleepers(drainers, index, owner.waiting.len());
        }
    }

    /// Hands runnable transfers that belong to other workers back to them; true if it handed any over.
    pub(crate) fn give_back(&mut self) -> bool {
        let mut gave = false;
        loop {
            let placement = &self.placement;
            let home = self.large.last_runnable().and_then(|transfer| placement.home(transfer.class()));
            let Some(home) = home.filter(|&home| home != self.id && self.has_room(home)) else { return gave };
            let Some(transfer) = self.large.take_runnable() else { return gave };
            if let Err(refused) = self.give(home, transfer) {
                self.large.insert(refused, self.now);
                return gave;
            }
            gave = true;
        }
    }

    /// Hands a large request to the worker for its size, or serves it here.
    pub(crate) fn pass_or_serve(&mut self, transfer: Box<Transfer<M>>) {
        let Some(worker) = self.placement.home(transfer.class()) else { return self.serve_inline(transfer) };
        // This worker's own requests also go through its ring, where other workers may take them.
        if let Err(refused) = self.give(worker, transfer) {
            // In slices, so that small requests do not wait for the whole transfer.
            self.large.insert(refused, self.now);
        }
    }

    /// Hands a request that needs items from flash to the worker that fetches them, or fetches them here.
    pub(crate) fn pass_or_fetch(&mut self, awaiting: Box<Awaiting<M>>) {
        let number = awaiting.fetch.keys.first().map_or(0, |(hash, _)| hash.0);
        let worker =
            self.placement.fetcher(awaiting.fetch.class_min(), number).filter(|&worker| worker != self.id);
        let Some(worker) = worker else { return self.begin_fetch(awaiting) };
        match self.push_to(worker, RingItem::Fetch(awaiting)) {
            Err(RingItem::Fetch(refused)) => match refused.waiter {
                Waiter::Connection(_) => self.begin_fetch(refused),
                Waiter::Datagrams(waiting) => self.refuse_waiting(&waiting),
            },
            Err(_) => unreachable!("a full ring gives back what it was given"),
            Ok(()) => self.mine.metrics.handed_over.add(1),
        }
    }

    /// Hands a large request to the worker for its size. Returns the request if the ring is full.
    fn give(&self, worker: WorkerId, transfer: Box<Transfer<M>>) -> Result<(), Box<Transfer<M>>> {
        match self.push_to(worker, RingItem::Transfer(transfer)) {
            Ok(()) => {
                self.mine.metrics.handed_over.add(1);
                Ok(())
            }
            Err(RingItem::Transfer(transfer)) => Err(transfer),
            Err(_) => unreachable!("a full ring gives back what it was given"),
        }
    }

    /// Hands a connection to the worker that owns the partition of its next key. If the ring is full, it goes back to its
    /// queue and comes again.
    pub(crate) fn give_connection(&self, worker: WorkerId, connection: Box<Connection>) -> Option<Arrival> {
        match self.push_to(worker, RingItem::Connection(connection)) {
            Ok(()) => {
                self.mine.metrics.to_owner.add(1);
                None
            }
            Err(RingItem::Connection(connection)) => Some(Arrival::Back { connection, has_more: true }),
            Err(_) => unreachable!("a full ring gives back what it was given"),
        }
    }

    /// Pushes work into the ring of `worker` alone, or into its shared ring if other workers drain that too,
    /// and wakes one of them. Returns the item if the ring is full.
    fn push_to(&self, worker: WorkerId, item: RingItem<M>) -> Result<(), RingItem<M>> {
        let (ring, others) = self.ring_for(worker);
        if let Err(refused) = ring.push(item) {
            self.mine.metrics.ring_full.add(1);
            return Err(refused);
        }
        self.shared.wake_sleepers(others.with(worker).without(self.id), worker.index(), 1);
        Ok(())
    }

    fn has_room(&self, worker: WorkerId) -> bool {
        let (ring, _) = self.ring_for(worker);
        ring.len() < ring.capacity()
    }

    /// The ring for large requests of `worker`, and the other workers that drain it.
    fn ring_for(&self, worker: WorkerId) -> (&Ring<RingItem<M>>, WorkerSet) {
        let target = self.shared.worker(worker);
        let others = self.placement.assignment().drained_by[worker.index()].without(worker);
        (if others.is_empty() { &target.ring } else { &target.waiting }, others)
    }
}
