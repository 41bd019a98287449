//! RX queue polling and the hand-over of connections and large requests.

use arrayvec::ArrayVec;
use minos_base::limits::BURST_MAX;
use minos_engine::Mode;
use minos_net::Io;
use minos_sched::{Portion, WorkerId};

use super::{Worker, rings::Lent};
use crate::tcp::{
    queue::{Arrival, HeldBack, QueueState},
    visit::VISIT_REQUESTS_MAX,
};

/// Fewest connections visited in one poll of an RX queue: one from the backlog and one with a new event, so
/// that neither kind starves the other.
const VISITS_MIN: usize = 2;

/// How much of a queue is served in one poll.
#[derive(Clone, Copy)]
struct Quota {
    connections: usize,
    /// Of each connection.
    requests: usize,
    /// Messages of datagrams.
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
                self.mine().metrics.helped.add(1);
                return true;
            }
        }
        false
    }

    /// Serves an RX queue, unless another worker holds its lock.
    fn take_from(&mut self, queue: usize, quota: Quota) -> bool {
        let assignment = self.placement.assignment();
        let comers = assignment.polled_by[queue].or(assignment.helped_by[queue]);
        let is_shared = !comers.without(self.id).is_empty();
        if is_shared && !self.placement.enqueues() {
            self.serve_outside(queue, quota)
        } else {
            self.poll_queue(queue, quota)
        }
    }

    /// Polls a queue and serves or enqueues its connections and messages while it holds the queue's lock.
    fn poll_queue(&mut self, queue: usize, quota: Quota) -> bool {
        let (shared, enqueues) = (self.shared, self.placement.enqueues());
        let Some(mut state) = shared.queues[queue].state.try_lock() else { return false };
        let admitted = self.gather(&mut state, queue, quota.connections);
        let ready = std::mem::take(&mut state.ready);
        for &event in &ready {
            if enqueues {
                self.enqueue(&mut state, event);
            } else {
                self.visit(&mut state, event, quota.requests);
            }
        }
        let found = !ready.is_empty();
        state.ready = ready;
        // The lock of the queue also guards its port.
        let arrived = if enqueues {
            self.enqueue_messages(queue, quota.messages)
        } else {
            self.poll_port(queue, quota.messages)
        };
        shared.queues[queue].note_left_over(&mut state);
        drop(state);
        if found && shared.queues[queue].has_silent_work() {
            // More is left than one poll could take.
            self.call_helper(queue);
        }
        found | admitted | arrived
    }

    /// Takes connections out of a queue and serves them without its lock, so that a preempted owner or helper
    /// blocks no one. Connections not yet served wait in this worker's `lent` ring, where helpers take them.
    fn serve_outside(&mut self, queue: usize, quota: Quota) -> bool {
        let (shared, lent) = (self.shared, &self.mine().lent);
        let Some(mut state) = shared.queues[queue].state.try_lock() else { return false };
        let admitted = self.gather(&mut state, queue, quota.connections);
        let ready = std::mem::take(&mut state.ready);
        for &event in &ready {
            let Some(connection) = state.connections.lend(event.token) else {
                state.connections.note_missed(event.token);
                continue;
            };
            // The ring has room for every connection of one poll.
            if let Err(refused) = lent.push(Lent { connection, to_the_end: event.hangup }) {
                state.connections.take_back(refused.connection);
                state.visit_again(event.token);
            }
        }
        let found = !ready.is_empty();
        state.ready = ready;
        let arrived = self.poll_port(queue, quota.messages);
        shared.queues[queue].note_left_over(&mut state);
        drop(state);
        if lent.len() > 1 {
            let borrowers = self.placement.assignment().borrowed_by[self.id.index()];
            shared.wake_sleepers(borrowers, self.id.index() + 1, 1);
        }
        let mut visited = ArrayVec::new();
        while let Some(lent) = lent.pop() {
            visited.extend(self.visit_lent(lent, quota.requests));
        }
        self.bring_back(queue, visited);
        if found {
            self.call_for_left_over(queue);
        }
        found | admitted | arrived
    }

    /// Serves a connection that waits in the `lent` ring of `lender`, if the plan allows it.
    fn take_lent(&mut self, lender: WorkerId, quota: Quota) -> bool {
        if !self.placement.duty().borrows_from.contains(lender) {
            return false;
        }
        let Some(lent) = self.shared.worker(lender).lent.pop() else { return false };
        self.mine().metrics.lent_taken.add(1);
        let home = lent.connection.home;
        let visited = self.visit_lent(lent, quota.requests).into_iter().collect();
        self.bring_back(home, visited);
        self.call_for_left_over(home);
        true
    }

    /// Wakes other workers that serve a queue if this worker has left work in it.
    fn call_for_left_over(&self, queue: usize) {
        if queue != self.id.index() {
            self.pass_on(queue);
        } else if self.shared.queues[queue].has_silent_work() {
            self.call_helper(queue);
        }
    }

    /// Returns connections to their queue.
    fn bring_back(&self, queue: usize, visited: ArrayVec<Arrival, BURST_MAX>) {
        if visited.is_empty() {
            return;
        }
        let shared = self.shared;
        let Some(mut state) = shared.queues[queue].state.try_lock() else {
            return visited.into_iter().for_each(|arrival| self.send_home(queue, arrival));
        };
        visited.into_iter().for_each(|arrival| state.take_in(arrival));
        shared.queues[queue].note_left_over(&mut state);
    }

    /// Fills `ready` of a queue; true if it also admitted arrivals or retried held-back transfers.
    fn gather(&mut self, state: &mut QueueState<M, I>, queue: usize, connections: usize) -> bool {
        let shared = self.shared;
        let admitted = state.admit(&shared.queues[queue].arrivals, BURST_MAX);
        let released = self.release_held_back(state);
        if let Err(error) = state.gather(connections) {
            tracing::error!(%error, queue, "cannot poll");
            shared.stop.request();
        }
        if !state.ready.is_empty() {
            self.count_visits(state.ready.len() as u64, queue);
        }
        admitted | released
    }

    /// Wakes one sleeping helper of a queue.
    pub(crate) fn call_helper(&self, queue: usize) {
        let helpers = self.placement.assignment().helped_by[queue].without(self.id);
        self.shared.wake_sleepers(helpers, queue, 1);
    }

    fn count_visits(&self, visits: u64, queue: usize) {
        let metrics = &self.mine().metrics;
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
            self.shared.wake_comers(self.placement.assignment(), queue);
        }
    }

    /// Retries the hand-over of held-back transfers; true if there were any.
    fn release_held_back(&mut self, state: &mut QueueState<M, I>) -> bool {
        let count = state.held_back.len();
        for _ in 0..count {
            let Some(held) = state.held_back.pop_front() else { break };
            self.hand_over(state, held);
        }
        count > 0
    }

    /// Returns a connection to its RX queue. The build that serves as the control of the role change tests
    /// loses it here.
    pub(crate) fn send_home(&self, queue: usize, mut arrival: Arrival) {
        if cfg!(minos_no_hand_back) {
            return;
        }
        // The ring has room for every connection of the server, so the first push succeeds. A retry is needed
        // only while another worker is between two steps of its own push.
        let is_done = matches!(arrival, Arrival::Visited { has_more: false, .. });
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
            false => self.shared.wake_comers(assignment, queue),
        }
    }

    /// Hands a transfer to its worker, or holds it back until there is room in that worker's ring.
    pub(crate) fn hand_over(&self, state: &mut QueueState<M, I>, held: HeldBack<M>) {
        if let Err(transfer) = self.give(held.worker, held.transfer) {
            state.held_back.push_back(HeldBack { transfer, ..held });
        }
    }
}
