//! A worker's turns: the steps that [`next_step`] chooses, and the time that they take.

#[cfg(test)]
mod lockstep;

use minos_base::limits::{BURST_MAX, PACKET_BYTES};
use minos_sched::{
    Drains, LargeOrder, Place, Portion, Seen, Step, Threshold, WorkerId, WorkerSet, next_step,
};

use super::{Event, Server};
use crate::{
    Ticks,
    dispatch::{
        client::Part,
        link::packets,
        worker::{Doing, Worker},
        workload::{Reply, Request},
    },
};

impl Server<'_> {
    /// Ends a worker's activity and begins the next one.
    pub(super) fn ready(&mut self, worker: WorkerId) {
        if self.finish(worker) {
            self.go_on(worker);
        }
    }

    /// Ends a worker's activity; false if it is not complete.
    fn finish(&mut self, worker: WorkerId) -> bool {
        match self.workers[worker.index()].doing {
            Doing::Looked => true,
            Doing::Served { request, bytes, bytes_left, in_slices } => {
                let flow = self.tx_queue(worker, &request);
                if request.replied && !self.has_room(flow, bytes) {
                    self.tx_full += 1;
                    self.blocked[flow].push_back((worker, self.calendar.now()));
                    return false;
                }
                self.send_reply(worker, &request, bytes, bytes_left);
                if bytes_left == 0 {
                    return true;
                }
                let request = Request { reply: Some(Reply { bytes_left, flow }), ..request };
                if in_slices {
                    self.workers[worker.index()].held.push_front(request);
                } else {
                    self.reply(worker, request, bytes_left, 0, false);
                }
                in_slices
            }
            Doing::Passed { request, ring } => self.pass(worker, request, ring),
        }
    }

    /// Sends a part of a reply.
    fn send_reply(&mut self, worker: WorkerId, request: &Request, bytes: u64, bytes_left: u64) {
        if request.replied {
            let part = Part { request: *request, value_bytes: bytes, is_last: bytes_left == 0 };
            let begun = self.outbound.send(self.tx_queue(worker, request), bytes, Some(part));
            self.schedule(begun, Event::Sent);
        } else if bytes_left == 0 {
            self.count(request);
        }
        if bytes_left == 0 {
            self.workers[worker.index()].load.requests += 1;
            self.connections.returns(request).into_iter().for_each(|held| self.queue_up(held));
        }
    }

    /// Puts a request into a ring and wakes a worker for it; false if the ring is full and the worker
    /// retries.
    fn pass(&mut self, worker: WorkerId, request: Request, ring: WorkerId) -> bool {
        if self.rings[ring.index()].len() < self.spec.ring_max {
            self.rings[ring.index()].push_back(request);
            if self.assignment.promotes == Some(ring) {
                self.policy.promote_standby();
                self.reassign();
            }
            self.wake_drainer(ring);
            return true;
        }
        self.ring_full += 1;
        // A worker's own ring does not drain while the worker waits for it.
        if ring == worker && self.duty(worker).in_slices {
            self.workers[worker.index()].held.push_back(request);
            return true;
        }
        if self.duty(worker).drains.first.contains(ring) {
            self.serve(worker, request, 0, Serving::default());
        } else {
            self.after(worker, self.costs.ring_poll, Doing::Passed { request, ring });
        }
        false
    }

    fn wake_drainer(&mut self, ring: WorkerId) {
        let comers = self.idle.and(self.assignment.drained_by[ring.index()]);
        self.wake_one(comers, ring);
    }

    /// Begins what `worker` has to do next, if there is anything.
    fn go_on(&mut self, worker: WorkerId) {
        if self.place_next(worker) {
            return;
        }
        loop {
            match self.step(worker) {
                // Giving requests back takes no time.
                Some((step, found)) if found && step != Step::GiveBack => return,
                Some(_) => {}
                None if self.end_turn(worker) => {}
                None => break,
            }
        }
        self.workers[worker.index()].was_idle = true;
        self.idle = self.idle.with(worker);
    }

    /// Begins to place the next of the requests that `worker` has dequeued; false if there is none.
    fn place_next(&mut self, worker: WorkerId) -> bool {
        while let Some(request) = self.workers[worker.index()].hands.pop_front() {
            if let Some(request) = self.connections.hold(request) {
                self.place(worker, request, 0);
                return true;
            }
        }
        false
    }

    /// Takes the next step of a turn. Returns it, and true if it found something; `None` at the end of the
    /// turn.
    fn step(&mut self, worker: WorkerId) -> Option<(Step, bool)> {
        let mut seen = self.seen(worker);
        let step = next_step(self.duty(worker), &seen)?;
        let found = self.take(worker, step);
        seen.note(step, found);
        self.workers[worker.index()].seen = Some(seen);
        Some((step, found))
    }

    /// Ends a turn; true if there was work in it.
    fn end_turn(&mut self, worker: WorkerId) -> bool {
        self.workers[worker.index()].seen.take().is_some_and(|seen| seen.worked)
    }

    /// The state that `worker` has seen in its turn. Begins a turn if none is under way.
    fn seen(&self, worker: WorkerId) -> Seen {
        let Worker { seen, held, .. } = &self.workers[worker.index()];
        let begin = || Seen { ring_is_empty: self.rings[worker.index()].is_empty(), ..Seen::default() };
        Seen { holds_large: !held.is_empty(), ..seen.unwrap_or_else(begin) }
    }

    /// Takes a step of a turn; true if it found something, which takes time unless it was given back.
    fn take(&mut self, worker: WorkerId, step: Step) -> bool {
        match step {
            Step::Poll => self.poll(worker),
            Step::GiveBack => self.give_back(worker),
            Step::Collect => self.collect(worker),
            Step::Draw => self.draw(worker),
            Step::Slice => self.slice(worker),
            Step::Help => self.help(worker),
            Step::Relieve => self.relieve(worker),
        }
    }

    /// Takes from the RX queues that this worker polls.
    fn poll(&mut self, worker: WorkerId) -> bool {
        let mut ticks = 0;
        for index in 0..self.duty(worker).polls.len() {
            let share = self.duty(worker).polls[index];
            ticks += self.costs.poll + self.dequeue(worker, share.queue, share.most);
        }
        if self.workers[worker.index()].hands.len() > 1 {
            let borrowers = self.idle.and(self.assignment.borrowed_by[worker.index()]);
            self.wake_one(borrowers, worker);
        }
        self.look_at_hands(worker, ticks)
    }

    /// Returns other workers' large requests to their rings; true if there was any.
    fn give_back(&mut self, worker: WorkerId) -> bool {
        let mut gave = false;
        while let Some(request) = self.workers[worker.index()].held.pop_front() {
            let home = self.policy.plan().worker_for(request.class, worker).filter(|&home| home != worker);
            let Some(ring) = home.filter(|ring| self.rings[ring.index()].len() < self.spec.ring_max) else {
                self.workers[worker.index()].held.push_front(request);
                break;
            };
            self.rings[ring.index()].push_back(Request { passed_by: worker.0 as u8, ..request });
            self.wake_drainer(ring);
            gave = true;
        }
        gave
    }

    /// Collects the large requests that were handed to this worker alone.
    fn collect(&mut self, worker: WorkerId) -> bool {
        if !self.duty(worker).collects() {
            return false;
        }
        let mut ticks = 0;
        for _ in 0..BURST_MAX {
            let Some((request, time)) = self.take_waiting(worker, WorkerSet::one(worker), WorkerSet::EMPTY)
            else {
                break;
            };
            ticks += time;
            self.workers[worker.index()].held.push_back(request);
        }
        if ticks > 0 {
            self.after(worker, ticks, Doing::Looked);
        }
        ticks > 0
    }

    /// Takes one request from the rings that this worker drains.
    fn draw(&mut self, worker: WorkerId) -> bool {
        let duty = self.duty(worker);
        let Drains { first, then } = duty.drains;
        let first = if duty.collects() { first.without(worker) } else { first };
        self.take_up(worker, first, then)
    }

    /// Takes a large request of another worker, unless large replies already wait for the link: more workers
    /// would not speed those up.
    fn relieve(&mut self, worker: WorkerId) -> bool {
        let workers = self.workers.len();
        let link_is_behind = self.outbound.is_behind(workers..2 * workers, self.spec.slice_bytes);
        !link_is_behind && self.take_up(worker, self.duty(worker).relieves, WorkerSet::EMPTY)
    }

    /// Takes a request from these rings and begins to serve it, or holds it to serve it in slices.
    fn take_up(&mut self, worker: WorkerId, first: WorkerSet, then: WorkerSet) -> bool {
        let Some((request, ticks)) = self.take_waiting(worker, first, then) else { return false };
        if self.duty(worker).in_slices {
            self.workers[worker.index()].held.push_back(request);
            self.after(worker, ticks, Doing::Looked);
        } else {
            self.serve(worker, request, ticks, Serving::default());
        }
        true
    }

    /// Takes a request out of one of these rings. Returns it with the time that takes.
    fn take_waiting(
        &mut self,
        worker: WorkerId,
        first: WorkerSet,
        then: WorkerSet,
    ) -> Option<(Request, Ticks)> {
        let turn = self.workers[worker.index()].turn;
        let mut ticks = 0;
        for ring in first.iter_from(turn).chain(then.iter_from(turn)) {
            ticks += self.costs.ring_poll;
            if let Some(request) = self.rings[ring.index()].pop_front() {
                let state = &mut self.workers[worker.index()];
                state.owes_send = true;
                if ring != worker {
                    state.turn = (ring.index() + 1) % self.rings.len();
                }
                // Requests that the worker put there itself are in its caches.
                if u16::from(request.passed_by) != worker.0 {
                    ticks += self.costs.hand_off;
                }
                return Some((request, ticks));
            }
        }
        None
    }

    /// Serves a slice of a large request.
    fn slice(&mut self, worker: WorkerId) -> bool {
        let held = &self.workers[worker.index()].held;
        let place = match self.spec.large_order {
            LargeOrder::Fifo => 0,
            LargeOrder::Shortest => {
                (0..held.len()).min_by_key(|&place| held[place].bytes_left()).unwrap_or_default()
            }
        };
        let Some(request) = self.workers[worker.index()].held.remove(place) else { return false };
        match request.reply {
            Some(reply) => self.reply(worker, request, reply.bytes_left, 0, true),
            None => self.serve(worker, request, 0, Serving { is_found: false, in_slices: true }),
        }
        true
    }

    /// Takes requests from RX queues of others, or one that another has dequeued.
    fn help(&mut self, worker: WorkerId) -> bool {
        let Some(help) = self.duty(worker).help else { return false };
        let most = if help.portion == Portion::Burst { BURST_MAX } else { 1 };
        let mut ticks = 0;
        for queue in help.queues.iter_from(self.workers[worker.index()].turn) {
            ticks += self.costs.poll;
            let found = self.borrow(worker, queue, ticks) || {
                ticks += self.dequeue(worker, queue, most);
                self.look_at_hands(worker, ticks)
            };
            if found {
                self.workers[worker.index()].turn = (queue.index() + 1) % self.workers.len();
                return true;
            }
        }
        false
    }

    /// Serves a request that `lender` has dequeued and not placed yet, if any. It cannot be taken twice.
    fn borrow(&mut self, worker: WorkerId, lender: WorkerId, ticks: Ticks) -> bool {
        if !self.duty(worker).borrows_from.contains(lender) {
            return false;
        }
        let Some(request) = self.workers[lender.index()].hands.pop_front() else { return false };
        let Some(request) = self.connections.hold(request) else { return false };
        self.workers[worker.index()].owes_send = true;
        self.place(worker, request, ticks + self.costs.hand_off);
        true
    }

    /// Dequeues up to `most` requests of an RX queue into `hands`. Returns the time that takes.
    fn dequeue(&mut self, worker: WorkerId, queue: WorkerId, most: usize) -> Ticks {
        let (from, state) = (&mut self.queues[queue.index()], &mut self.workers[worker.index()]);
        let taken = most.min(from.len());
        if taken == 0 {
            return 0;
        }
        let mut ticks = self.costs.receive_call();
        state.owes_send = true;
        for request in from.drain(..taken) {
            ticks += self.costs.receive(&request);
            state.load.packets += packets(request.bytes_in());
            state.hands.push_back(request);
        }
        ticks
    }

    fn look_at_hands(&mut self, worker: WorkerId, ticks: Ticks) -> bool {
        let found = !self.workers[worker.index()].hands.is_empty();
        if found {
            self.after(worker, ticks, Doing::Looked);
        }
        found
    }

    /// Serves a request from an RX queue, or passes it on, `ticks` from now.
    fn place(&mut self, worker: WorkerId, request: Request, mut ticks: Ticks) {
        let counts_sizes = self.spec.design.counts_sizes();
        if counts_sizes {
            self.sizes.record(request.class, 1);
            ticks += self.costs.profile;
            if request.is_get {
                ticks += self.costs.lookup;
            }
        }
        match self.duty(worker).place(self.policy.plan(), request.class) {
            Place::Here => {
                let is_found = counts_sizes && request.is_get;
                self.serve(worker, request, ticks, Serving { is_found, in_slices: false });
            }
            Place::Ring(ring) => {
                self.connections.leaves(&request);
                let is_own = self.duty(worker).drains.first.contains(ring);
                ticks += if is_own { self.costs.ring_poll } else { self.costs.hand_off };
                let request = Request { passed_by: worker.0 as u8, ..request };
                self.after(worker, ticks, Doing::Passed { request, ring });
            }
        }
    }

    /// Serves `request`, `ticks` from now.
    fn serve(&mut self, worker: WorkerId, mut request: Request, ticks: Ticks, serving: Serving) {
        request.began = self.calendar.now();
        request.after_idle = std::mem::take(&mut self.workers[worker.index()].was_idle);
        let lookup = if serving.is_found { 0 } else { self.costs.lookup };
        // All replies to what was received together leave together.
        let owes_send = std::mem::take(&mut self.workers[worker.index()].owes_send);
        let send = if owes_send { self.costs.send_call() } else { 0 };
        let ticks = ticks + lookup + self.costs.execute(&request) + send;
        if self.is_moved(&request) {
            self.workers[worker.index()].moving += self.costs.take_in(&request);
        }
        self.reply(worker, request, request.bytes_out(), ticks, serving.in_slices);
    }

    /// True if the value is above the threshold: its bytes count as moved.
    fn is_moved(&self, request: &Request) -> bool {
        match self.spec.threshold {
            Threshold::Static(bytes) => u64::from(request.value_bytes) > bytes,
            Threshold::Auto => request.large,
        }
    }

    /// Makes the next packets of a reply.
    fn reply(&mut self, worker: WorkerId, request: Request, bytes_left: u64, ticks: Ticks, in_slices: bool) {
        let most = self.spec.slice_bytes;
        let slice = if in_slices { self.duty(worker).slice_bytes(most) } else { most };
        let bytes = bytes_left.min(slice).min(self.spec.tx_max * PACKET_BYTES);
        // A slice of a value is sent by a call of its own, after the reply's head.
        let call = if request.is_long() { self.costs.send_call() } else { 0 };
        let slice = if in_slices { self.costs.per_slice } else { 0 };
        let moving = slice + self.costs.send(&request, bytes);
        let ticks = ticks + call + moving;
        let is_moved = self.is_moved(&request);
        let state = &mut self.workers[worker.index()];
        state.moving += if is_moved { moving } else { 0 };
        state.load.packets += packets(bytes);
        let bytes_left = bytes_left - bytes;
        self.after(worker, ticks, Doing::Served { request, bytes, bytes_left, in_slices });
    }
}

/// How a request is served.
#[derive(Clone, Copy, Default)]
struct Serving {
    /// Its item was looked up already.
    is_found: bool,
    /// The worker looks at its queues and rings between two slices of the reply.
    in_slices: bool,
}
