//! The server: RX queues, rings, workers and the link, from event to event.

mod turn;

use std::collections::VecDeque;

use minos_base::limits::WORKERS_MAX;
use minos_sched::{Assignment, Duty, Policy, SizeHistogram, WorkerId, WorkerSet};

use super::{
    Outcome, Spec,
    client::{Client, Job, Part},
    connections::Connections,
    link::{Link, TICKS_A_NS, packets},
    processor::{Processor, Speed},
    series::Series,
    ticks::TickCosts,
    worker::{Doing, Worker},
    workload::{Request, Requests},
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
pub(super) struct Server<'s> {
    spec: &'s Spec,
    costs: TickCosts,
    policy: Policy,
    assignment: Assignment,
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
    /// Number of further late requests after which the percentile exceeds the limit.
    late_left: u64,
    counted: u64,
    first_counted_at: Ticks,
    last_counted_at: Ticks,
}

impl<'s> Server<'s> {
    pub(super) fn new(spec: &'s Spec, policy: Policy) -> Self {
        let costs = TickCosts::new(&spec.costs);
        let warmup = (spec.requests as f64 * spec.warmup_percent / 100.0) as u64;
        let workers = spec.workers;
        let processor = |speed: &Speed, number: usize| {
            Processor::new(speed, &costs.pauses, Random::new(spec.seed, PAUSES_FROM + number as u64))
        };
        Self {
            assignment: policy.assignment(),
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
            separates: spec.tx_queues.are_two(spec.design),
            blocked: vec![VecDeque::new(); 2 * workers],
            queues: vec![VecDeque::new(); workers],
            rings: vec![VecDeque::new(); workers],
            workers: (0..workers)
                .map(|worker| Worker::new(processor(&costs.worker_speed, worker), worker))
                .collect(),
            idle: WorkerSet::first(workers),
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

    /// Ends the run as soon as its percentile can no longer stay within `limit_us`.
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
        if self.spec.design.counts_sizes() {
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
                Event::Sent => self.packet_has_gone(),
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

    /// The duty of `worker` under the plan.
    fn duty(&self, worker: WorkerId) -> &Duty {
        self.assignment.duty(worker)
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
        // Enough requests have been sent for the next phase to begin.
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

    /// A packet has gone over the link.
    fn packet_has_gone(&mut self) {
        let (flow, part, next) = self.outbound.sent();
        self.schedule(next, Event::Sent);
        if let Some(part) = part {
            self.deliver(part);
        }
        if let Some(flow) = flow {
            self.unblock(flow);
        }
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

    /// Appends a job to those of a client.
    fn give_client(&mut self, client: u32, job: Job) {
        let jobs = &mut self.clients[client as usize].jobs;
        jobs.push_back(job);
        if jobs.len() == 1 {
            self.begin_job(client as usize);
        }
    }

    /// Begins a client's first job.
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

    /// Puts a request in its RX queue and wakes a worker that polls it.
    fn queue_up(&mut self, request: Request) {
        let queue = WorkerId(request.queue.into());
        self.queues[queue.index()].push_back(request);
        let pollers = self.idle.and(self.assignment.polled_by[queue.index()]);
        let comers = if pollers.is_empty() {
            self.idle.and(self.assignment.helped_by[queue.index()])
        } else {
            pollers
        };
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

    /// An idle worker either polls all the time and finds a request within the time of a look, or sleeps and
    /// has to be woken first.
    fn wake(&mut self, worker: WorkerId) {
        self.idle = self.idle.without(worker);
        self.after(worker, self.costs.poll + self.costs.wake, Doing::Looked);
        self.workers[worker.index()].busy -= self.costs.wake;
    }

    /// Ends `doing` of `worker` after `ticks` of work.
    fn after(&mut self, worker: WorkerId, ticks: Ticks, doing: Doing) {
        let state = &mut self.workers[worker.index()];
        let ticks = state.processor.stretch(self.calendar.now(), ticks);
        state.doing = doing;
        state.busy += ticks;
        self.calendar.after(ticks, Event::Ready(worker.0 as u8));
    }

    /// The TX queue of a reply: the one in which it has begun, else one of `worker`'s.
    fn tx_queue(&self, worker: WorkerId, request: &Request) -> usize {
        let is_apart = self.separates && request.is_long();
        let own = worker.index() + if is_apart { self.workers.len() } else { 0 };
        request.reply.map_or(own, |reply| reply.flow)
    }

    /// True if a TX queue has descriptors for `bytes` of a value.
    fn has_room(&self, flow: usize, bytes: u64) -> bool {
        self.outbound.packets_of(flow) + packets(bytes) <= self.spec.tx_max
    }

    /// A packet has left a TX queue: a worker that waited for room there goes on. It was blocked meanwhile.
    fn unblock(&mut self, flow: usize) {
        let Some(&(worker, since)) = self.blocked[flow].front() else { return };
        let Doing::Served { bytes, .. } = self.workers[worker.index()].doing else { return };
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
        let roles = self.policy.plan().roles.clone();
        self.policy.epoch(&self.sizes);
        self.sizes = SizeHistogram::new();
        if self.policy.plan().roles != roles {
            self.reassign();
        }
        if self.sent < self.spec.requests {
            self.calendar.after(self.epoch_ticks(), Event::Epoch);
        }
    }

    /// Applies a plan with other roles. An idle worker may now have to poll another worker's queue.
    fn reassign(&mut self) {
        self.assignment = self.policy.assignment();
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
            design: self.spec.design.variant_name(self.spec.handoff_workers),
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
