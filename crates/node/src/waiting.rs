//! The rings that workers share: what one has taken from RX queues and another may serve.

use minos_base::SizeClass;
use minos_command::{Request, Value};
use minos_engine::Mode;
use minos_net::{Poller, Progress, Ready};
use minos_proto::memcache::{self, Parsed};
use minos_sched::{Dispatch, Place, WorkerId, WorkerSet};

use crate::{
    connection::Connection,
    memcache::Lookup,
    ops::Placement,
    placement::Sizing,
    queue::{Arrival, QueueState},
    shared::{Lent, RingItem, Waiting},
    transfer::Transfer,
    visit::VISIT_REQUESTS_MAX,
    worker::Worker,
};

/// The class of a request of which nobody need know the size, or whose size cannot be known yet.
pub(crate) const UNKNOWN: SizeClass = SizeClass::MIN;

impl<M: Mode, S: Sizing, P: Poller> Worker<'_, M, S, P> {
    /// Puts a connection that has something to do where whoever takes it will serve it.
    pub(crate) fn enqueue<D: Dispatch>(&mut self, state: &mut QueueState<M, P>, event: Ready) {
        let Some(mut connection) = state.connections.lend(event.token) else {
            return state.connections.note_missed(event.token);
        };
        let class = if D::PROFILES_SIZES { self.first_class(&mut connection) } else { Some(UNKNOWN) };
        let Some(class) = class else {
            state.connections.take_back(connection);
            return;
        };
        let waiting = Waiting::Connection(Lent { connection, to_the_end: event.hangup });
        if let Err(Waiting::Connection(Lent { connection, .. })) = self.put_waiting::<D>(class, waiting) {
            // It stays where it is until there is room.
            self.mine().metrics.ring_full.add(1);
            state.connections.take_back(connection);
            state.visit_again(event.token);
        }
    }

    /// Puts something into the ring that it belongs to, and wakes somebody for it, unless the ring is full.
    pub(crate) fn put_waiting<D: Dispatch>(
        &self,
        class: SizeClass,
        waiting: Waiting<M>,
    ) -> Result<(), Waiting<M>> {
        let ring = match D::place(self.placement.plan(), self.id, class) {
            Place::Ring(ring) => ring,
            Place::Here => self.id,
        };
        let target = self.shared.worker(ring);
        let was_empty = target.waiting.is_empty();
        target.waiting.push(waiting)?;
        self.mine().metrics.queued.add(1);
        let pullers = self.placement.in_force.answers.pullers[ring.index()];
        // The first is one's own, if one takes from there.
        if !(was_empty && pullers.contains(self.id)) {
            self.shared.wake_sleepers(pullers.without(self.id), self.id.index() + 1, 1);
        }
        Ok(())
    }

    /// Wakes those who take from rings in which something waits. Whoever put it there has woken those who took from
    /// there under the plan before.
    pub(crate) fn pass_rings_on(&self) {
        for (index, owner) in self.shared.workers.iter().enumerate().filter(|(_, w)| !w.waiting.is_empty()) {
            let pullers = self.placement.in_force.answers.pullers[index];
            if pullers.is_empty() {
                owner.waker.wake();
            }
            self.shared.wake_sleepers(pullers, index, owner.waiting.len());
        }
    }

    /// Serves one of those that wait in the rings that this worker takes from.
    pub(crate) fn serve_waiting(&mut self) -> bool {
        // A large request leaves a ring that others take from when its turn has come, so that they can take it until
        // then.
        if self.large.is_runnable() && !S::RUNS_TO_COMPLETION && self.placement.shares_ring() {
            return false;
        }
        let pulls = self.placement.pulls();
        match self.take_waiting(pulls.first, pulls.then) {
            Some(waiting) => self.serve_one(waiting),
            None => return false,
        }
        true
    }

    /// Empties this worker's ring of what an earlier discipline has left there: small requests among it are not to wait
    /// for large ones.
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

    /// Takes a large request that waits for others, if there is nothing else to do and the discipline has it so.
    pub(crate) fn relieve(&mut self) -> bool {
        let rings = self.placement.relieves();
        if rings.is_empty() || self.large.is_runnable() {
            return false;
        }
        match self.take_waiting(rings, WorkerSet::EMPTY) {
            Some(waiting) => self.serve_one(waiting),
            None => return false,
        }
        self.mine().metrics.relieved.add(1);
        true
    }

    /// Gives back what is left of large requests that are others', because small ones have come.
    pub(crate) fn give_back(&mut self) {
        if self.placement.relieves().is_empty() {
            return;
        }
        while let Some(transfer) = self.large.take_runnable() {
            let home = self.placement.home(transfer.class());
            let refused = match home.filter(|&home| home != self.id) {
                Some(home) => self.give(home, transfer).err(),
                None => Some(transfer),
            };
            if let Some(transfer) = refused {
                self.large.insert(transfer, self.now);
                return;
            }
        }
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

    /// Hands a large request of a connection that was lent to this worker to the one that has its size, or serves
    /// it here.
    pub(crate) fn pass_or_serve(&mut self, transfer: Box<Transfer<M>>, home: Option<WorkerId>) {
        let refused = match home {
            Some(worker) if worker != self.id => match self.give(worker, transfer) {
                Ok(()) => return,
                Err(transfer) => transfer,
            },
            _ => transfer,
        };
        if S::RUNS_TO_COMPLETION || home.is_none() {
            self.serve_inline(refused);
        } else {
            // In slices, so that small requests do not wait for all of it.
            self.large.insert(refused, self.now);
        }
    }

    /// Gives a large request to the worker that has its size: to that worker alone, or where others may take it
    /// too. A full ring refuses.
    pub(crate) fn give(&self, worker: WorkerId, transfer: Box<Transfer<M>>) -> Result<(), Box<Transfer<M>>> {
        let (target, metrics) = (self.shared.worker(worker), &self.mine().metrics);
        let others = self.placement.in_force.answers.pullers[worker.index()].without(worker);
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
        let takers = others.with(worker).without(self.id);
        self.shared.wake_sleepers(takers, worker.index(), 1);
        Ok(())
    }

    /// Receives what a connection has sent, and looks at the size of the first request in it. There is none if
    /// nothing can be done before more comes.
    fn first_class(&mut self, connection: &mut Connection) -> Option<SizeClass> {
        if !connection.output.is_empty() || connection.closing {
            // Nothing more is read before these replies have left.
            return Some(UNKNOWN);
        }
        if connection.input.bytes().len() < connection.wanted_bytes.max(1) {
            match connection.socket.receive(&mut self.receive_buffer) {
                Progress::Bytes(received) => {
                    self.mine().counters.bytes_read.add(received as u64);
                    connection.input.append(&self.receive_buffer[..received]);
                }
                Progress::Blocked => return None,
                // Whoever serves it will see the same.
                Progress::Closed => return Some(UNKNOWN),
            }
        }
        let Parsed::Request { command, .. } = memcache::parse(connection.input.bytes(), &self.limits) else {
            return Some(UNKNOWN);
        };
        let store = &self.shared.store;
        let class = match command.request {
            Request::Store(store) => Some(SizeClass::of(match store.value {
                Value::Whole(value) => value.len() as u64,
                Value::Pending { bytes } | Value::TooLarge { bytes } => bytes,
            })),
            _ => Lookup::of(store, &command).and_then(|lookup| store.size_class(lookup.hash)),
        };
        Some(class.unwrap_or(UNKNOWN))
    }
}
