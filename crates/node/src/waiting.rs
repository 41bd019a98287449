//! The rings that workers share: what one has taken from RX queues and another may serve.

use minos_base::SizeClass;
use minos_command::{Request, Value};
use minos_engine::Mode;
use minos_net::{Poller, Progress, Ready};
use minos_proto::memcache::{self, Parsed};
use minos_sched::{Dispatch, Place, WorkerId};

use crate::{
    connection::Connection,
    execute::Lookup,
    placement::Sizing,
    queue::QueueState,
    shared::{RingItem, Waiting},
    transfer::Transfer,
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
        let waiting = Waiting::Connection { connection, to_the_end: event.hangup };
        if let Err(Waiting::Connection { connection, .. }) = self.put_waiting::<D>(class, waiting) {
            // It stays where it is until there is room.
            self.mine().metrics.ring_full.add(1);
            state.connections.take_back(connection);
            state.visit_again(event.token);
        }
    }

    /// Puts something into the ring that it belongs to, and wakes somebody for it, unless the ring is full.
    pub(crate) fn put_waiting<D: Dispatch>(&self, class: SizeClass, waiting: Waiting) -> Result<(), Waiting> {
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
        let Some(waiting) = self.take_waiting() else { return false };
        match waiting {
            Waiting::Connection { connection, to_the_end } => self.visit_lent(connection, to_the_end),
            Waiting::Message(message) => self.serve_message(&message),
        }
        true
    }

    fn take_waiting(&mut self) -> Option<Waiting> {
        let (pulls, round) = (self.placement.pulls(), self.round);
        let mut rings = pulls.first.iter_from(round).chain(pulls.then.iter_from(round));
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
        let Some(worker) = home.filter(|&worker| worker != self.id) else {
            return self.serve_inline(transfer);
        };
        let target = self.shared.worker(worker);
        match target.ring.push(RingItem::Transfer(transfer)) {
            Ok(()) => {
                self.mine().metrics.handed_over.add(1);
                target.waker.wake();
            }
            Err(RingItem::Transfer(transfer)) => {
                self.mine().metrics.ring_full.add(1);
                self.serve_inline(transfer);
            }
            Err(RingItem::Job(_)) => unreachable!("a ring gives back what it was given"),
        }
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
