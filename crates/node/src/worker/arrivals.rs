//! What a worker takes from RX queues, its own and others', and what it hands over.

use arrayvec::ArrayVec;
use minos_base::limits::BURST_MAX;
use minos_engine::Mode;
use minos_net::Poller;
use minos_sched::{Portion, WorkerId};

use super::{Worker, rings::Lent};
use crate::tcp::{
    queue::{Arrival, HeldBack, QueueState},
    visit::VISIT_REQUESTS_MAX,
};

/// Fewest connections visited in one look at an RX queue: one that is left over and one that has something
/// new, or one kind would keep the other waiting.
const VISITS_MIN: usize = 2;

/// How much of a queue is served in one look at it.
#[derive(Clone, Copy)]
struct Quota {
    connections: usize,
    /// Of each connection.
    requests: usize,
    /// Messages of datagrams.
    messages: usize,
}

impl Quota {
    /// For a worker that helps.
    const fn of_helper(portion: Portion) -> Self {
        match portion {
            Portion::Request => Self { connections: VISITS_MIN, requests: 1, messages: 1 },
            Portion::Connection => {
                Self { connections: VISITS_MIN, requests: VISIT_REQUESTS_MAX, messages: 1 }
            }
            Portion::Burst => Self::of(BURST_MAX),
        }
    }

    /// So many connections, and as many messages.
    const fn of(connections: usize) -> Self {
        Self { connections, requests: VISIT_REQUESTS_MAX, messages: connections }
    }
}

impl<M: Mode, P: Poller> Worker<'_, M, P> {
    /// Takes from the RX queues that this worker polls: under Minos its own and, B/n_s at a time, those of the large
    /// workers (Minos §3.1).
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

    /// Takes from RX queues of others, as far as the design has it.
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

    /// Takes from an RX queue, unless another worker does so at the moment.
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

    /// Takes a part of what has arrived at a queue and serves or enqueues it under the queue's lock.
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
        // The lock of the queue is that of its port too.
        let arrived = if enqueues {
            self.enqueue_messages(queue, quota.messages)
        } else {
            self.poll_port(queue, quota.messages)
        };
        shared.queues[queue].note_left_over(&mut state);
        drop(state);
        if found && shared.queues[queue].has_silent_work() {
            // More is left than one look could take.
            self.call_helper(queue);
        }
        found | admitted | arrived
    }

    /// Takes a part of what has arrived at a queue out of it and serves it without the queue's lock, so that helper and
    /// owner do not wait for each other: either may lose its processor any time. Who helps takes of it what this worker has
    /// not come to.
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
            // There is room for all that one look takes.
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

    /// Serves a connection that `lender` has taken from an RX queue and not come to, if this worker may.
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

    /// Calls those who come for a queue that this worker has looked at, if more is left than it could take.
    fn call_for_left_over(&self, queue: usize) {
        if queue != self.id.index() {
            self.pass_on(queue);
        } else if self.shared.queues[queue].has_silent_work() {
            self.call_helper(queue);
        }
    }

    /// Brings connections back to their queue.
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

    /// Fills `ready` of a queue; says whether anything else came of the look.
    fn gather(&mut self, state: &mut QueueState<M, P>, queue: usize, connections: usize) -> bool {
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

    /// Wakes somebody who helps with a queue, if one sleeps.
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

    /// Wakes those whose `queue` is to poll, if there is work in it that no descriptor tells of.
    pub(crate) fn pass_on(&self, queue: usize) {
        if self.shared.queues[queue].has_silent_work() {
            self.shared.wake_comers(self.placement.assignment(), queue);
        }
    }

    /// Tries again to hand over what had to stay; says whether there was any.
    fn release_held_back(&mut self, state: &mut QueueState<M, P>) -> bool {
        let count = state.held_back.len();
        for _ in 0..count {
            let Some(held) = state.held_back.pop_front() else { break };
            self.hand_over(state, held);
        }
        count > 0
    }

    /// Gives a connection back to its RX queue. In the build that is the control of the tests of role changes, it is
    /// lost here.
    pub(crate) fn send_home(&self, queue: usize, mut arrival: Arrival) {
        if cfg!(minos_no_hand_back) {
            return;
        }
        // The ring has room for every connection of the server, so that this ends at the first try; a
        // second can only be needed while another worker is between two steps of its own push.
        let is_done = matches!(arrival, Arrival::Visited { has_more: false, .. });
        while let Err(refused) = self.shared.queues[queue].arrivals.push(arrival) {
            arrival = refused;
            std::thread::yield_now();
        }
        let assignment = self.placement.assignment();
        match queue == self.id.index() {
            // This worker looks at its own queue before it sleeps, or passes it on.
            true => {}
            // Who polls the queue may have missed something about it; nobody else need come for it.
            false if is_done => {
                self.shared.wake_pollers(assignment, queue);
            }
            false => self.shared.wake_comers(assignment, queue),
        }
    }

    /// Hands a transfer to its worker, or holds it back until there is room in that worker's ring.
    pub(crate) fn hand_over(&self, state: &mut QueueState<M, P>, held: HeldBack<M>) {
        if let Err(transfer) = self.give(held.worker, held.transfer) {
            state.held_back.push_back(HeldBack { transfer, ..held });
        }
    }
}
