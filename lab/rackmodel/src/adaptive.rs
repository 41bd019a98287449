//! A unit whose reads follow its servers' reports (RackOut §5, §6.4).
//!
//! Each server counts its writes and averages its latest service times. A coordinator polls them and computes
//! a read distribution. It takes effect when it reaches the clients, so clients always act on old reports.

use minos_rack::{Alias, BadParameter, ReadDistribution, adaptive, printed};

use crate::{Fabric, Latencies, Random};

/// Service times that a server averages (§6.1, "the N most recent").
const RECENT: usize = 256;

/// Polls of the warm-up, which is not counted. Until the last of them the rate is halved: reads are uniform
/// until the first poll, and the backlog of that time could take longer to drain than a run.
pub const WARMUP_POLLS: u32 = 4;

/// How reads are distributed over the unit's servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reads {
    /// Uniformly: RackOut_static.
    Static,
    /// Algorithm 1, for any number of overloaded servers.
    Writes,
    /// Algorithms 1 and 2, for any number of overloaded servers.
    WritesAndTimes,
    /// Algorithm 1 as it is printed.
    PrintedWrites,
    /// Algorithms 1 and 2 as they are printed.
    PrintedWritesAndTimes,
    /// Of two servers drawn uniformly, the one that is free sooner: clients see all queues.
    TwoChoices,
}

/// A server that is slow for a while.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Interference {
    /// Which one.
    pub server: usize,
    /// Factor by which all its service times grow.
    pub factor: f64,
    /// From when on, in microseconds.
    pub from_us: f64,
    /// Until when.
    pub until_us: f64,
}

/// One run.
#[derive(Clone, Debug, PartialEq)]
pub struct Spec {
    /// Share of the unit's requests that each server owns.
    pub shares: Vec<f64>,
    /// Share of writes among all requests.
    pub write_share: f64,
    /// Service times and propagation delay.
    pub fabric: Fabric,
    /// How reads are distributed.
    pub reads: Reads,
    /// Requests per microsecond.
    pub rate: f64,
    /// Requests, with those of the first [`WARMUP_POLLS`] polls, which are not counted.
    pub arrivals: u64,
    /// Time between two polls, in microseconds.
    pub polling_us: f64,
    /// Time from a poll until the clients act on it, in microseconds.
    pub staleness_us: f64,
    /// A slow server, if there is one.
    pub interference: Option<Interference>,
    /// The seed of all random choices.
    pub seed: u64,
}

/// The results of a run.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// Of all requests that were counted.
    pub latencies: Latencies,
    /// The read distribution at the end.
    pub reads: Vec<f64>,
    /// The average service times that the servers last reported, in microseconds.
    pub service_us: Vec<f64>,
    /// How often a new distribution took effect.
    pub updates: u64,
    /// For each poll, the 99th percentile since the one before, in microseconds.
    pub p99_by_poll_us: Vec<f64>,
}

impl Spec {
    fn check(&self) -> Result<(), BadParameter> {
        BadParameter::unless_share("write-share", self.write_share)?;
        BadParameter::unless_positive("rate", self.rate)?;
        BadParameter::unless_positive("polling-us", self.polling_us)?;
        self.fabric.times.checked()?;
        if !(self.staleness_us >= 0.0 && self.staleness_us <= self.polling_us) {
            let allowed = format_args!("0 to the {} between two polls", self.polling_us).to_string();
            return Err(BadParameter::new("staleness-us", self.staleness_us, allowed));
        }
        if let Some(Interference { server, factor, .. }) = self.interference {
            BadParameter::unless_positive("interference", factor)?;
            if server >= self.shares.len() {
                let allowed = format!("below {}", self.shares.len());
                return Err(BadParameter::new("interference-server", server, allowed));
            }
        }
        Ok(())
    }
}

/// Runs a unit.
///
/// # Errors
/// A parameter is out of bounds, or the run ends before anything is counted.
pub fn run(spec: &Spec) -> Result<Outcome, BadParameter> {
    spec.check()?;
    let mut unit = Unit::new(spec)?;
    let mut gaps = Random::new(spec.seed, 1);
    let mut choices = Random::new(spec.seed, 2);
    let mut now = 0.0;
    let counted_from = spec.polling_us * f64::from(WARMUP_POLLS);
    for _ in 0..spec.arrivals {
        let calm = now < counted_from - spec.polling_us;
        now += gaps.exponential() / if calm { spec.rate / 2.0 } else { spec.rate };
        unit.coordinate(now)?;
        unit.serve(now, &mut choices, now >= counted_from);
    }
    if unit.latencies.count() == 0 {
        let allowed = format_args!("enough for more than {WARMUP_POLLS} polls").to_string();
        return Err(BadParameter::new("arrivals", spec.arrivals, allowed));
    }
    let service_us = unit.monitors.iter().map(Monitor::service_us).collect();
    Ok(Outcome {
        latencies: unit.latencies,
        reads: unit.reads.probabilities().to_vec(),
        service_us,
        updates: unit.updates,
        p99_by_poll_us: unit.p99_by_poll_us,
    })
}

/// The statistics that a server keeps.
#[derive(Clone, Debug)]
struct Monitor {
    /// Since the last poll.
    writes: u64,
    reads: u64,
    /// The latest service times, in a ring.
    recent: Vec<f64>,
    next: usize,
}

impl Monitor {
    fn new() -> Self {
        Self { writes: 0, reads: 0, recent: Vec::with_capacity(RECENT), next: 0 }
    }

    fn note(&mut self, is_write: bool, service: f64) {
        *if is_write { &mut self.writes } else { &mut self.reads } += 1;
        if self.recent.len() < RECENT {
            self.recent.push(service);
        } else {
            self.recent[self.next] = service;
            self.next = (self.next + 1) % RECENT;
        }
    }

    /// Zero before the first request.
    fn service_us(&self) -> f64 {
        self.recent.iter().sum::<f64>() / self.recent.len().max(1) as f64
    }
}

struct Unit<'a> {
    spec: &'a Spec,
    owners: Alias,
    reads: ReadDistribution,
    /// The next distribution, and the time at which it reaches the clients.
    pending: Option<(f64, ReadDistribution)>,
    next_poll: f64,
    free: Vec<f64>,
    monitors: Vec<Monitor>,
    latencies: Latencies,
    since_poll: Latencies,
    p99_by_poll_us: Vec<f64>,
    updates: u64,
}

impl<'a> Unit<'a> {
    fn new(spec: &'a Spec) -> Result<Self, BadParameter> {
        let gf = spec.shares.len();
        Ok(Self {
            spec,
            owners: Alias::new(&spec.shares)?,
            reads: ReadDistribution::uniform(gf)?,
            pending: None,
            next_poll: spec.polling_us,
            free: vec![0.0; gf],
            monitors: vec![Monitor::new(); gf],
            latencies: Latencies::new(gf),
            since_poll: Latencies::new(gf),
            p99_by_poll_us: Vec::new(),
            updates: 0,
        })
    }

    /// Applies polls and messages of the coordinator that are due by `now`.
    fn coordinate(&mut self, now: f64) -> Result<(), BadParameter> {
        while let Some((_, reads)) = self.pending.take_if(|(due, _)| *due <= now) {
            self.reads = reads;
            self.updates += 1;
        }
        if now < self.next_poll {
            return Ok(());
        }
        if !matches!(self.spec.reads, Reads::Static | Reads::TwoChoices) {
            self.pending = Some((self.next_poll + self.spec.staleness_us, self.computed()?));
        }
        let since = std::mem::replace(&mut self.since_poll, Latencies::new(self.free.len()));
        self.p99_by_poll_us.push(since.percentile(99.0));
        self.monitors.iter_mut().for_each(|monitor| (monitor.writes, monitor.reads) = (0, 0));
        // A long silence skips polls.
        self.next_poll += self.spec.polling_us * ((now - self.next_poll) / self.spec.polling_us).floor();
        self.next_poll += self.spec.polling_us;
        self.coordinate(now)
    }

    fn computed(&self) -> Result<ReadDistribution, BadParameter> {
        let writes: Vec<u64> = self.monitors.iter().map(|monitor| monitor.writes).collect();
        let reads_total = self.monitors.iter().map(|monitor| monitor.reads).sum();
        let writes_total = writes.iter().sum();
        let times = self.reported_times();
        match self.spec.reads {
            Reads::Static | Reads::TwoChoices => ReadDistribution::uniform(writes.len()),
            Reads::Writes => adaptive::by_writes(&writes, reads_total),
            Reads::WritesAndTimes => {
                adaptive::by_service_times(&times, &adaptive::by_writes(&writes, reads_total)?)
            }
            Reads::PrintedWrites => sampled(printed::algorithm_1(&writes, writes_total, reads_total)),
            Reads::PrintedWritesAndTimes => {
                let reads = printed::algorithm_1(&writes, writes_total, reads_total);
                sampled(printed::algorithm_2(&times, reads))
            }
        }
    }

    /// The reported service times. A server that has not served anything yet counts as average.
    fn reported_times(&self) -> Vec<f64> {
        let times: Vec<f64> = self.monitors.iter().map(Monitor::service_us).collect();
        let known = times.iter().filter(|time| **time > 0.0).count().max(1) as f64;
        let mean = times.iter().sum::<f64>() / known;
        times.into_iter().map(|time| if time > 0.0 { time } else { mean }).collect()
    }

    fn serve(&mut self, now: f64, choices: &mut Random, counts: bool) {
        let times = &self.spec.fabric.times;
        let owner = self.owners.pick(choices.bits());
        let is_write = choices.unit() <= self.spec.write_share;
        let server = if is_write { owner } else { self.reader(choices) };
        let service = match (is_write, server == owner) {
            (true, _) => times.lw_us,
            (false, true) => times.lr_us,
            (false, false) => times.rr_us,
        };
        let begin = self.free[server].max(now);
        let service = service * self.slowdown(server, begin);
        self.free[server] = begin + service;
        self.monitors[server].note(is_write, service);
        let latency = begin + service - now + self.spec.fabric.propagation_us;
        self.since_poll.record(latency);
        if counts {
            self.latencies.record(latency);
        }
    }

    fn reader(&self, choices: &mut Random) -> usize {
        let first = self.reads.pick(choices.bits());
        if self.spec.reads != Reads::TwoChoices {
            return first;
        }
        let second = self.reads.pick(choices.bits());
        if self.free[second] < self.free[first] { second } else { first }
    }

    fn slowdown(&self, server: usize, at: f64) -> f64 {
        let slow = |i: &Interference| i.server == server && (i.from_us..i.until_us).contains(&at);
        self.spec.interference.filter(slow).map_or(1.0, |interference| interference.factor)
    }
}

/// The distribution that clients use if probabilities are negative or do not sum to one: they draw by the
/// positive ones.
fn sampled(probabilities: Vec<f64>) -> Result<ReadDistribution, BadParameter> {
    ReadDistribution::new(probabilities.into_iter().map(|probability| probability.max(0.0)).collect())
}
