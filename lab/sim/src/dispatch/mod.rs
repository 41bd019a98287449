//! How requests come to workers, with what that costs (Minos §5, §6).
//!
//! In [`queues`](crate::queues) a free worker gets a request at no cost. Here a worker takes the steps of
//! the server's worker, by the same code of `sched`: it polls RX queues in bursts of 32, looks up sizes,
//! puts requests in rings, serves them, helps others, and gets a new plan once an epoch. Each step takes
//! the time that [`Costs`] says. Replies go over one link, which takes packets from the workers' TX queues
//! in turn. Requests come over another link, from the clients in turn; each client has a processor, which
//! may be busy too.
//!
//! Not simulated: large values that are stored in slices, processor caches (except after an idle period),
//! contention for locks and rings, lost packets (a full RX queue drops, which is counted), and the
//! operating system (except pauses).

mod client;
mod connections;
mod costs;
mod fit;
mod link;
mod processor;
mod series;
mod server;
mod ticks;
mod worker;
mod workload;

use minos_base::limits::{PACKET_BYTES, WORKERS_MAX};
use minos_sched::{ConfigError, ControlConfig, LargeOrder, Options, Policy, Standby, Threshold};
use serde::Serialize;

pub use costs::{AfterIdle, ClientCosts, Costs, CostsError, Pause, Speed};
pub use fit::{Fitted, fit, residuals};
pub use minos_sched::Design;
pub use series::Window;
pub use worker::WorkerLoad;
pub use workload::{Mix, MixError};

use self::server::Server;
use crate::{Summary, parallel};

/// Fewest and most requests of a run.
pub const REQUESTS: std::ops::RangeInclusive<u64> = 1_000..=1_000_000_000;
/// Fewest and most clients.
pub const CLIENTS: std::ops::RangeInclusive<usize> = 1..=65_536;
/// Most connections.
pub const CONNECTIONS_MAX: usize = 1_000_000;
/// Default number of control epochs of a run: each must see enough large requests to estimate their share.
/// The first epochs must lie in the warm-up, because nothing is known before.
pub const EPOCHS_DEFAULT: u64 = 20;
/// Relative distance at which the search for a highest throughput ends.
const SEARCH_PRECISION: f64 = 0.01;

/// Which TX queues a worker has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TxQueues {
    /// As the design has it ([`Design::separates_replies`]).
    Design,
    /// One for all replies.
    One,
    /// One for replies of one packet, one for longer ones.
    Two,
}

impl TxQueues {
    /// True if workers of `design` have a separate TX queue for long replies.
    fn are_two(self, design: Design) -> bool {
        match self {
            Self::Design => design.separates_replies(),
            Self::One => false,
            Self::Two => true,
        }
    }
}

/// One run.
#[derive(Clone, Debug, PartialEq)]
pub struct Spec {
    /// The dispatch design.
    pub design: Design,
    /// Workers that only hand requests on, with [`Design::HandOff`].
    pub handoff_workers: usize,
    /// Idle workers take small requests, as with `minos serve --steal on`.
    pub steal: bool,
    /// How a worker on standby serves large requests.
    pub standby: Standby,
    /// How many workers there are.
    pub workers: usize,
    /// Requests a second.
    pub rate: f64,
    /// The mix of requests.
    pub mix: Mix,
    /// The costs of all steps.
    pub costs: Costs,
    /// Percentile of the latencies to report.
    pub percentile: f64,
    /// Percentile of the sizes up to which requests are small, for the designs that look at sizes.
    pub small_percentile: f64,
    /// Largest small value, for those: by that percentile, or a fixed size.
    pub threshold: Threshold,
    /// In which order a worker serves the large requests of its ring, without a bound on how long one waits.
    pub large_order: LargeOrder,
    /// Value bytes of a large reply that are made at a time.
    pub slice_bytes: u64,
    /// Requests, those of the warm-up included.
    pub requests: u64,
    /// Percent of the requests, from the first on, that are not counted.
    pub warmup_percent: f64,
    /// Requests that a control epoch sees on average. The paper's takes a second, longer than most runs
    /// here.
    pub epoch_requests: u64,
    /// Clients, with a flow on the link towards the server each and, where the costs say so, one processor.
    pub clients: usize,
    /// Connections of all clients together, each to one RX queue. On a connection, requests behind a large
    /// request that was passed on wait for it. With 0 none wait, and requests go to RX queues as in the
    /// paper.
    pub connections: usize,
    /// Requests that an RX queue holds; further ones are dropped.
    pub queue_max: usize,
    /// Requests that a ring holds; a worker that has one more waits.
    pub ring_max: usize,
    /// TX queues of a worker.
    pub tx_queues: TxQueues,
    /// Packets that a TX queue holds: its descriptors. A worker that has more blocks, and serves no request.
    pub tx_max: u64,
    /// Percent of the requests that get a reply; for the others everything is done but sending it (Minos
    /// §6.4).
    pub reply_percent: f64,
    /// The large requests' share in percent, in phases of equal length; empty for that of the mix (Minos
    /// §6.6).
    pub phases: Vec<f64>,
    /// Number of equal time spans with latencies of their own in the results.
    pub windows: u32,
    /// The seed of all random choices.
    pub seed: u64,
}

/// Which parameter is out of bounds.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum SpecError {
    /// No rate.
    #[error("rate: {0} is not allowed; allowed is 1 to 1e9 requests a second")]
    Rate(f64),
    /// A percentile, or a share of the requests.
    #[error("{0}: {1} is not allowed; allowed is {2}")]
    Percent(&'static str, f64, &'static str),
    /// Too few or too many requests.
    #[error("requests: {0} is not allowed; allowed is {min} to {max}", min = REQUESTS.start(), max = REQUESTS.end())]
    Requests(u64),
    /// None, or too many.
    #[error("clients: {0} is not allowed; allowed is {min} to {max}", min = CLIENTS.start(), max = CLIENTS.end())]
    Clients(usize),
    /// Too many connections.
    #[error("connections: {0} is not allowed; allowed is 0 to {CONNECTIONS_MAX}")]
    Connections(usize),
    /// No epoch.
    #[error("epoch-requests: {0} is not allowed; allowed is 100 or more")]
    Epoch(u64),
    /// No room.
    #[error("{0}: {1} is not allowed; allowed is 1 or more")]
    Room(&'static str, usize),
    /// No highest latency.
    #[error("slo: {0} is not allowed; allowed is above 0")]
    Slo(f64),
    /// No mix.
    #[error(transparent)]
    Mix(#[from] MixError),
    /// No costs.
    #[error(transparent)]
    Costs(#[from] CostsError),
    /// The policy refuses.
    #[error(transparent)]
    Policy(#[from] ConfigError),
}

impl Spec {
    /// Default of the value bytes of a large reply that are made at a time.
    pub const SLICE_BYTES: u64 = 32 * PACKET_BYTES;

    /// Two million requests of the paper's default workload on its platform.
    pub fn new(design: Design, rate: f64) -> Self {
        Self {
            design,
            handoff_workers: 1,
            steal: false,
            standby: Standby::TurnsLarge,
            workers: 8,
            rate,
            mix: Mix::PAPER,
            costs: Costs::kernel_bypass(),
            percentile: 99.0,
            small_percentile: 99.0,
            threshold: Threshold::Auto,
            large_order: LargeOrder::Fifo,
            slice_bytes: Self::SLICE_BYTES,
            requests: 2_000_000,
            warmup_percent: 10.0,
            epoch_requests: 2_000_000 / EPOCHS_DEFAULT,
            // Threads of the paper's (Minos §5.4).
            clients: 56,
            connections: 0,
            queue_max: 1 << 16,
            ring_max: 4096,
            tx_queues: TxQueues::Design,
            tx_max: 1024,
            reply_percent: 100.0,
            phases: Vec::new(),
            windows: 0,
            seed: 1,
        }
    }

    /// Checks that all parameters are within bounds.
    pub fn check(&self) -> Result<(), SpecError> {
        if !(1..=WORKERS_MAX).contains(&self.workers) {
            return Err(ConfigError::Workers(self.workers).into());
        }
        if !(1.0..=1e9).contains(&self.rate) {
            return Err(SpecError::Rate(self.rate));
        }
        for (name, percent) in [("percentile", self.percentile), ("small-percentile", self.small_percentile)]
        {
            if !(percent > 0.0 && percent < 100.0) {
                return Err(SpecError::Percent(name, percent, "above 0, below 100"));
            }
        }
        if !(self.reply_percent > 0.0 && self.reply_percent <= 100.0) {
            return Err(SpecError::Percent("reply-percent", self.reply_percent, "above 0, at most 100"));
        }
        for &large_percent in &self.phases {
            Mix { large_percent, ..self.mix }.check()?;
        }
        if !(0.0..=90.0).contains(&self.warmup_percent) {
            return Err(SpecError::Percent("warmup-percent", self.warmup_percent, "0 to 90"));
        }
        if !REQUESTS.contains(&self.requests) {
            return Err(SpecError::Requests(self.requests));
        }
        if self.epoch_requests < 100 {
            return Err(SpecError::Epoch(self.epoch_requests));
        }
        if !CLIENTS.contains(&self.clients) {
            return Err(SpecError::Clients(self.clients));
        }
        if self.connections > CONNECTIONS_MAX {
            return Err(SpecError::Connections(self.connections));
        }
        let (slice_bytes, tx_max) = (self.slice_bytes as usize, self.tx_max as usize);
        for (name, room) in [
            ("queue-max", self.queue_max),
            ("ring-max", self.ring_max),
            ("tx-max", tx_max),
            ("slice", slice_bytes),
        ] {
            if room == 0 {
                return Err(SpecError::Room(name, room));
            }
        }
        self.mix.check()?;
        Ok(self.costs.check()?)
    }

    fn policy(&self) -> Result<Policy, SpecError> {
        let config = ControlConfig {
            percentile: self.small_percentile,
            threshold: self.threshold,
            ..ControlConfig::new(self.workers)
        };
        let Self { handoff_workers, steal, standby, .. } = *self;
        let options = Options { handoff_workers, steal, standby };
        Ok(Policy::new(self.design, config, options)?)
    }
}

/// The results of one run.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Outcome {
    /// Name of the dispatch design.
    pub design: &'static str,
    /// True if large replies had separate TX queues.
    pub large_tx_queues: bool,
    /// Requests a second that clients sent.
    pub offered_rps: f64,
    /// Requests a second that were answered, from the first that counts to the last.
    pub achieved_rps: f64,
    /// Requests that found their RX queue full.
    pub dropped: u64,
    /// Times that a worker found a ring full.
    pub ring_full: u64,
    /// Times that a worker found a TX queue full.
    pub tx_full: u64,
    /// Latencies as clients see them, and how long requests lay in queues and rings.
    pub latency_us: Summary,
    /// Share of the time that the link from the server was busy.
    pub link_busy: f64,
    /// Share of the time that clients' processors were busy; nothing, if what they do takes no time.
    #[serde(skip_serializing_if = "costs::is_nothing")]
    pub clients_busy: f64,
    /// Share of the time that they sent.
    #[serde(skip_serializing_if = "costs::is_nothing")]
    pub clients_sending: f64,
    /// Workers that were large in the end.
    pub large_workers: usize,
    /// The load of each worker.
    pub workers: Vec<WorkerLoad>,
    /// The results of each time span, the warm-up included.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub windows: Vec<Window>,
}

impl Outcome {
    /// Share of the time that the busiest worker was busy.
    pub fn busiest(&self) -> f64 {
        self.workers.iter().map(|worker| worker.busy).fold(0.0, f64::max)
    }
}

/// Runs `spec` to its end.
pub fn run(spec: &Spec) -> Result<Outcome, SpecError> {
    run_within(spec, f64::MAX)
}

/// Runs `spec` to its end, or until the percentile can no longer stay within `limit_us`; then it is above.
fn run_within(spec: &Spec, limit_us: f64) -> Result<Outcome, SpecError> {
    spec.check()?;
    Ok(Server::new(spec, spec.policy()?).within(limit_us).run())
}

/// Runs all of `specs`, as many at a time as there are cores. Calls `done` after each.
pub fn run_all(specs: &[Spec], done: impl Fn() + Sync) -> Result<Vec<Outcome>, SpecError> {
    specs.iter().try_for_each(Spec::check)?;
    parallel::map(specs, done, run)
}

/// [`throughput_under`] for all of `specs`, in their order, as many at a time as there are cores. Calls
/// `done` after each.
pub fn throughput_under_all(
    specs: &[Spec],
    slo_us: f64,
    done: impl Fn() + Sync,
) -> Result<Vec<Option<Outcome>>, SpecError> {
    parallel::map(specs, done, |spec| throughput_under(spec, slo_us))
}

/// The highest rate, at most that of `spec`, at which the percentile of all latencies stays within
/// `slo_us` and nothing is lost (Minos §5.4); `None` if it does at no rate.
pub fn throughput_under(spec: &Spec, slo_us: f64) -> Result<Option<Outcome>, SpecError> {
    if !(slo_us > 0.0 && slo_us.is_finite()) {
        return Err(SpecError::Slo(slo_us));
    }
    let within = |rate: f64| -> Result<Option<Outcome>, SpecError> {
        let outcome = run_within(&Spec { rate, ..spec.clone() }, slo_us)?;
        let holds = outcome.latency_us.all.percentile.value <= slo_us
            && outcome.dropped == 0
            && outcome.achieved_rps > 0.99 * rate;
        Ok(holds.then_some(outcome))
    };
    if let Some(outcome) = within(spec.rate)? {
        return Ok(Some(outcome));
    }
    let (mut low, mut high, mut best) = (spec.rate / 256.0, spec.rate, None);
    // By ratios: the precision is relative to the rate.
    while high / low > 1.0 + SEARCH_PRECISION {
        let middle = libm::sqrt(low * high);
        match within(middle)? {
            Some(outcome) => (low, best) = (middle, Some(outcome)),
            None => high = middle,
        }
    }
    Ok(best)
}
