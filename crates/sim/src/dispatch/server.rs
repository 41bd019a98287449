//! The server: RX queues, rings, workers and the link, from event to event.

use std::collections::VecDeque;

use minos_base::limits::{BURST_MAX, PACKET_BYTES, WORKERS_MAX};
use minos_sched::{
    Answers, Dispatch, Help, Intake, LargeOrder, Place, Pulls, RELIEF_SLICE_BYTES, Role, SizeHistogram,
    Threshold, WorkerId, WorkerSet,
};

use super::{
    Outcome, Spec, TxQueues,
    client::{Client, Job, Part},
    connections::Connections,
    link::{Link, packets},
    processor::{Processor, Speed},
    series::Series,
    ticks::{TICKS_A_NS, TickCosts},
    worker::{Step, Worker},
    workload::{Reply, Request, Requests},
};
use crate::{Calendar, Random, Recorder, Ticks};

/// The first stream of random numbers that pauses are drawn from: one for each processor.
const PAUSES_FROM: u64 = 16;

#[derive(Clone, Copy, Debug)]
enum Event {
    /// A client sends a request.
    Send,
    /// A packet has come over the link.
    Received,
    /// A packet has gone over the link.
    Sent,
    /// A client has done something.
    Client(u32),
    /// A worker has ended its step.
    Ready(u8),
    /// A control epoch ends.
    Epoch,
    /// A window ends.
    Window,
}

/// A run under way.
pub(super) struct Server<'s, D> {
    spec: &'s Spec,
    costs: TickCosts,
    policy: D,
    answers: Answers,
    calendar: Calendar<Event>,
    requests: Requests,
    gaps: Random,
    choices: Random,
    replied: Random,
    inbound: Link<Request>,
    outbound: Link<Part>,
    /// Large replies leave through a TX queue of their own.
    separates: bool,
    /// Workers that wait for room in each TX queue, and since when.
    blocked: Vec<VecDeque<(WorkerId, Ticks)>>,
    clients: Vec<Client>,
    connections: Connections,
    connected: Random,
    queues: Vec<VecDeque<Request>>,
    rings: Vec<VecDeque<Request>>,
    workers: Vec<Worker>,
    idle: WorkerSet,
    /// The standby has had a large request since the plan was made.
    standby_is_large: bool,
    sizes: SizeHistogram,
    recorder: Recorder,
    series: Series,
    sent: u64,
    warmup: u64,
    dropped: u64,
    ring_full: u64,
    tx_full: u64,
    /// A latency above this is late.
    limit: Ticks,
    /// With so many more late requests the percentile cannot stay within the limit.
    late_left: u64,
    counted: u64,
    first_counted_at: Ticks,
    last_counted_at: Ticks,
}

impl<'s, D: Dispatch> Server<'s, D> {
    pub(super) fn new(spec: &'s Spec, policy: D) -> Self {
        let costs = TickCosts::new(&spec.costs);
        let warmup = (spec.requests as f64 * spec.warmup_percent / 100.0) as u64;
        let workers = spec.workers;
        let processor = |speed: &Speed, number: usize| {
            Processor::new(speed, &costs.pauses, Random::new(spec.seed, PAUSES_FROM + number as u64))
        };
        Self {
            answers: Answers::of::<D>(policy.plan()),
            policy,
            calendar: Calendar::new(),
            requests: Requests::new(spec.mix, workers, Random::new(spec.seed, 1)),
            gaps: Random::new(spec.seed, 0),
            choices: Random::new(spec.seed, 2),
            replied: Random::new(spec.seed, 3),
            inbound: Link::new(spec.clients, costs.link_byte),
            connections: Connections::new(spec.connections),
            connected: Random::new(spec.seed, 4),
            clients: (0..spec.clients)
                .map(|client| Client::new(processor(&costs.client_speed, WORKERS_MAX + client)))
                .collect(),
            // Small replies in the first half of the flows, large ones in the second, if they are kept apart.
            outbound: Link::new(2 * workers, costs.link_byte),
            separates: match spec.tx_queues {
                TxQueues::Design => D::SEPARATES_REPLIES,
                TxQueues::One => false,
                TxQueues::Two => true,
            },
            blocked: vec![VecDeque::new(); 2 * workers],
            queues: vec![VecDeque::new(); workers],
            rings: vec![VecDeque::new(); workers],
            workers: (0..workers).map(|worker| Worker::new(processor(&costs.worker_speed, worker))).collect(),
            idle: WorkerSet::first(workers),
            standby_is_large: false,
            sizes: SizeHistogram::new(),
            recorder: Recorder::new(spec.requests - warmup, spec.percentile, (10.0 * TICKS_A_NS) as Ticks),
            series: Series::new(spec.percentile),
            sent: 0,
            warmup,
            dropped: 0,
            ring_full: 0,
            tx_full: 0,
            limit: Ticks::MAX,
            late_left: u64::MAX,
            counted: 0,
            first_counted_at: 0,
            last_counted_at: 0,
            costs,
            spec,
        }
    }

    /// Has the run end as soon as its percentile cannot stay within `limit_us` any more.
    pub(super) fn within(mut self, limit_us: f64) -> Self {
        // A histogram's percentile may be off by a thousandth.
        self.limit = (1.002 * limit_us * 1e3 * TICKS_A_NS) as Ticks;
        let counted = self.spec.requests - self.warmup;
        self.late_left = ((1.0 - self.spec.percentile / 100.0) * counted as f64) as u64 + 1;
        self
    }

    /// From the first request to the last reply.
    pub(super) fn run(mut self) -> Outcome {
        self.calendar.at(0, Event::Send);
        if D::PROFILES_SIZES {
            self.calendar.after(self.epoch_ticks(), Event::Epoch);
        }
        if self.spec.windows > 0 {
            self.calendar.after(self.window_ticks(), Event::Window);
        }
        while let Some(event) = self.calendar.take_next() {
            match event {
                Event::Send => self.send(),
                Event::Received => {
                    let (_, request, next) = self.inbound.sent();
                    self.schedule(next, Event::Received);
                    if let Some(request) = request {
                        self.arrive(request);
                    }
                }
                Event::Sent => {
                    let (flow, part, next) = self.outbound.sent();
                    self.schedule(next, Event::Sent);
                    if let Some(part) = part {
                        self.deliver(part);
                    }
                    if let Some(flow) = flow {
                        self.unblock(flow);
                    }
                }
                Event::Client(client) => self.client_has_done(client as usize),
                Event::Ready(worker) => self.ready(WorkerId(worker.into())),
                Event::Epoch => self.end_epoch(),
                Event::Window => self.end_window(),
            }
            if self.late_left == 0 {
                break;
            }
        }
        self.outcome()
    }

    fn schedule(&mut self, after: Option<Ticks>, event: Event) {
        if let Some(ticks) = after {
            self.calendar.after(ticks, event);
        }
    }

    fn epoch_ticks(&self) -> Ticks {
        (self.spec.epoch_requests as f64 / self.spec.rate * 1e9 * TICKS_A_NS) as Ticks
    }

    fn window_ticks(&self) -> Ticks {
        let run_s = self.spec.requests as f64 / self.spec.rate;
        (run_s / f64::from(self.spec.windows) * 1e9 * TICKS_A_NS) as Ticks
    }

    fn send(&mut self) {
        let phases = &self.spec.phases;
        // So many requests have gone that a phase begins.
        if let Some(&large_percent) =
            phases.get(self.sent as usize * phases.len() / self.spec.requests as usize)
        {
            self.requests.set_large_percent(large_percent);
        }
        let mut request = self.requests.draw(self.calendar.now(), self.sent >= self.warmup);
        if self.sent == self.warmup {
            self.first_counted_at = request.sent;
        }
        if self.spec.reply_percent < 100.0 {
            request.replied = self.replied.unit() * 100.0 <= self.spec.reply_percent;
        }
        self.sent += 1;
        request.client = self.choices.below(self.spec.clients) as u32;
        if self.connections.len() > 0 {
            request.connection = self.connected.below(self.connections.len()) as u32;
            request.queue = (request.connection as usize % self.workers.len()) as u8;
        }
        if self.costs.clients_are_busy() {
            self.give_client(request.client, Job::Send(request));
        } else {
            self.leave_client(request);
        }
        if self.sent < self.spec.requests {
            let gap = self.gaps.exponential() * 1e9 * TICKS_A_NS / self.spec.rate;
            self.calendar.after((gap + 0.5) as Ticks, Event::Send);
        }
    }

    /// A request leaves its client.
    fn leave_client(&mut self, request: Request) {
        let begun = self.inbound.send(request.client as usize, request.bytes_in(), Some(request));
        self.schedule(begun, Event::Received);
    }

    /// A part of a reply has come to its client.
    fn deliver(&mut self, part: Part) {
        let takes_time = self.costs.clients_are_busy();
        if part.is_last && (!takes_time || self.costs.arrivals_are_dated()) {
            self.complete(&part.request);
        }
        if takes_time {
            self.give_client(part.request.client, Job::Receive(part));
        }
    }

    /// Has a client do something after what it has to do already.
    fn give_client(&mut self, client: u32, job: Job) {
        let jobs = &mut self.clients[client as usize].jobs;
        jobs.push_back(job);
        if jobs.len() == 1 {
            self.begin_job(client as usize);
        }
    }

    /// Has a client begin the first thing that it has to do.
    fn begin_job(&mut self, client: usize) {
        let Client { jobs, processor, busy, sending } = &mut self.clients[client];
        if let Some(job) = jobs.front() {
            let ticks = processor.stretch(self.calendar.now(), self.costs.client(job));
            *busy += ticks;
            *sending += if matches!(job, Job::Send(_)) { ticks } else { 0 };
            self.calendar.after(ticks, Event::Client(client as u32));
        }
    }

    fn client_has_done(&mut self, client: usize) {
        let done = self.clients[client].jobs.pop_front();
        self.begin_job(client);
        match done {
            Some(Job::Send(request)) => self.leave_client(request),
            Some(Job::Receive(part)) if part.is_last && !self.costs.arrivals_are_dated() => {
                self.complete(&part.request);
            }
            Some(Job::Receive(_)) | None => {}
        }
    }

    fn arrive(&mut self, mut request: Request) {
        let queue = WorkerId(request.queue.into());
        if self.queues[queue.index()].len() >= self.spec.queue_max {
            self.dropped += 1;
            return;
        }
        request.arrived = self.calendar.now();
        self.queue_up(request);
    }

    /// Puts a request in its RX queue, for whoever polls that.
    fn queue_up(&mut self, request: Request) {
        let queue = WorkerId(request.queue.into());
        self.queues[queue.index()].push_back(request);
        let takers = self.idle.and(self.answers.takers[queue.index()]);
        let comers =
            if takers.is_empty() { self.idle.and(self.answers.helpers[queue.index()]) } else { takers };
        self.wake_one(comers, queue);
    }

    /// Wakes `first`, if it is one of `comers`, or another of them.
    fn wake_one(&mut self, comers: WorkerSet, first: WorkerId) {
        if comers.is_empty() {
            return;
        }
        let start =
            if comers.contains(first) { first.index() } else { self.choices.below(self.workers.len()) };
        if let Some(worker) = comers.iter_from(start).next() {
            self.wake(worker);
        }
    }

    /// An idle worker polls all the time and finds what has come within the time of a look, or it sleeps and has to
    /// be woken first.
    fn wake(&mut self, worker: WorkerId) {
        self.idle = self.idle.without(worker);
        self.after(worker, self.costs.poll + self.costs.wake, Step::Looked);
        self.workers[worker.index()].busy -= self.costs.wake;
    }

    /// `worker` ends `step` after so long.
    fn after(&mut self, worker: WorkerId, ticks: Ticks, step: Step) {
        let state = &mut self.workers[worker.index()];
        let ticks = state.processor.stretch(self.calendar.now(), ticks);
        state.step = step;
        state.busy += ticks;
        self.calendar.after(ticks, Event::Ready(worker.0 as u8));
    }

    /// Does what the ended step of a worker leads to, and begins the next one.
    fn ready(&mut self, worker: WorkerId) {
        match self.workers[worker.index()].step {
            Step::Looked => {}
            Step::Served { request, bytes, bytes_left } => {
                let flow = self.tx_queue(worker, &request);
                if request.replied && !self.has_room(flow, bytes) {
                    self.tx_full += 1;
                    return self.blocked[flow].push_back((worker, self.calendar.now()));
                }
                if self.send_reply(worker, request, bytes, bytes_left) {
                    return;
                }
            }
            Step::Passed { request, ring } => {
                if self.rings[ring.index()].len() >= self.spec.ring_max {
                    self.ring_full += 1;
                    // One's own ring does not become shorter by waiting for it.
                    if self.answers.pulls[worker.index()].first.contains(ring) {
                        return self.serve(worker, request, 0, false);
                    }
                    return self.after(worker, self.costs.ring_poll, Step::Passed { request, ring });
                }
                self.rings[ring.index()].push_back(request);
                if self.policy.plan().role(ring) == Role::Standby && !self.standby_is_large {
                    self.make_standby_large();
                }
                let comers = self.idle.and(self.answers.pullers[ring.index()]);
                self.wake_one(comers, ring);
            }
        }
        self.begin(worker);
    }

    /// The TX queue of a reply: the one in which it has begun, else one of `worker`'s.
    fn tx_queue(&self, worker: WorkerId, request: &Request) -> usize {
        let is_apart = self.separates && request.is_long();
        let own = worker.index() + if is_apart { self.workers.len() } else { 0 };
        request.reply.map_or(own, |reply| reply.flow)
    }

    /// Whether a TX queue has descriptors for so many value bytes.
    fn has_room(&self, flow: usize, bytes: u64) -> bool {
        self.outbound.packets_of(flow) + packets(bytes) <= self.spec.tx_max
    }

    /// A packet has left a TX queue: a worker that waited for room there goes on. It has done nothing else meanwhile.
    fn unblock(&mut self, flow: usize) {
        let Some(&(worker, since)) = self.blocked[flow].front() else { return };
        let Step::Served { bytes, .. } = self.workers[worker.index()].step else { return };
        if !self.has_room(flow, bytes) {
            return;
        }
        self.blocked[flow].pop_front();
        let waited = self.calendar.now() - since;
        let state = &mut self.workers[worker.index()];
        state.busy += waited;
        state.blocked += waited;
        self.ready(worker);
    }

    /// Lets a part of a reply leave, and goes on with the rest; false if `worker` has done what it had to.
    fn send_reply(&mut self, worker: WorkerId, request: Request, bytes: u64, bytes_left: u64) -> bool {
        let flow = self.tx_queue(worker, &request);
        if request.replied {
            let part = Part { request, value_bytes: bytes, is_last: bytes_left == 0 };
            let begun = self.outbound.send(flow, bytes, Some(part));
            self.schedule(begun, Event::Sent);
        } else if bytes_left == 0 {
            self.count(&request);
        }
        let state = &mut self.workers[worker.index()];
        if bytes_left == 0 {
            state.load.requests += 1;
            state.relieves = false;
            self.connections.returns(&request).into_iter().for_each(|held| self.queue_up(held));
            return false;
        }
        let request = Request { reply: Some(Reply { bytes_left, flow }), ..request };
        if self.looks_between_slices(worker) {
            // What is left waits in its own ring while the worker looks at RX queues.
            self.rings[worker.index()].push_front(Request { passed_by: worker.0 as u8, ..request });
            return false;
        }
        if self.workers[worker.index()].relieves && self.give_back(worker, request) {
            return false;
        }
        self.reply(worker, request, bytes_left, 0);
        true
    }

    /// Whether `worker` has to look after RX queues while it serves a large request: one that is the only one does both,
    /// in turns.
    fn looks_between_slices(&self, worker: WorkerId) -> bool {
        !D::RUNS_TO_COMPLETION
            && !self.workers[worker.index()].relieves
            && !self.answers.shares[worker.index()].is_empty()
            && self.answers.pulls[worker.index()].first.contains(worker)
    }

    /// The place in a ring of the request to serve next.
    fn next_in(&self, ring: WorkerId) -> Option<usize> {
        let ring = &self.rings[ring.index()];
        match self.spec.large_order {
            LargeOrder::Fifo => (!ring.is_empty()).then_some(0),
            LargeOrder::Shortest => (0..ring.len()).min_by_key(|&place| ring[place].bytes_left()),
        }
    }

    /// Puts the rest of a large request back where it came from, if small ones wait.
    fn give_back(&mut self, worker: WorkerId, request: Request) -> bool {
        let shares = &self.answers.shares[worker.index()];
        let waits = shares.iter().any(|(queue, _)| !self.queues[queue.index()].is_empty());
        let home = self.policy.plan().worker_for(request.class).filter(|_| waits);
        let Some(ring) = home else { return false };
        self.workers[worker.index()].relieves = false;
        self.rings[ring.index()].push_front(Request { passed_by: worker.0 as u8, ..request });
        let comers = self.idle.and(self.answers.pullers[ring.index()]);
        self.wake_one(comers, ring);
        true
    }

    /// Begins what `worker` has to do next, if there is anything.
    fn begin(&mut self, worker: WorkerId) {
        while let Some(request) = self.workers[worker.index()].hands.pop_front() {
            if let Some(request) = self.connections.hold(request) {
                return self.place(worker, request);
            }
        }
        let small_first = match self.answers.helps[worker.index()] {
            Help::Share { small_permille } => {
                let (state, small) = (&self.workers[worker.index()], u128::from(small_permille));
                u128::from(state.spent_small) * (1000 - small) < u128::from(state.spent_large) * small
                    || state.spent_large == 0
            }
            _ => false,
        };
        if small_first && self.help(worker) {
            return;
        }
        // Rings and RX queues take turns, so that neither keeps the other waiting.
        for _ in 0..2 {
            let pulls = self.workers[worker.index()].pulls_next;
            self.workers[worker.index()].pulls_next = !pulls;
            if if pulls { self.pull(worker) } else { self.take_bursts(worker) } {
                return;
            }
        }
        if (!small_first && self.help(worker)) || self.relieve(worker) {
            return;
        }
        self.workers[worker.index()].was_idle = true;
        self.idle = self.idle.with(worker);
    }

    /// Takes from the RX queues that are this worker's to poll.
    fn take_bursts(&mut self, worker: WorkerId) -> bool {
        if D::INTAKE == Intake::WhenEmpty && !self.rings[worker.index()].is_empty() {
            return false;
        }
        let mut ticks = 0;
        for index in 0..self.answers.shares[worker.index()].len() {
            let (queue, most) = self.answers.shares[worker.index()][index];
            ticks += self.costs.poll + self.take(worker, queue, most);
        }
        self.look_at_hands(worker, ticks)
    }

    /// Takes up to `most` requests of an RX queue into the worker's hands; the time that takes.
    fn take(&mut self, worker: WorkerId, queue: WorkerId, most: usize) -> Ticks {
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
            self.after(worker, ticks, Step::Looked);
        }
        found
    }

    /// Serves one request from the rings that are this worker's to pull from.
    fn pull(&mut self, worker: WorkerId) -> bool {
        let Pulls { first, then } = self.answers.pulls[worker.index()];
        self.pull_from(worker, [first, then])
    }

    /// Begins to serve a large request of another worker. Where those wait for the link already, more workers would
    /// only share that among more of them.
    fn relieve(&mut self, worker: WorkerId) -> bool {
        let (rings, workers) = (self.answers.relieves[worker.index()], self.workers.len());
        if rings.is_empty() || self.outbound.is_behind(workers..2 * workers, self.spec.slice_bytes) {
            return false;
        }
        self.workers[worker.index()].relieves = true;
        let found = self.pull_from(worker, [rings, WorkerSet::EMPTY]);
        self.workers[worker.index()].relieves = found;
        found
    }

    fn pull_from(&mut self, worker: WorkerId, [first, then]: [WorkerSet; 2]) -> bool {
        let turn = self.workers[worker.index()].turn;
        let mut ticks = 0;
        for ring in first.iter_from(turn).chain(then.iter_from(turn)) {
            ticks += self.costs.ring_poll;
            if let Some(request) = self.next_in(ring).and_then(|place| self.rings[ring.index()].remove(place))
            {
                self.workers[worker.index()].turn = (ring.index() + 1) % self.workers.len();
                // What one has put there oneself is in one's caches.
                if u16::from(request.passed_by) != worker.0 {
                    ticks += self.costs.hand_off;
                }
                self.workers[worker.index()].owes_send = true;
                match request.reply {
                    Some(reply) => self.reply(worker, request, reply.bytes_left, ticks),
                    None => self.serve(worker, request, ticks, false),
                }
                return true;
            }
        }
        false
    }

    /// Takes requests from RX queues that are not this worker's to poll.
    fn help(&mut self, worker: WorkerId) -> bool {
        let (queues, most) = match self.answers.helps[worker.index()] {
            Help::No => return false,
            Help::Burst => (WorkerSet::first(self.workers.len()).without(worker), BURST_MAX),
            Help::Own => (WorkerSet::one(worker), 1),
            Help::Any | Help::Share { .. } => (WorkerSet::first(self.workers.len()), 1),
        };
        let turn = self.workers[worker.index()].turn;
        let mut ticks = 0;
        for queue in queues.iter_from(turn) {
            ticks += self.costs.poll;
            if !self.queues[queue.index()].is_empty() {
                ticks += self.take(worker, queue, most);
                self.workers[worker.index()].turn = (queue.index() + 1) % self.workers.len();
                return self.look_at_hands(worker, ticks);
            }
        }
        false
    }

    /// Serves a request that was taken from an RX queue, or passes it on.
    fn place(&mut self, worker: WorkerId, request: Request) {
        let mut ticks = 0;
        if D::PROFILES_SIZES {
            self.sizes.record(request.class, 1);
            ticks += self.costs.profile;
            if request.is_get {
                ticks += self.costs.lookup;
            }
        }
        match D::place(self.policy.plan(), worker, request.class) {
            Place::Here => self.serve(worker, request, ticks, D::PROFILES_SIZES && request.is_get),
            Place::Ring(ring) => {
                self.connections.leaves(&request);
                let is_own = self.answers.pulls[worker.index()].first.contains(ring);
                ticks += if is_own { self.costs.ring_poll } else { self.costs.hand_off };
                let request = Request { passed_by: worker.0 as u8, ..request };
                self.after(worker, ticks, Step::Passed { request, ring });
            }
        }
    }

    /// Serves `request`, `ticks` after now.
    fn serve(&mut self, worker: WorkerId, mut request: Request, ticks: Ticks, is_found: bool) {
        request.began = self.calendar.now();
        request.after_idle = std::mem::take(&mut self.workers[worker.index()].was_idle);
        let lookup = if is_found { 0 } else { self.costs.lookup };
        // All replies to what was received together leave together.
        let owes_send = std::mem::take(&mut self.workers[worker.index()].owes_send);
        let send = if owes_send { self.costs.send_call() } else { 0 };
        let ticks = ticks + lookup + self.costs.execute(&request) + send;
        if self.is_moved(&request) {
            self.workers[worker.index()].moving += self.costs.take_in(&request);
        }
        self.reply(worker, request, request.bytes_out(), ticks);
    }

    /// Whether the server moves the bytes of this value by themselves.
    fn is_moved(&self, request: &Request) -> bool {
        match self.spec.threshold {
            Threshold::Static(bytes) => u64::from(request.value_bytes) > bytes,
            Threshold::Auto => request.large,
        }
    }

    /// Makes the next packets of a reply.
    fn reply(&mut self, worker: WorkerId, request: Request, bytes_left: u64, ticks: Ticks) {
        let relieves = self.workers[worker.index()].relieves;
        let slice = if relieves { RELIEF_SLICE_BYTES } else { self.spec.slice_bytes };
        let bytes = bytes_left.min(slice).min(self.spec.tx_max * PACKET_BYTES);
        let count = packets(bytes);
        // A slice of a value leaves on its own, behind what says that it comes.
        let call = if request.is_long() { self.costs.send_call() } else { 0 };
        let is_small = request.class <= self.policy.plan().threshold;
        let in_slices = !is_small && self.looks_between_slices(worker);
        let slice = if in_slices { self.costs.per_slice } else { 0 };
        let moving = slice + self.costs.send(&request, bytes);
        let ticks = ticks + call + moving;
        let is_moved = self.is_moved(&request);
        let state = &mut self.workers[worker.index()];
        state.moving += if is_moved { moving } else { 0 };
        state.load.packets += count;
        *(if is_small { &mut state.spent_small } else { &mut state.spent_large }) += ticks;
        self.after(worker, ticks, Step::Served { request, bytes, bytes_left: bytes_left - bytes });
    }

    fn complete(&mut self, request: &Request) {
        let now = self.calendar.now();
        let latency = self.costs.latency(now - request.sent);
        if self.spec.windows > 0 {
            self.series.record(latency);
        }
        if request.counts {
            self.recorder.record(latency, request.began - request.arrived, request.large);
            self.late_left -= u64::from(latency > self.limit);
        }
        self.count(request);
    }

    /// A request was served.
    fn count(&mut self, request: &Request) {
        if request.counts {
            self.counted += 1;
            self.last_counted_at = self.calendar.now();
        }
    }

    fn end_window(&mut self) {
        self.series.end_window(self.policy.plan().large_workers(), 1.0 / (1e3 * TICKS_A_NS));
        if self.sent < self.spec.requests {
            self.calendar.after(self.window_ticks(), Event::Window);
        }
    }

    fn end_epoch(&mut self) {
        let before = self.policy.plan().clone();
        self.policy.epoch(&self.sizes);
        self.sizes = SizeHistogram::new();
        let plan = self.policy.plan();
        for state in &mut self.workers {
            (state.spent_small, state.spent_large) = (0, 0);
        }
        let is_other =
            (&plan.roles, plan.shared, plan.reserved) != (&before.roles, before.shared, before.reserved);
        if is_other || std::mem::take(&mut self.standby_is_large) {
            self.answers = Answers::of::<D>(plan);
            self.wake_all();
        }
        if self.sent < self.spec.requests {
            self.calendar.after(self.epoch_ticks(), Event::Epoch);
        }
    }

    /// From its first large request to the end of the epoch the standby is a large worker: its RX queue is
    /// the others' to poll.
    fn make_standby_large(&mut self) {
        if let Some(plan) = self.policy.plan().with_standby_large() {
            self.standby_is_large = true;
            self.answers = Answers::of::<D>(&plan);
            self.wake_all();
        }
    }

    /// What was somebody else's to poll may be an idle worker's now.
    fn wake_all(&mut self) {
        for worker in self.idle.iter() {
            self.wake(worker);
        }
    }

    fn outcome(self) -> Outcome {
        let end = self.last_counted_at.max(1) as f64;
        let counted_s = (self.last_counted_at - self.first_counted_at).max(1) as f64 / (1e9 * TICKS_A_NS);
        let load = |worker: &Worker| super::WorkerLoad {
            busy: worker.busy as f64 / end,
            moving: worker.moving as f64 / end,
            blocked: worker.blocked as f64 / end,
            ..worker.load
        };
        let of_clients = |time: fn(&Client) -> Ticks| {
            self.clients.iter().map(|client| time(client) as f64).sum::<f64>()
                / (self.clients.len() as f64 * end)
        };
        Outcome {
            design: self.spec.design.name(),
            large_tx_queues: self.separates,
            offered_rps: self.spec.rate,
            achieved_rps: self.counted as f64 / counted_s,
            dropped: self.dropped,
            ring_full: self.ring_full,
            tx_full: self.tx_full,
            latency_us: self.recorder.finish(|ticks| ticks / (1e3 * TICKS_A_NS)),
            link_busy: self.outbound.busy as f64 / end,
            clients_busy: of_clients(|client| client.busy),
            clients_sending: of_clients(|client| client.sending),
            large_workers: self.policy.plan().large_workers(),
            workers: self.workers.iter().map(load).collect(),
            windows: self.series.finish(),
        }
    }
}
