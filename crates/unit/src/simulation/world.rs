//! One run: nodes, a coordinator, clients, a network, and what goes wrong.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use minos_base::{hash_key, seeded};
use minos_rack::{MicroShard, MicroShards, ServerId, UnitId};
use minos_testkit::history::{self, Call, CasOutcome, Evictions, Verdict};
use rand::{RngExt, rngs::StdRng};

use super::{
    clients::Client,
    host::{Drift, Host, Process},
    memory::Memory,
};
use crate::{
    Balancing, Coordinator, Directory, Loss, Message, Node, Orders, Policy, ReadPolicy, Report, Standing,
    Terms, Timing, control,
};

pub(super) const KEYS: usize = 6;
pub(super) const SHARDS: u32 = 4;
/// Faults end; from then on the rack must recover.
pub(super) const HEALED_US: u64 = 250_000;
/// Every key must have been read by then.
const END_US: u64 = 600_000;
/// How old a copy may be that is read. Clocks differ.
pub(super) const COPIES_US: u64 = 5000;
/// Between two steps that relieve nodes.
const RELIEF_US: u64 = 20_000;
const STATES_MAX: usize = 200_000;

/// The kind of a run. Rates are weights of faults.
#[derive(Clone, Copy, Debug)]
pub(super) struct Plan {
    pub(super) loss: Loss,
    /// Mean time between two faults.
    pub(super) fault_us: u64,
    pub(super) kills: u32,
    pub(super) pauses: u32,
    pub(super) cuts: u32,
    pub(super) coordinator_kills: u32,
    pub(super) moves: u32,
    /// Nodes are added and drained.
    pub(super) joins: u32,
    /// A store that lost some is silent ever after, rather than wrong.
    pub(super) memory_losses: u32,
    /// Steps of a move at which someone is killed, in 1000.
    pub(super) step_kills: u32,
    /// Steps of reads and writes that are slow, in 1000.
    pub(super) slow_steps: u32,
    /// Messages that are lost, in 1000. As many are repeated.
    pub(super) losses: u32,
    /// Words to owners that all is copied which are lost, in 1000.
    pub(super) completes_lost: u32,
    /// Copies of each micro-shard; with more than one, an owner acknowledges what its followers have.
    pub(super) copies: u32,
    /// Owners acknowledge at once all the same.
    pub(super) is_eager: bool,
    /// When one node loses its memory, whose items must then be elsewhere.
    pub(super) loss_at: Option<Moment>,
}

/// A moment at which one copy of each item is enough.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Moment {
    /// A follower was told to take its micro-shard over: the owner loses its memory.
    MoveToFollower,
    /// A follower becomes the owner: it loses its memory.
    Inheritance,
    /// Any: one node loses its memory.
    Any,
}

impl Plan {
    pub(super) fn of(loss: Loss) -> Self {
        Self {
            loss,
            fault_us: 10_000,
            kills: 3,
            pauses: 3,
            cuts: 3,
            coordinator_kills: 2,
            moves: 9,
            joins: 1,
            memory_losses: (loss == Loss::Allowed).into(),
            step_kills: 5,
            slow_steps: 20,
            losses: 20,
            completes_lost: 0,
            copies: 1,
            is_eager: false,
            loss_at: None,
        }
    }
}

/// What happened.
#[derive(Clone, Debug, Default)]
pub(super) struct Tally {
    pub(super) counts: BTreeMap<&'static str, u64>,
}

impl Tally {
    pub(super) fn note(&mut self, what: &'static str) {
        *self.counts.entry(what).or_default() += 1;
    }

    pub(super) fn add(&mut self, other: &Self) {
        other.counts.iter().for_each(|(what, count)| *self.counts.entry(what).or_default() += count);
    }

    pub(super) fn of(&self, what: &str) -> u64 {
        self.counts.get(what).copied().unwrap_or(0)
    }
}

/// A process or a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Party {
    Node(ServerId),
    Coordinator,
    Client(usize),
}

/// A client's request. An attempt is carried out once at most.
#[derive(Clone, Copy, Debug)]
pub(super) struct Request {
    pub(super) client: usize,
    pub(super) attempt: u64,
    pub(super) key: usize,
    /// Its outcome does not count.
    pub(super) call: Call,
    pub(super) is_forwarded: bool,
}

/// The outcome of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    Value(Option<u64>),
    /// The same, of a copy that may be old.
    Stale(Option<u64>),
    /// A write took place.
    Done,
    /// There was nothing to remove.
    Missing,
    Cas(CasOutcome),
    /// Nothing took place.
    NotHere,
}

#[derive(Clone, Debug)]
pub(super) enum Body {
    Report(Report),
    Orders(Orders),
    Message(Message),
    Request(Request),
    Reply(u64, Outcome, Option<Arc<Directory>>),
}

#[derive(Debug)]
pub(super) enum Event {
    Deliver(Party, Party, Body),
    /// A node's or the coordinator's clock.
    Tick(Party, u64),
    /// The front of a partition's queue.
    Locked(ServerId, u64, usize),
    Reading(ServerId, u64, u64),
    Copying(ServerId, u64, u64),
    Begin(usize),
    TimeOut(usize, u64),
    Repair(ServerId, u64),
    Restart(Party),
    Persisted(u64, Arc<Directory>),
    Mend(Party, Option<Party>),
    Lose(ServerId, Vec<MicroShard>),
    Evict,
    Fault,
    Heal,
}

pub(super) struct Control {
    pub(super) process: Option<Coordinator>,
    pub(super) life: u64,
    pub(super) disk: Vec<u8>,
    /// What may be on disk after a crash.
    pub(super) writing: Option<Arc<Directory>>,
    pub(super) drift: Drift,
    pub(super) paused_until_us: u64,
}

pub(super) struct World {
    pub(super) plan: Plan,
    pub(super) random: StdRng,
    pub(super) now_us: u64,
    /// By time, then in the order in which they were scheduled.
    events: BTreeMap<(u64, u64), Box<Event>>,
    next_event: u64,
    pub(super) hosts: BTreeMap<ServerId, Host>,
    pub(super) control: Control,
    pub(super) clients: Vec<Client>,
    pub(super) history: Vec<history::Event>,
    pub(super) ticks: history::Ticks,
    /// When the ticks of calls were.
    pub(super) called: Vec<(u64, u64)>,
    /// Who cannot hear whom, in both directions; all others, if there is no second.
    pub(super) cuts: BTreeSet<(Party, Option<Party>)>,
    pub(super) shards: [usize; KEYS],
    pub(super) values: u64,
    pub(super) tally: Tally,
    pub(super) is_healed: bool,
    /// Keys read after the end of faults.
    pub(super) final_reads: BTreeSet<usize>,
}

pub(super) fn terms() -> Terms {
    Terms::new(20_000, 500, 1000).unwrap()
}

fn balancing() -> Balancing {
    Balancing { policy: ReadPolicy::Load, interval_us: 10_000 }
}

pub(super) fn timing() -> Timing {
    Timing { report_us: 4000, ask_us: 3000, copies_us: Some(COPIES_US) }
}

impl World {
    pub(super) fn new(seed: u64, plan: Plan) -> Self {
        let mut random = seeded(seed);
        let count = random.random_range(3..6);
        let units = random.random_range(1..3) + u32::from(plan.copies > 1);
        let units = units.max(plan.copies);
        let node = |id| Node {
            id: ServerId(id),
            unit: UnitId(id % units),
            standing: Standing::Member,
            address: String::new(),
        };
        let shards = MicroShards::new(SHARDS).unwrap();
        let directory = Directory::new(shards, 1, (0..count).map(node).collect()).unwrap();
        let mut drift = || Drift {
            offset_us: random.random_range(0..1 << 40),
            ppm: [-500, 500, random.random_range(-500..=500)][random.random_range(0..3)],
        };
        let control = Control {
            process: None,
            life: 0,
            disk: directory.encode(),
            writing: None,
            drift: drift(),
            paused_until_us: 0,
        };
        let host = |drift| {
            let memory = Memory::new();
            Host { memory, lost: None, process: None, life: 0, drift, paused_until_us: 0 }
        };
        let hosts = (0..count).map(|id| (ServerId(id), host(drift()))).collect();
        let of = |key: usize| shards.of(hash_key(&key.to_le_bytes(), 1)).0 as usize;
        Self {
            plan,
            random,
            now_us: 0,
            events: BTreeMap::new(),
            next_event: 0,
            hosts,
            control,
            clients: (0..4).map(|_| Client::default()).collect(),
            history: Vec::new(),
            ticks: history::Ticks::default(),
            called: Vec::new(),
            cuts: BTreeSet::new(),
            shards: std::array::from_fn(of),
            values: 0,
            tally: Tally::default(),
            is_healed: false,
            final_reads: BTreeSet::new(),
        }
    }

    /// Runs to the end, and checks.
    pub(super) fn run(mut self) -> Result<Tally, String> {
        let ids: Vec<_> = self.hosts.keys().copied().collect();
        ids.into_iter().for_each(|id| self.restart_node(id));
        self.restart_coordinator();
        (0..self.clients.len()).for_each(|client| self.after(5000, Event::Begin(client)));
        self.after(30_000, Event::Fault);
        self.after(30_000, Event::Evict);
        self.after(HEALED_US, Event::Heal);
        self.lose_one();
        while let Some(((at_us, _), event)) = self.events.pop_first() {
            self.now_us = at_us;
            if self.final_reads.len() == KEYS {
                break;
            }
            let may_be_silent = self.plan.loss == Loss::Never
                && self.plan.loss_at.is_none()
                && self.tally.of("memory losses") > 0;
            if at_us > END_US && may_be_silent {
                break;
            }
            if at_us > END_US {
                return Err(format!("only {:?} are read after the faults", self.final_reads));
            }
            self.take(*event);
        }
        self.check()
    }

    fn check(mut self) -> Result<Tally, String> {
        (0..self.clients.len()).for_each(|client| self.give_up(client));
        let evictions = match self.plan.loss {
            Loss::Never => Evictions::Never,
            Loss::Allowed => Evictions::AtAnyTime,
        };
        self.tally.counts.insert("calls", self.history.len() as u64);
        if self.plan.copies > 1 {
            // An item that its owner has evicted may be there again, with its last value.
            history::forget_premature(&mut self.history, self.plan.loss == Loss::Allowed);
        }
        match history::check_with(&self.history, evictions, STATES_MAX) {
            Verdict::Linearizable => Ok(self.tally),
            verdict => Err(format!("{verdict:?}")),
        }
    }

    /// Schedules an event.
    pub(super) fn after(&mut self, delay_us: u64, event: Event) {
        self.at(self.now_us + delay_us, event);
    }

    fn at(&mut self, at_us: u64, event: Event) {
        self.events.insert((at_us, self.next_event), Box::new(event));
        self.next_event += 1;
    }

    fn take(&mut self, event: Event) {
        if let Some(until_us) = self.paused_until(&event) {
            return self.at(until_us, event);
        }
        match event {
            Event::Deliver(from, to, body) => self.deliver(from, to, body),
            Event::Tick(party, life) => self.tick(party, life),
            Event::Locked(id, life, partition) => self.locked(id, life, partition),
            Event::Reading(id, life, number) => self.reading(id, life, number),
            Event::Copying(id, life, number) => self.copying(id, life, number),
            Event::Begin(client) => self.begin(client),
            Event::TimeOut(client, attempt) => self.time_out(client, attempt),
            Event::Repair(id, life) => self.end_repair(id, life),
            Event::Restart(Party::Node(id)) => self.restart_node(id),
            Event::Restart(_) => self.restart_coordinator(),
            Event::Persisted(life, directory) => self.persisted(life, directory),
            Event::Mend(one, other) => drop(self.cuts.remove(&(one, other))),
            Event::Lose(id, spared) => self.lose_if_lossless(id, &spared),
            Event::Evict => self.evict(),
            Event::Fault => self.fault(),
            Event::Heal => self.heal(),
        }
    }

    /// When the one that an event concerns goes on, if it is paused.
    fn paused_until(&self, event: &Event) -> Option<u64> {
        let until_us = match event {
            Event::Deliver(_, Party::Node(id), _)
            | Event::Tick(Party::Node(id), _)
            | Event::Locked(id, ..)
            | Event::Reading(id, ..)
            | Event::Copying(id, ..)
            | Event::Repair(id, _) => self.hosts[id].paused_until_us,
            Event::Deliver(_, Party::Coordinator, _) | Event::Tick(Party::Coordinator, _) => {
                self.control.paused_until_us
            }
            _ => 0,
        };
        (until_us > self.now_us).then_some(until_us)
    }

    /// Sends over a network that loses, repeats and delays.
    pub(super) fn send(&mut self, from: Party, to: Party, body: Body) {
        let is_cut = |one, other| {
            self.cuts.contains(&(one, Some(other))) || (one != other && self.cuts.contains(&(one, None)))
        };
        let faulty = !self.is_healed;
        let losses = match &body {
            Body::Message(Message::Complete(_)) => self.plan.losses.max(self.plan.completes_lost),
            _ => self.plan.losses,
        };
        let is_lost = faulty && (is_cut(from, to) || is_cut(to, from) || self.happens(losses));
        let is_once = matches!(body, Body::Request(_) | Body::Reply(..));
        if !is_once && faulty && self.happens(self.plan.losses) {
            let delay_us = self.way_us();
            self.after(delay_us, Event::Deliver(from, to, body.clone()));
        }
        if !is_lost {
            let delay_us = self.way_us();
            self.after(delay_us, Event::Deliver(from, to, body));
        }
    }

    fn way_us(&mut self) -> u64 {
        match self.random.random_range(0..1000) {
            0..10 if !self.is_healed => self.random.random_range(0..60_000),
            10..50 => self.random.random_range(0..3000),
            _ => self.random.random_range(20..150),
        }
    }

    /// True with this probability, in 1000.
    pub(super) fn happens(&mut self, permille: u32) -> bool {
        self.random.random_range(0..1000) < permille
    }

    /// Between two instants of a read or a write.
    pub(super) fn step_us(&mut self) -> u64 {
        match self.happens(self.plan.slow_steps) {
            true if self.happens(200) => self.random.random_range(0..20_000),
            true => self.random.random_range(0..2000),
            false => self.random.random_range(0..4),
        }
    }

    fn deliver(&mut self, from: Party, to: Party, body: Body) {
        match (to, body) {
            (Party::Coordinator, Body::Report(report)) => self.control(control::Input::Report(report)),
            (Party::Client(client), Body::Reply(attempt, outcome, directory)) => {
                self.reply(client, attempt, outcome, directory);
            }
            (Party::Node(id), Body::Request(request)) => self.request(id, request),
            (Party::Node(id), Body::Orders(orders)) => {
                self.lose_an_owner(id, &orders);
                self.node(id, crate::node::Input::Orders(orders));
            }
            (Party::Node(id), Body::Message(message)) => {
                let Party::Node(from) = from else { return };
                self.node(id, crate::node::Input::Message(from, message));
            }
            _ => {}
        }
    }

    fn tick(&mut self, party: Party, life: u64) {
        const TICK_US: u64 = 2000;
        let (is_running, lives) = match party {
            Party::Node(id) => (self.hosts[&id].process.is_some(), self.hosts[&id].life),
            _ => (self.control.process.is_some(), self.control.life),
        };
        if !is_running || lives != life {
            return;
        }
        self.after(TICK_US, Event::Tick(party, life));
        match party {
            Party::Node(id) => self.node(id, crate::node::Input::Tick),
            _ => self.control(control::Input::Tick),
        }
    }

    /// Gives an input to the coordinator, and does what it says.
    pub(super) fn control(&mut self, input: control::Input) {
        let now_us = self.control.drift.at(self.now_us);
        let Some(process) = self.control.process.as_mut() else { return };
        let mut effects = Vec::new();
        process.handle(now_us, input, &mut effects);
        for effect in effects {
            match effect {
                control::Effect::Persist(directory) => {
                    self.tally.note("changes");
                    if self.is_killed_at("kill: persist", Party::Coordinator) {
                        return;
                    }
                    self.control.writing = Some(directory.clone());
                    let delay_us = self.random.random_range(50..1500);
                    self.after(delay_us, Event::Persisted(self.control.life, directory));
                }
                control::Effect::Send(id, orders) => {
                    self.send(Party::Coordinator, Party::Node(id), Body::Orders(orders));
                }
                control::Effect::Outdated(id, epoch) | control::Effect::Stale(id, epoch) => {
                    panic!("node {} has an epoch {epoch}", id.0)
                }
            }
        }
    }

    fn persisted(&mut self, life: u64, directory: Arc<Directory>) {
        if life != self.control.life {
            return;
        }
        self.count_changes(&directory);
        self.lose_an_heir(&directory);
        self.control.disk = directory.encode();
        self.control.writing = None;
        if !self.is_killed_at("kill: persisted", Party::Coordinator) {
            self.control(control::Input::Persisted(directory.epoch()));
        }
    }

    fn count_changes(&mut self, new: &Directory) {
        let old = Directory::decode(&self.control.disk).expect("what was written");
        let old_heir = |micro_shard, node| old.follower(micro_shard, node).is_some();
        for ((micro_shard, old), (_, new)) in old.places().zip(new.places()).filter(|(old, new)| old != new) {
            self.tally.note(match (old.node == new.node, new.is_serving) {
                (_, false) => "taken",
                (true, true) if old.is_serving => "adopted",
                (true, true) => "given back",
                (false, true) if new.since == new.epoch => "failed over",
                (false, true) if old.is_serving => "moved at once",
                (false, true) if old_heir(micro_shard, new.node) => "inherited",
                (false, true) => "moved",
            });
        }
    }

    pub(super) fn restart_coordinator(&mut self) {
        if self.control.process.is_some() {
            return;
        }
        self.control.life += 1;
        let directory = Directory::decode(&self.control.disk).expect("what was written");
        let policy =
            Policy { loss: self.plan.loss, moves_max: 3, move_us_max: 100_000, copies: self.plan.copies };
        let now_us = self.control.drift.at(self.now_us);
        let coordinator = Coordinator::new(directory, terms(), policy, now_us);
        let coordinator = coordinator.with_balancing(balancing(), now_us);
        let coordinator =
            if self.plan.copies > 1 { coordinator.with_relief(RELIEF_US, now_us) } else { coordinator };
        self.control.process = Some(coordinator);
        self.after(0, Event::Tick(Party::Coordinator, self.control.life));
    }

    pub(super) fn kill_coordinator(&mut self) {
        self.control.life += 1;
        self.control.process = None;
        let written = self.control.writing.take();
        if let Some(directory) = written.filter(|_| self.random.random_bool(0.5)) {
            self.control.disk = directory.encode();
        }
    }

    pub(super) fn process(&mut self, id: ServerId, life: u64) -> Option<(&mut Process, &mut Memory)> {
        let host = self.hosts.get_mut(&id).filter(|host| host.life == life)?;
        Some((host.process.as_mut()?, &mut host.memory))
    }

    pub(super) fn shard(&self, key: usize) -> MicroShard {
        MicroShard(self.shards[key] as u32)
    }
}
