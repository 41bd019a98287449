//! The queueing model, event by event (RackOut §4.2).
//!
//! Requests are a Poisson stream. Each server has one queue, first come first served, and requests reach it
//! in the order in which they were sent. So the time at which a server becomes free is all its state, and no
//! calendar of events is needed.

use hdrhistogram::Histogram;
use minos_rack::{Alias, BadParameter};

use crate::{Model, Random};

/// Fewest and most requests.
const ARRIVALS: std::ops::RangeInclusive<u64> = 1_000..=10_000_000_000;

/// Longer latencies, of an hour and more, are recorded as this.
const NANOSECONDS_MAX: u64 = 1 << 42;

/// The load of a run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Load {
    /// Requests per microsecond, of the whole cluster.
    pub rate: f64,
    /// Requests, the first tenth of which is not counted.
    pub arrivals: u64,
    /// The seed of all random choices.
    pub seed: u64,
}

/// How long requests took, from when they were sent to the reply.
#[derive(Clone, Debug)]
pub struct Latencies {
    /// Nanoseconds.
    histogram: Histogram<u64>,
    sum_us: f64,
    /// For each server, the share of the time in which it was busy.
    pub busy: Vec<f64>,
}

impl Load {
    fn check(&self) -> Result<(), BadParameter> {
        BadParameter::unless_positive("rate", self.rate)?;
        let allowed = format_args!("{} to {}", ARRIVALS.start(), ARRIVALS.end()).to_string();
        let fault = || BadParameter::new("arrivals", self.arrivals, allowed);
        ARRIVALS.contains(&self.arrivals).then_some(()).ok_or_else(fault)
    }
}

impl Latencies {
    pub(crate) fn new(servers: usize) -> Self {
        let histogram = Histogram::new_with_bounds(1, NANOSECONDS_MAX, 3);
        let histogram = histogram.expect("the bounds and digits of the histogram are within what it allows");
        Self { histogram, sum_us: 0.0, busy: vec![0.0; servers] }
    }

    #[inline]
    pub(crate) fn record(&mut self, latency_us: f64) {
        self.histogram.saturating_record((latency_us * 1e3) as u64);
        self.sum_us += latency_us;
    }

    /// In microseconds.
    pub fn percentile(&self, percentile: f64) -> f64 {
        self.histogram.value_at_quantile(percentile / 100.0) as f64 / 1e3
    }

    /// In microseconds.
    pub fn mean(&self) -> f64 {
        self.sum_us / self.histogram.len().max(1) as f64
    }

    /// Requests that were counted.
    pub fn count(&self) -> u64 {
        self.histogram.len()
    }
}

/// Runs the model.
///
/// # Errors
/// The rate or the number of arrivals is out of bounds.
pub fn simulate(model: &Model, load: &Load) -> Result<Latencies, BadParameter> {
    load.check()?;
    let owners = Alias::new(&model.shares)?;
    let mut gaps = Random::new(load.seed, 1);
    let mut choices = Random::new(load.seed, 2);
    let mut free = vec![0.0f64; model.servers()];
    let mut latencies = Latencies::new(model.servers());
    let (gap_us, warmup) = (1.0 / load.rate, load.arrivals / 10);
    let mut now = 0.0;
    for arrival in 0..load.arrivals {
        now += gaps.exponential() * gap_us;
        let (server, service) = serve(model, &owners, &mut choices);
        let end = free[server].max(now) + service;
        free[server] = end;
        latencies.busy[server] += service;
        if arrival >= warmup {
            latencies.record(end - now + model.fabric.propagation_us);
        }
    }
    latencies.busy.iter_mut().for_each(|busy| *busy /= now);
    Ok(latencies)
}

/// The server of the next request, and its service time in microseconds.
#[inline]
fn serve(model: &Model, owners: &Alias, choices: &mut Random) -> (usize, f64) {
    let times = &model.fabric.times;
    let owner = owners.pick(choices.bits());
    if choices.unit() <= model.write_share {
        return (owner, times.lw_us * model.slowdown[owner]);
    }
    let unit = owner / model.gf;
    let server = unit * model.gf + model.reads[unit].pick(choices.bits());
    let service = if server == owner { times.lr_us } else { times.rr_us };
    (server, service * model.slowdown[server])
}
