//! RX queue polling and the hand-over of connections and large requests.

use minos_base::{is_left_out, limits::BURST_MAX};
use minos_engine::Mode;
use minos_net::Io;
use minos_sched::{Portion, WorkerId};

use super::{Worker, rings::RingItem};
use crate::tcp::{
    connection::Connection,
    queue::{Arrival, QueueState, VISIT_REQUESTS_MAX},
};

/// Fewest connections visited in one poll of an RX queue: one from the backlog and one with a new event, so
/// that neither kind starves the other.
const VISITS_MIN: usize = 2;

/// Messages of datagrams that are received in one poll of a queue that several workers serve. Each may be a
/// train.
const LOOK_AHEAD_MESSAGES: usize = 8;

/// How much of a queue is served in one poll.
#[derive(Clone, Copy)]
struct Quota {
    connections: usize,
    /// Of each connection.
    requests: usize,
    messages: usize,
}

impl Quota {
    /// The quota of a worker that helps.
    const fn of_helper(portion: Portion) -> Self {
        match portion {
            Portion::Request => Self { connections: VISITS_MIN, requests: 1, messages: 1 },
            Portion::Connection => {
                Self { connections: VISITS_MIN, requests: VISIT_REQUESTS_MAX, messages: 1 }
            }
            Portion::Burst => Self::of(BURST_MAX),
        }
    }

    /// Up to `connections` connections, and as many messages.
    const fn of(connections: usize) -> Self {
        Self { connections, requests: VISIT_REQUESTS_MAX, messages: connections }
    }
}

impl<M: Mode, I: Io> Worker<'_, M, I> {
    /// Serves the RX queues that this worker polls: under Minos its own and, B/n_s at a time, those of the
    /// large workers (Minos §3.1).
    pub(crate) fn take_arrivals(&mut self) -> bool {
        if self.placement.duty().polls.is_empty() {
            self.pass_on(self.id.index());
            return false;
        }
        let mut found = false;
        for index in 0..self.placement.duty().polls.len() {
            let share = self.placement.duty().polls[index];
            found |= self.take_from(share.queue.index(), Quota::of(share.most.max(VISITS_MIN)));
        }
        found
    }

    /// Serves RX queues of other workers, as far as the design allows; true if there was work.
    pub(crate) fn help(&mut self) -> bool {
        let Some(help) = self.placement.duty().help else { return false };
        let quota = Quota::of_helper(help.portion);
        for queue in help.queues.iter_from(self.round) {
            if self.take_lent(queue, quota) || self.take_from(queue.index(), quota) {
                self.round = (queue.index() + 1) % self.shared.workers.len();
                self.mine.metrics.helped.add(1);
                return true;
            }
        }
        false
    }

    /// Takes work out of an RX queue, unless another worker holds its lock, and serves it or passes it on.
    ///
    /// The lock is released before anything is served, so that a preempted worker stops nobody: all but the
    /// first connection wait in this worker's `lent` ring, from which helpers take them.
    fn take_from(&mut self, queue: usize, quota: Quota) -> bool {
        let shared = self.shared;
        let Some(mut state) = shared.queues[queue].state.try_lock() else { return false };
        let admitted = state.admit(&shared.queues[queue].arrivals, BURST_MAX);
        state.answer(&shared.queues[queue].calls);
        let visits = self.take_connections(&mut state, queue, quota.connections);
        // The lock also guards the queue's port.
        let arrived = self.receive_messages(queue, self.look_ahead(queue, quota.messages));
        shared.queues[queue].note_left_over(&mut state);
        drop(state);
        if arrived {
            if self.placement.enqueues() { self.enqueue_messages(queue) } else { self.serve_messages(queue) }
        }
        if visits > 0 {
            self.count_visits(visits as u64, queue);
            self.serve_lent(quota.requests);
            self.pass_on(queue);
        }
        visits > 0 || admitted || arrived
    }

    /// Takes connections that have something to do out of a queue, for this worker or its ring. Returns their
    /// number.
    fn take_connections(&mut self, state: &mut QueueState<I>, queue: usize, connections_max: usize) -> usize {
        if let Err(error) = state.gather(connections_max) {
            tracing::error!(%error, queue, "cannot poll");
            self.shared.stop.request();
        }
        let ready = std::mem::take(&mut state.ready);
        for &event in &ready {
            let Some(mut connection) = state.connections.lend(event.token) else { continue };
            (connection.hangup, connection.is_drained) = (event.hangup, false);
            if self.placement.enqueues() {
                self.enqueue(connection, state);
            } else {
                self.keep(connection);
            }
        }
        let visits = ready.len();
        state.ready = ready;
        visits
    }

    /// Puts a connection into the ring in which it waits for its visit, or back into its queue if the ring is
    /// full.
    fn enqueue(&self, connection: Box<Connection>, state: &mut QueueState<I>) {
        match self.put_waiting(RingItem::Connection(connection)) {
            Ok(()) => {}
            Err(RingItem::Connection(connection)) => {
                self.mine.metrics.ring_full.add(1);
                state.take_back(connection);
            }
            Err(_) => unreachable!("a full ring gives back what it was given"),
        }
    }

    /// Keeps a connection for its visit: the first for this worker, which visits it at once, and the others
    /// for whoever comes first.
    fn keep(&mut self, connection: Box<Connection>) {
        if self.taken.is_empty() {
            return self.taken.push(connection);
        }
        // A helper that is preempted while it takes a connection can make the ring look full.
        if let Err(refused) = self.mine.lent.push(connection) {
            self.taken.push(refused);
        }
    }

    /// Serves the connections that this worker has taken out of a queue, as far as no helper takes them.
    fn serve_lent(&mut self, requests_max: usize) {
        let lent = &self.mine.lent;
        if !lent.is_empty() {
            let borrowers = self.placement.assignment().borrowed_by[self.id.index()];
            self.shared.wake_sleepers(borrowers, self.id.index() + 1, 1);
        }
        while let Some(connection) = self.taken.pop().or_else(|| lent.pop()) {
            self.visit_and_return(connection, requests_max);
        }
    }

    /// Serves a connection that waits in the `lent` ring of `lender`, if the plan allows it.
    fn take_lent(&mut self, lender: WorkerId, quota: Quota) -> bool {
        if !self.placement.duty().borrows_from.contains(lender) {
            return false;
        }
        let Some(connection) = self.shared.worker(lender).lent.pop() else { return false };
        self.mine.metrics.lent_taken.add(1);
        let home = connection.home;
        self.visit_and_return(connection, quota.requests);
        self.pass_on(home);
        true
    }

    /// Messages to receive in one poll of `queue`. A full ring leaves them in the socket. Those received wait
    /// for this worker alone, so they are few if others serve the queue too.
    fn look_ahead(&self, queue: usize, messages_max: usize) -> usize {
        if self.placement.enqueues() {
            let waiting = &self.mine.waiting;
            return messages_max.min(waiting.capacity() - waiting.len());
        }
        let assignment = self.placement.assignment();
        let others = assignment.polled_by[queue].or(assignment.helped_by[queue]).without(self.id);
        if others.is_empty() { messages_max } else { messages_max.min(LOOK_AHEAD_MESSAGES) }
    }

    /// Serves a connection that was lent to this worker, and returns it to its queue unless it goes on with a
    /// large request.
    pub(crate) fn visit_and_return(&mut self, connection: Box<Connection>, requests_max: usize) {
        let home = connection.home;
        let Some(arrival) = self.visit(connection, requests_max) else { return };
        let queue = &self.shared.queues[home];
        let Some(mut state) = queue.state.try_lock() else { return self.send_home(home, arrival) };
        state.take_in(arrival);
        queue.note_left_over(&mut state);
    }

    /// Serves a connection that waited elsewhere than in its queue, which others may have to serve now.
    pub(crate) fn visit_apart(&mut self, connection: Box<Connection>) {
        let home = connection.home;
        self.visit_and_return(connection, VISIT_REQUESTS_MAX);
        if home != self.id.index() {
            self.pass_on(home);
        }
    }

    fn count_visits(&self, visits: u64, queue: usize) {
        let metrics = &self.mine.metrics;
        metrics.bursts.add(1);
        metrics.visits.add(visits);
        if queue != self.id.index() {
            metrics.visits_elsewhere.add(visits);
        }
    }

    /// Wakes a worker that polls `queue`, or else one that helps with it, if the queue has work that no
    /// descriptor reports.
    pub(crate) fn pass_on(&self, queue: usize) {
        if self.shared.queues[queue].has_silent_work() {
            self.shared.wake_server(self.placement.assignment(), queue);
        }
    }

    /// Returns a connection to its RX queue. The control `hand-back` of the role change tests loses it here.
    pub(crate) fn send_home(&self, queue: usize, mut arrival: Arrival) {
        if is_left_out("hand-back") {
            return;
        }
        // The ring has room for every connection of the server, so the first push succeeds. A retry is needed
        // only while another worker is between two steps of its own push.
        let is_done = matches!(arrival, Arrival::Back { has_more: false, .. });
        while let Err(refused) = self.shared.queues[queue].arrivals.push(arrival) {
            arrival = refused;
            std::thread::yield_now();
        }
        let assignment = self.placement.assignment();
        match queue == self.id.index() {
            // This worker polls its own queue before it sleeps, or wakes another that polls it.
            true => {}
            // The queue's pollers may have missed an event of this connection; helpers need not come for it.
            false if is_done => {
                self.shared.wake_pollers(assignment, queue);
            }
            false => self.shared.wake_server(assignment, queue),
        }
    }
}
