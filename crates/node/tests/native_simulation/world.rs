//! A server and its clients on a network, from the first operation until nothing is in flight.

use std::{
    collections::BTreeMap,
    net::{Ipv4Addr, SocketAddr},
    time::Duration,
};

use minos_base::seeded_stream;
use minos_client::{
    Config, Error,
    core::{Core, OpId},
};
use minos_engine::{CacheMode, Crew, Erew, Mode, StoreMode, position::Wide};
use minos_proto::native::Access;
use minos_testkit::network::{Faults, Network};
use rand::{RngExt as _, rngs::StdRng};

use crate::{
    checker,
    scenario::{MS, Scenario, US},
    server::{SECRET, SERVER, SimServer, Times, address},
    workload::{Asked, Workload},
};

/// Time by which every operation must have ended, in nanoseconds.
const END_NS: u64 = 3_600_000 * MS;

/// Time between a server's announcement and its end, in nanoseconds.
const DRAIN_NS: u64 = 2 * MS;

/// Time in which the server may still begin what a client asked for that has ended since, in nanoseconds.
const LINE_NS: u64 = 300 * MS;

/// Most steps without progress of time; more are an error.
const IDLE_STEPS_MAX: u32 = 1000;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Report {
    /// Operations whose outcome the client knows.
    pub(crate) known: u64,
    /// Operations for which it is unknown whether they were executed.
    pub(crate) unknown: u64,
    /// The counters of server, clients and network.
    pub(crate) counts: BTreeMap<String, u64>,
}

impl Report {
    pub(crate) fn add(&mut self, other: &Self) {
        self.known += other.known;
        self.unknown += other.unknown;
        other.counts.iter().for_each(|(name, &count)| self.count(name, count));
    }

    fn count(&mut self, name: &str, count: u64) {
        match self.counts.get_mut(name) {
            Some(sum) => *sum += count,
            None => drop(self.counts.insert(name.to_owned(), count)),
        }
    }

    fn count_server<M: Mode>(&mut self, server: &SimServer<M>) {
        server.shared.totals().into_iter().for_each(|(name, count)| self.count(name, count));
        let sessions = server.shared.sessions().totals();
        self.count("sessions repeated early", sessions.repeated_early);
        self.count("sessions too old", sessions.too_old);
    }

    fn count_client(&mut self, client: &Client) {
        let counters = client.core.counters();
        self.count("client time-outs", counters.lost + counters.repairs);
        self.count("client restarts", counters.restarts);
        self.count("client sessions lost", counters.sessions_lost);
        self.count("client unsealed", counters.unsealed);
    }

    fn count_network(&mut self, network: &Network) {
        let counts = network.counts();
        self.count("network delivered", counts.delivered);
        self.count("network lost", counts.lost);
        self.count("network duplicated", counts.duplicated);
        self.count("network spoiled", counts.spoiled);
    }
}

/// A client and its operations.
struct Client {
    core: Core,
    address: SocketAddr,
    open: BTreeMap<OpId, Asked>,
    open_max: usize,
    /// Operations that the client has yet to call.
    left: u32,
    ask_ns: u64,
}

/// The server, the clients and the network of a run.
struct World<M: Mode> {
    scenario: Scenario,
    times: Times,
    network: Network,
    server: SimServer<M>,
    boots: u64,
    /// True if every operation must have an outcome.
    is_peaceful: bool,
    /// True if a server has evicted items.
    has_evicted: bool,
    clients: Vec<Client>,
    workload: Workload,
    rng: StdRng,
    now_ns: u64,
    /// Steps since time last advanced.
    idle_steps: u32,
    /// The longest time of an operation.
    slowest_ns: u64,
    report: Report,
}

/// Runs a scenario; the error tells what failed.
pub(crate) fn run(scenario: &Scenario) -> Result<Report, String> {
    match (scenario.access, scenario.is_cache) {
        (Access::Crcw, true) => run_mode::<CacheMode>(scenario),
        (Access::Crcw, false) => run_mode::<StoreMode>(scenario),
        (Access::Crew, _) => run_mode::<StoreMode<Crew>>(scenario),
        (Access::Erew, _) => run_mode::<CacheMode<Wide, Erew>>(scenario),
    }
}

fn run_mode<M: Mode>(scenario: &Scenario) -> Result<Report, String> {
    let mut world = World::<M>::new(scenario);
    while world.clients.iter().any(Client::is_busy) {
        if world.now_ns > END_NS {
            return Err(format!("after {} s operations have not ended", END_NS / MS / 1000));
        }
        world.step(u64::MAX)?;
    }
    world.settle()?;
    world.judge()
}

impl<M: Mode> World<M> {
    fn new(scenario: &Scenario) -> Self {
        let times = Times::new();
        let mut rng = seeded_stream(scenario.seed, 1);
        let clients =
            (0..scenario.clients).map(|number| Client::new(scenario, number, &mut rng, 0)).collect();
        Self {
            times,
            network: Network::new(rng.random(), scenario.faults.clone()),
            server: SimServer::new(scenario, 0, times, 0),
            boots: 0,
            is_peaceful: scenario.is_peaceful(),
            has_evicted: false,
            clients,
            workload: Workload::new(scenario, seeded_stream(scenario.seed, 2)),
            rng,
            now_ns: 0,
            idle_steps: 0,
            slowest_ns: 0,
            report: Report::default(),
            scenario: scenario.clone(),
        }
    }

    /// Runs the next event, but none after `until_ns`.
    fn step(&mut self, until_ns: u64) -> Result<(), String> {
        let clients = self.clients.iter().filter_map(Client::next_ns);
        let soon = clients.chain(self.network.next_at_ns()).chain(self.next_fault_ns());
        let next_ns = soon.chain([self.server.next_ns(), until_ns]).min().unwrap_or(until_ns);
        self.idle_steps = if next_ns > self.now_ns { 0 } else { self.idle_steps + 1 };
        if self.idle_steps > IDLE_STEPS_MAX {
            return Err(format!("somebody is always due at {} ns", self.now_ns));
        }
        self.now_ns = next_ns.max(self.now_ns);
        self.cause_faults()?;
        while let Some(datagram) = self.network.next_until(self.now_ns) {
            if datagram.to.ip() == SERVER {
                self.server.arrive(datagram.from, datagram.to.port(), datagram.bytes, self.now_ns);
            } else if let Some(client) = self.clients.iter_mut().find(|client| client.address == datagram.to)
            {
                let segment_bytes = datagram.bytes.len().max(1);
                client.core.receive(datagram.from, &datagram.bytes, segment_bytes, self.now_ns);
            }
        }
        self.server.run(self.now_ns, &mut self.network);
        for at in 0..self.clients.len() {
            self.step_client(at)?;
        }
        Ok(())
    }

    fn step_client(&mut self, at: usize) -> Result<(), String> {
        let (client, now_ns) = (&mut self.clients[at], self.now_ns);
        if client.core.next_timer().is_some_and(|timer_ns| timer_ns <= now_ns) {
            client.core.on_timer(now_ns);
        }
        while client.left > 0 && client.ask_ns <= now_ns && client.open.len() < client.open_max {
            let (asked, request) = self.workload.draw(now_ns);
            let id =
                client.core.submit(request, now_ns).map_err(|_| "no room for an operation".to_owned())?;
            client.open.insert(id, asked);
            client.left -= 1;
            client.ask_ns = now_ns + self.rng.random_range(0..self.scenario.pause_ns_max);
        }
        while let Some(transmit) = client.core.poll_transmit(now_ns) {
            for datagram in transmit.bytes.chunks(transmit.segment_bytes) {
                self.network.send(client.address, transmit.to, datagram);
            }
        }
        while let Some(completion) = client.core.poll_completion() {
            let asked = client.open.remove(&completion.id).ok_or("an operation ended twice")?;
            self.slowest_ns = self.slowest_ns.max(now_ns - asked.called_ns);
            self.workload.note(asked, completion.result, now_ns)?;
        }
        Ok(())
    }

    /// Time of the scenario's next fault.
    fn next_fault_ns(&self) -> Option<u64> {
        let outage = self.scenario.outage_ns.into_iter().flat_map(|(at_ns, for_ns)| [at_ns, at_ns + for_ns]);
        let restart_ns = self.scenario.restart.map(|(at_ns, _)| at_ns);
        let ends = self.drain_ns().into_iter().chain(restart_ns).chain(self.scenario.reborn_ns);
        outage.chain(ends).filter(|&at_ns| at_ns > self.now_ns).min()
    }

    fn cause_faults(&mut self) -> Result<(), String> {
        if let Some((at_ns, for_ns)) = self.scenario.outage_ns {
            if self.now_ns == at_ns {
                self.network.set_faults(Faults { loss: 1.0, ..self.scenario.faults.clone() });
            } else if self.now_ns == at_ns + for_ns {
                self.network.set_faults(self.scenario.faults.clone());
            }
        }
        if self.drain_ns() == Some(self.now_ns) {
            self.server.shared.drain();
        }
        if let Some((at_ns, workers)) = self.scenario.restart
            && at_ns == self.now_ns
        {
            self.restart(workers);
        }
        if self.scenario.reborn_ns == Some(self.now_ns) {
            self.scenario.reborn_ns = None;
            self.replace_client()?;
        }
        Ok(())
    }

    /// Time at which the server announces its end.
    fn drain_ns(&self) -> Option<u64> {
        let (at_ns, _) = self.scenario.restart.filter(|_| self.scenario.drains)?;
        Some(at_ns.saturating_sub(DRAIN_NS))
    }

    /// Replaces the server with a new one.
    fn restart(&mut self, workers: u16) {
        self.scenario.restart = None;
        self.scenario.workers = workers;
        self.report.count_server(&self.server);
        self.has_evicted |= self.server.has_evicted();
        self.boots += 1;
        self.server = SimServer::new(&self.scenario, self.boots, self.times, self.now_ns);
        self.workload.note_restart(self.now_ns);
    }

    /// Replaces the first client at its address; its operations may or may not have happened.
    fn replace_client(&mut self) -> Result<(), String> {
        let new = Client::new(&self.scenario, 0, &mut self.rng, self.now_ns);
        let left = self.clients[0].left;
        let old = std::mem::replace(&mut self.clients[0], Client { left, ask_ns: self.now_ns, ..new });
        self.report.count_client(&old);
        for asked in old.open.into_values() {
            self.workload.note(asked, Err(Error::OutcomeUnknown), self.now_ns)?;
        }
        Ok(())
    }

    /// Waits until everything in flight has ended, and until abandoned operations have timed out.
    fn settle(&mut self) -> Result<(), String> {
        let until_ns =
            self.now_ns + LINE_NS + 3 * self.scenario.transfer_timeout_ms * MS + 2 * self.scenario.late_ns();
        while self.now_ns < until_ns {
            self.step(until_ns)?;
        }
        if self.server.is_quiet() { Ok(()) } else { Err("the server is not quiet".to_owned()) }
    }

    /// Checks the stored values, the clients' answers, and that nothing is held.
    fn judge(mut self) -> Result<Report, String> {
        self.has_evicted |= self.server.has_evicted();
        for key in self.workload.keys() {
            let value = self.server.value(&key.bytes(), self.now_ns);
            self.workload.note_end(key, value.as_deref(), self.now_ns)?;
            self.server.delete(&key.bytes());
        }
        if !self.scenario.is_noisy() && !self.has_evicted {
            for (key, events) in self.workload.histories() {
                checker::check(events).map_err(|error| format!("{key:?}: {error}"))?;
            }
        }
        self.server.check_empty(&self.scenario)?;
        self.report.known = self.workload.known_outcomes;
        self.report.unknown = self.workload.unknown_outcomes;
        if self.is_peaceful && self.report.unknown > 0 {
            return Err(format!("unknown though nothing went wrong: {}", self.workload.last_unknown));
        }
        self.report.count("slowest operation, us", self.slowest_ns / US);
        self.report.count("runs with evictions", u64::from(self.has_evicted));
        self.report.count("runs without faults", u64::from(self.is_peaceful));
        self.report.count("runs with noise", u64::from(self.scenario.is_noisy()));
        self.report.count("operations without memory", self.workload.without_memory);
        self.report.count_server(&self.server);
        self.report.count_network(&self.network);
        self.clients.iter().for_each(|client| self.report.count_client(client));
        Ok(self.report)
    }
}

impl Client {
    fn new(scenario: &Scenario, number: usize, rng: &mut StdRng, now_ns: u64) -> Self {
        let mut config = Config::new()
            .timeout(Duration::from_millis(scenario.timeout_ms))
            .retry_between(Duration::from_micros(500), Duration::from_millis(100))
            .datagram_bytes_max(scenario.datagram_bytes[1])
            .in_flight_max(scenario.in_flight_max)
            .transfers_max(2)
            .batch_delay(Duration::from_micros(scenario.batch_delay_us))
            .queue_by(scenario.queue_by)
            .once_for(scenario.once_for);
        if scenario.is_sealed {
            config = config.secret(&SECRET.parse().expect("a secret"));
        }
        let core = Core::new(config, address(), rng.random(), now_ns).expect("options that can be");
        let host = Ipv4Addr::new(10, 0, 0, scenario.host(number));
        let address = SocketAddr::from((host, 40_000 + number as u16));
        Self {
            core,
            address,
            open: BTreeMap::new(),
            open_max: scenario.open_max,
            left: scenario.operations,
            ask_ns: 0,
        }
    }

    fn is_busy(&self) -> bool {
        self.left > 0 || !self.open.is_empty()
    }

    fn next_ns(&self) -> Option<u64> {
        let may_ask = self.left > 0 && self.open.len() < self.open_max;
        let ask_ns = may_ask.then_some(self.ask_ns);
        ask_ns.into_iter().chain(self.core.next_timer()).min()
    }
}
