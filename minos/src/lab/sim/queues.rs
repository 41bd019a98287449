//! `minos sim queues`.

use std::path::Path;

use anyhow::{Result, bail};
use clap::{
    Args,
    builder::{PossibleValuesParser, TypedValueParser},
};
use indicatif::{ProgressBar, ProgressDrawTarget};
use minos_sim::{
    Distribution, Estimate,
    queues::{Binding, EPOCHS_DEFAULT, Outcome, Spec, run_all},
};
use serde::Serialize;

use super::{
    dispatch::ALL,
    numbers::{Range, parse_count, parse_number, parse_range},
    table::{rounded, table},
};
use crate::lab::bench::emit_either;

/// Compare ways to bind requests to workers, as queueing theory does.
///
/// Requests arrive in a Poisson stream, and their service times follow the distribution; dispatching costs
/// nothing. Times are in the units of the distribution: a small request of the bimodal one takes 1.
#[derive(Args, Debug)]
pub(crate) struct QueuesArgs {
    /// early (n x M/G/1), late (M/G/n), stealing, size-aware, size-aware-helping, or all
    #[arg(long, value_name = "MODEL", default_value = ALL, value_parser = models())]
    model: Model,

    /// Workers
    #[arg(long, value_name = "N", default_value_t = 8)]
    workers: usize,

    /// Load: share of the workers' time that requests take
    #[arg(long, value_name = "RHO", default_value_t = 0.5, conflicts_with = "sweep")]
    load: f64,

    /// Several loads, the lowest and the highest
    #[arg(long, value_name = "A..B", value_parser = parse_range)]
    sweep: Option<Range>,

    /// Distance between two loads of a sweep
    #[arg(long, value_name = "RHO", default_value_t = 0.1, requires = "sweep")]
    step: f64,

    /// bimodal, exponential, deterministic, lognormal, or file:PATH with a service time and a weight a line
    #[arg(long, value_name = "NAME", default_value = "bimodal")]
    distribution: String,

    /// Bimodal: time of a large request
    #[arg(long, value_name = "K", default_value_t = 100.0)]
    k: f64,

    /// Bimodal: percentage of large requests
    #[arg(long, value_name = "PERCENT", default_value_t = 0.125)]
    large_percent: f64,

    /// Lognormal: standard deviation of the logarithm
    #[arg(long, value_name = "SIGMA", default_value_t = 1.0)]
    sigma: f64,

    /// Percentile of the response times to look at
    #[arg(long, value_name = "PERCENT", default_value_t = 99.0)]
    percentile: f64,

    /// Percentile of the service times up to which requests are small
    #[arg(long, value_name = "PERCENT", default_value_t = 99.0)]
    small_percentile: f64,

    /// Requests, such as 500k or 10m
    #[arg(long, value_name = "N", default_value = "10m", value_parser = parse_count)]
    arrivals: u64,

    /// Percentage of the requests, from the start, that are not counted
    #[arg(long, value_name = "PERCENT", default_value = "10", value_parser = parse_number)]
    warmup_percent: f64,

    /// Requests between two plans of a size-aware design [default: a twentieth of all]
    #[arg(long, value_name = "N", value_parser = parse_count)]
    epoch_arrivals: Option<u64>,

    /// Seed of all random numbers
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,

    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// One model, or all of them.
#[derive(Clone, Copy, Debug)]
struct Model(Option<Binding>);

fn models() -> impl TypedValueParser<Value = Model> {
    let names = std::iter::once(ALL).chain(Binding::ALL.map(Binding::name));
    let of = |name: String| Model(Binding::ALL.into_iter().find(|binding| binding.name() == name));
    PossibleValuesParser::new(names).map(of)
}

#[derive(Serialize)]
struct Results {
    evidence: &'static str,
    distribution: String,
    percentile: f64,
    arrivals: u64,
    seed: u64,
    runs: Vec<Outcome>,
}

pub(super) fn run(args: &QueuesArgs) -> Result<()> {
    let specs = args.specs()?;
    let bar = ProgressBar::with_draw_target(Some(specs.len() as u64), ProgressDrawTarget::stderr_with_hz(5));
    let runs = run_all(&specs, || bar.inc(1));
    bar.finish_and_clear();
    let results = Results {
        evidence: "simulated",
        distribution: args.distribution()?.to_string(),
        percentile: args.percentile,
        arrivals: args.arrivals,
        seed: args.seed,
        runs: runs?,
    };
    Ok(emit_either(args.json, &results, &results.text())?)
}

impl QueuesArgs {
    fn specs(&self) -> Result<Vec<Spec>> {
        if !(0.001..=1.0).contains(&self.step) {
            bail!("step: {} is not allowed; allowed is 0.001 to 1", self.step);
        }
        let loads = self.sweep.map_or_else(|| vec![self.load], |range| range.points(self.step));
        let distribution = self.distribution()?;
        let spec = &|binding, load| Spec {
            binding,
            workers: self.workers,
            load,
            distribution: distribution.clone(),
            percentile: self.percentile,
            small_percentile: self.small_percentile,
            arrivals: self.arrivals,
            warmup_percent: self.warmup_percent,
            epoch_arrivals: self.epoch_arrivals.unwrap_or((self.arrivals / EPOCHS_DEFAULT).max(100)),
            seed: self.seed,
        };
        let bindings = self.model.0.map_or_else(|| Binding::ALL.to_vec(), |binding| vec![binding]);
        Ok(loads.iter().flat_map(|&load| bindings.iter().map(move |&binding| spec(binding, load))).collect())
    }

    fn distribution(&self) -> Result<Distribution> {
        Ok(match self.distribution.as_str() {
            "bimodal" => Distribution::Bimodal { k: self.k, large_percent: self.large_percent },
            "exponential" => Distribution::Exponential,
            "deterministic" => Distribution::Deterministic,
            "lognormal" => Distribution::Lognormal { sigma: self.sigma },
            other => match other.strip_prefix("file:") {
                Some(path) => Distribution::read(Path::new(path))?,
                None => bail!(
                    "distribution: {other:?} is not allowed; allowed are bimodal, exponential, \
                     deterministic, lognormal and file:PATH"
                ),
            },
        })
    }
}

impl Results {
    fn text(&self) -> String {
        let workers = self.runs.first().map_or(0, |run| run.workers);
        let percentile = format!("p{}", self.percentile);
        let header =
            ["load", "model", &percentile, "+/-", "small", "large", "mean", "p50", "p99.9", "large workers"];
        let rows = self.runs.iter().map(row);
        format!(
            "simulated: {workers} workers, {}, {} arrivals, seed {}; response times in units of service time\n{}",
            self.distribution,
            self.arrivals,
            self.seed,
            table(&header, 2, rows)
        )
    }
}

fn row(run: &Outcome) -> Vec<String> {
    let response = &run.response;
    let kind = |estimate: Estimate, count: u64| if count > 0 { rounded(estimate.value) } else { "-".into() };
    vec![
        run.load.to_string(),
        run.model.name().to_owned(),
        rounded(response.all.percentile.value),
        response.all.percentile.plus_minus.map_or_else(|| "-".into(), rounded),
        kind(response.small.percentile, response.small.count),
        kind(response.large.percentile, response.large.count),
        rounded(response.all.mean.value),
        rounded(response.all.p50),
        rounded(response.all.p999),
        run.large_workers.to_string(),
    ]
}
