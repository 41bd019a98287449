//! Ways to bind requests to workers, in the abstract (Minos §2.2).
//!
//! Requests arrive in a Poisson stream; each takes its service time, at any worker. Dispatching costs
//! nothing here: the models differ only in which request waits for which. Requests are not preempted.

mod arrivals;
mod figure2;
mod floor;
mod models;
mod size_aware;

use minos_base::limits::WORKERS_MAX;
use serde::Serialize;

pub use figure2::{Figure2, Figure2Row, figure2};

use crate::{
    Distribution, DistributionError, Random, Recorder, ServiceTimes, Summary, parallel,
    queues::{
        arrivals::Arrivals,
        floor::{Event, Floor},
        models::{Early, Late, Model, Stealing},
        size_aware::SizeAware,
    },
};

/// Fewest and most requests of a run.
pub const ARRIVALS: std::ops::RangeInclusive<u64> = 1_000..=1_000_000_000;
/// Lowest and highest load.
pub const LOADS: std::ops::RangeInclusive<f64> = 0.01..=0.99;
/// Default number of control epochs of a run: each must see enough large requests to estimate their share.
pub const EPOCHS_DEFAULT: u64 = 20;

/// How requests come to workers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Binding {
    /// n x M/G/1: each request goes to the queue of a random worker, as by the hash of its key.
    Early,
    /// M/G/n: one queue, from which the next free worker takes.
    Late,
    /// Early, but a worker with nothing to do takes from the queues of others.
    Stealing,
    /// Minos: small requests early, large ones at the worker that owns their size.
    SizeAware,
    /// The same, and a large worker with nothing to do takes one small request at a time (Minos §6.1).
    SizeAwareHelping,
}

impl Binding {
    /// All of them.
    pub const ALL: [Self; 5] =
        [Self::Early, Self::Late, Self::Stealing, Self::SizeAware, Self::SizeAwareHelping];

    /// As on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Early => "early",
            Self::Late => "late",
            Self::Stealing => "stealing",
            Self::SizeAware => "size-aware",
            Self::SizeAwareHelping => "size-aware-helping",
        }
    }
}

/// One run.
#[derive(Clone, Debug, PartialEq)]
pub struct Spec {
    /// How requests come to workers.
    pub binding: Binding,
    /// How many workers there are.
    pub workers: usize,
    /// Share of the workers' time that the requests take.
    pub load: f64,
    /// How long requests take.
    pub distribution: Distribution,
    /// Percentile of the response times to report.
    pub percentile: f64,
    /// Percentile of the service times up to which requests are small, for the size-aware designs, and
    /// for telling small from large where the distribution does not.
    pub small_percentile: f64,
    /// Requests, those of the warm-up included.
    pub arrivals: u64,
    /// Percent of the requests, from the first on, that are not counted.
    pub warmup_percent: f64,
    /// Requests that one control epoch sees on average.
    pub epoch_arrivals: u64,
    /// The seed of all random choices.
    pub seed: u64,
}

/// Which parameter is out of bounds.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum SpecError {
    /// Too few or too many workers.
    #[error("workers: {0} is not allowed; allowed is 1 to {WORKERS_MAX}")]
    Workers(usize),
    /// No load, or one under which queues grow without end.
    #[error("load: {0} is not allowed; allowed is {min} to {max}", min = LOADS.start(), max = LOADS.end())]
    Load(f64),
    /// No percentile.
    #[error("{0}: {1} is not allowed; allowed is above 0, below 100")]
    Percentile(&'static str, f64),
    /// Too few or too many requests.
    #[error("arrivals: {0} is not allowed; allowed is {min} to {max}", min = ARRIVALS.start(), max = ARRIVALS.end())]
    Arrivals(u64),
    /// A warm-up that leaves no request to count.
    #[error("warmup-percent: {0} is not allowed; allowed is 0 to 90")]
    Warmup(f64),
    /// No epoch.
    #[error("epoch-arrivals: {0} is not allowed; allowed is 100 or more")]
    Epoch(u64),
    /// No distribution.
    #[error(transparent)]
    Distribution(#[from] DistributionError),
}

impl Spec {
    /// Ten million requests of the paper's (Minos §2.2) at eight workers, K = 100.
    pub fn new(binding: Binding, load: f64) -> Self {
        Self {
            binding,
            workers: 8,
            load,
            distribution: Distribution::Bimodal { k: 100.0, large_percent: 0.125 },
            percentile: 99.0,
            small_percentile: 99.0,
            arrivals: 10_000_000,
            warmup_percent: 10.0,
            epoch_arrivals: 10_000_000 / EPOCHS_DEFAULT,
            seed: 1,
        }
    }

    /// Checks that all parameters are within bounds.
    pub fn check(&self) -> Result<(), SpecError> {
        if !(1..=WORKERS_MAX).contains(&self.workers) {
            return Err(SpecError::Workers(self.workers));
        }
        if !LOADS.contains(&self.load) {
            return Err(SpecError::Load(self.load));
        }
        for (name, percentile) in
            [("percentile", self.percentile), ("small-percentile", self.small_percentile)]
        {
            if !(percentile > 0.0 && percentile < 100.0) {
                return Err(SpecError::Percentile(name, percentile));
            }
        }
        if !ARRIVALS.contains(&self.arrivals) {
            return Err(SpecError::Arrivals(self.arrivals));
        }
        if !(0.0..=90.0).contains(&self.warmup_percent) {
            return Err(SpecError::Warmup(self.warmup_percent));
        }
        if self.epoch_arrivals < 100 {
            return Err(SpecError::Epoch(self.epoch_arrivals));
        }
        Ok(self.distribution.check()?)
    }
}

/// The results of one run. Times are in the units of the distribution.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Outcome {
    /// How requests came to workers.
    pub model: Binding,
    /// Number of workers.
    pub workers: usize,
    /// Load that was asked for.
    pub load: f64,
    /// Requests a unit of time.
    pub rate: f64,
    /// Mean service time.
    pub mean_service: f64,
    /// Response times.
    pub response: Summary,
    /// Share of the time that each worker was busy.
    pub busy: Vec<f64>,
    /// Workers that served nothing but large requests in the end.
    pub large_workers: usize,
    /// Requests in queues and at workers when the last one had arrived: many if there were too few workers of
    /// one kind.
    pub left_at_end: u64,
}

/// Runs `spec` to its end.
pub fn run(spec: &Spec) -> Result<Outcome, SpecError> {
    spec.check()?;
    let times = ServiceTimes::new(&spec.distribution, spec.small_percentile)?;
    let workers = spec.workers;
    Ok(match spec.binding {
        Binding::Early => simulate(spec, &times, Early::new(workers)),
        Binding::Late => simulate(spec, &times, Late::new()),
        Binding::Stealing => simulate(spec, &times, Stealing::new(workers)),
        Binding::SizeAware => simulate(spec, &times, SizeAware::new(spec, &times, false)),
        Binding::SizeAwareHelping => simulate(spec, &times, SizeAware::new(spec, &times, true)),
    })
}

/// Runs all of `specs`, as many at a time as there are cores. Calls `done` after each.
pub fn run_all(specs: &[Spec], done: impl Fn() + Sync) -> Result<Vec<Outcome>, SpecError> {
    specs.iter().try_for_each(Spec::check)?;
    parallel::map(specs, done, run)
}

/// The loop over events, compiled for each model.
fn simulate<M: Model>(spec: &Spec, times: &ServiceTimes, mut model: M) -> Outcome {
    let mut arrivals = Arrivals::new(spec, times);
    let epoch_ticks = (arrivals.gap_ticks() * spec.epoch_arrivals as f64) as u64;
    let resolution = (times.mean_ticks() / 1e4) as u64;
    let mut recorder = Recorder::new(arrivals.counted(), spec.percentile, resolution);
    let mut floor = Floor::new(spec.workers, Random::new(spec.seed, 2));
    let (mut completed, mut left_at_end, mut end) = (0, 0, 1);
    if M::HAS_EPOCHS {
        floor.calendar.after(epoch_ticks, Event::Epoch);
    }
    loop {
        // Arrivals come in order, so the next one bypasses the calendar.
        if let Some(at) = arrivals.next_before(floor.calendar.next_at()) {
            floor.calendar.advance_to(at);
            model.arrive(arrivals.take(), &mut floor);
            if arrivals.are_over() {
                left_at_end = spec.arrivals - completed;
            }
            continue;
        }
        match floor.calendar.take_next() {
            Some(Event::Done(worker)) => {
                let job = floor.end(usize::from(worker));
                completed += 1;
                end = floor.calendar.now();
                if job.counts {
                    let response = floor.calendar.now() - job.arrived;
                    recorder.record(response, response - job.ticks, job.large);
                }
                model.freed(usize::from(worker), &mut floor);
            }
            Some(Event::Epoch) if !arrivals.are_over() => {
                model.epoch(&mut floor);
                floor.calendar.after(epoch_ticks, Event::Epoch);
            }
            Some(Event::Epoch) => {}
            None => break,
        }
    }
    debug_assert_eq!(completed, spec.arrivals);
    Outcome {
        model: spec.binding,
        workers: spec.workers,
        load: spec.load,
        rate: spec.load * spec.workers as f64 / spec.distribution.mean(),
        mean_service: spec.distribution.mean(),
        response: recorder.finish(|ticks| times.units(ticks)),
        busy: floor.busy.iter().map(|&ticks| ticks as f64 / end as f64).collect(),
        large_workers: model.large_workers(),
        left_at_end,
    }
}
