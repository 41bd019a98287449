//! The shared rings: work that one worker has taken from RX queues and another may serve.

use minos_engine::Mode;
use minos_net::{Io, Ready};
use minos_sched::{WorkerId, WorkerSet};

use super::{
    Worker,
    rings::{Lent, RingItem, Waiting},
};
use crate::{
    ops::Placement,
    tcp::{
        queue::{Arrival, QueueState},
        transfer::Transfer,
        visit::VISIT_REQUESTS_MAX,
    },
};

impl<M: Mode, I: Io> Worker<'_, M, I> {
    /// Puts a connection that has something to do into this worker's ring.
    pub(crate) fn enqueue(&mut self, state: &mut QueueState<M, I>, event: Ready) {
        let Some(connection) = state.connections.lend(event.token) else {
            return state.connections.note_missed(event.token);
        };
        let waiting = Waiting::Connection(Lent { connection, to_the_end: event.hangup });
        if let Err(Waiting::Connection(Lent { connection, .. })) = self.put_waiting(waiting) {
            // The connection stays with its queue until there is room.
            self.mine().metrics.ring_full.add(1);
            state.connections.take_back(connection);
            state.visit_again(event.token);
        }
    }

    /// Pushes work into this worker's shared ring and wakes a worker that drains it. Fails if the ring is
    /// full.
    pub(crate) fn put_waiting(&self, waiting: Waiting<M>) -> Result<(), Waiting<M>> {
        let mine = self.mine();
        let was_empty = mine.waiting.is_empty();
        mine.waiting.push(waiting)?;
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

    /// Serves one item from the rings that this worker drains.
    pub(crate) fn serve_waiting(&mut self) -> bool {
        let drains = self.placement.duty().drains;
        match self.take_waiting(drains.first, drains.then) {
            Some(waiting) => self.serve_one(waiting),
            None => return false,
        }
        true
    }

    /// Empties this worker's ring of items from an earlier design, so that small requests do not wait behind
    /// large ones.
    pub(crate) fn empty_ring(&mut self) {
        while let Some(waiting) = self.mine().waiting.pop() {
            match waiting {
                Waiting::Connection(Lent { connection, .. }) => {
                    self.send_home(connection.home, Arrival::Visited { connection, has_more: true });
                }
                other => self.serve_one(other),
            }
        }
    }

    fn serve_one(&mut self, waiting: Waiting<M>) {
        match waiting {
            Waiting::Transfer(transfer) => {
                self.mine().metrics.large_taken.add(1);
                self.large.insert(transfer, self.now);
            }
            Waiting::Connection(lent) => {
                let home = lent.connection.home;
                if let Some(arrival) = self.visit_lent(lent, VISIT_REQUESTS_MAX) {
                    self.send_home(home, arrival);
                }
            }
            Waiting::Message(message) => self.serve_message(&message),
        }
    }

    /// Takes a large request from the ring of a worker that this one relieves.
    pub(crate) fn relieve(&mut self) -> bool {
        match self.take_waiting(self.placement.duty().relieves, WorkerSet::EMPTY) {
            Some(waiting) => self.serve_one(waiting),
            None => return false,
        }
        self.mine().metrics.relieved.add(1);
        true
    }

    /// Hands runnable transfers that belong to other workers back to them; true if it handed any over.
    pub(crate) fn give_back(&mut self) -> bool {
        let mut gave = false;
        while let Some(transfer) = self.large.take_runnable() {
            let home = self.placement.home(transfer.class());
            let refused = match home.filter(|&home| home != self.id) {
                Some(home) => self.give(home, transfer).err(),
                None => Some(transfer),
            };
            if let Some(transfer) = refused {
                self.large.insert(transfer, self.now);
                break;
            }
            gave = true;
        }
        gave
    }

    fn take_waiting(&mut self, first: WorkerSet, then: WorkerSet) -> Option<Waiting<M>> {
        let mut rings = first.iter_from(self.round).chain(then.iter_from(self.round));
        let (ring, waiting) = rings.find_map(|ring| Some((ring, self.shared.worker(ring).waiting.pop()?)))?;
        let metrics = &self.mine().metrics;
        metrics.queued_taken.add(1);
        if ring != self.id {
            metrics.queued_taken_elsewhere.add(1);
            self.round = (ring.index() + 1) % self.shared.workers.len();
        }
        Some(waiting)
    }

    /// Hands a large request of a connection that was lent to this worker to the worker for its size, or
    /// serves it here.
    pub(crate) fn pass_or_serve(&mut self, transfer: Box<Transfer<M>>, home: Option<WorkerId>) {
        let Some(worker) = home else { return self.serve_inline(transfer) };
        // This worker's own requests also go through its ring, where other workers may take them.
        if let Err(refused) = self.give(worker, transfer) {
            // In slices, so that small requests do not wait for the whole transfer.
            self.large.insert(refused, self.now);
        }
    }

    /// Hands a large request to the worker for its size: into its own ring, or into its shared ring if other
    /// workers drain that too. Fails if the ring is full.
    pub(crate) fn give(&self, worker: WorkerId, transfer: Box<Transfer<M>>) -> Result<(), Box<Transfer<M>>> {
        let (target, metrics) = (self.shared.worker(worker), &self.mine().metrics);
        let others = self.placement.assignment().drained_by[worker.index()].without(worker);
        let refused = if others.is_empty() {
            target.ring.push(RingItem::Transfer(transfer)).err().map(RingItem::into_transfer)
        } else {
            target.waiting.push(Waiting::Transfer(transfer)).err().map(Waiting::into_transfer)
        };
        if let Some(transfer) = refused {
            metrics.ring_full.add(1);
            return Err(transfer);
        }
        metrics.handed_over.add(1);
        let drainers = others.with(worker).without(self.id);
        self.shared.wake_sleepers(drainers, worker.index(), 1);
        Ok(())
    }
}
