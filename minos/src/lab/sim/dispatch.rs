//! `minos sim dispatch`.

use anyhow::{Result, bail};
use clap::{
    Args, ValueEnum,
    builder::{PossibleValuesParser, TypedValueParser},
};
use indicatif::{ProgressBar, ProgressDrawTarget};
use minos_sim::dispatch::{
    Costs, Design, EPOCHS_DEFAULT, Mix, Outcome, Spec, TxQueues, run_all, throughput_under_all,
};
use serde::Serialize;

use super::{
    numbers::{Range, parse_count, parse_number, parse_range},
    table::{rounded, table},
};
use crate::{
    lab::bench::emit_either,
    serve::{Switch, names},
};
use minos_sched::{HANDOFF_WORKERS_MAX, LargeOrder, Standby, Threshold};

/// Compare the designs, costs of dispatching included: bursts, rings, control epochs and a link.
///
/// Workers run the same decision code as the server. The requests are those of Minos' evaluation: 40 % of the
/// small ones tiny, zipf 0.99, a few for large items.
#[derive(Args, Debug)]
pub(crate) struct DispatchArgs {
    /// keyhash (HKH), handoff (SHO), stealing (HKH+WS), size-aware (Minos), helping, work-conserving, or all
    #[arg(long, default_value = ALL, value_parser = designs())]
    dispatch: Dispatch,

    /// Workers that only hand off, for handoff: 1 to 3 [default: each in turn]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(1..=HANDOFF_WORKERS_MAX as i64))]
    handoff_workers: Option<u8>,

    /// Let an idle worker take small requests, as minos serve does: a large worker from its own RX queue, a
    /// small worker from those of others; for designs that do not help anyway
    #[arg(long, value_enum, default_value_t = Switch::Off)]
    steal: Switch,

    /// Role of a worker on standby when large requests come: large, it becomes a large worker until the next
    /// plan, as in the paper; slices, it serves them between two polls of its RX queue, as minos serve does
    #[arg(long, value_enum, default_value_t = OnStandby::Large)]
    standby: OnStandby,

    /// Workers
    #[arg(long, value_name = "N", default_value_t = 8)]
    workers: usize,

    /// Requests a second, such as 2.25m; with --slo the highest that is tried
    #[arg(long, value_name = "OPS", default_value = "2m", value_parser = parse_number, conflicts_with = "sweep")]
    rate: f64,

    /// Several rates, the lowest and the highest
    #[arg(long, value_name = "A..B", value_parser = parse_range, requires = "step")]
    sweep: Option<Range>,

    /// Distance between two rates of a sweep
    #[arg(long, value_name = "OPS", value_parser = parse_number)]
    step: Option<f64>,

    /// Find the highest rate at which the percentile of the latencies stays within this many microseconds
    #[arg(long, value_name = "US", conflicts_with = "sweep")]
    slo: Option<f64>,

    /// kernel-bypass, figure-1, sockets, or a file
    #[arg(long, value_name = "NAME|FILE", default_value = "kernel-bypass")]
    costs: String,

    /// Percentage of requests for large items (p_L)
    #[arg(long, value_name = "PERCENT", default_value_t = Mix::PAPER.large_percent)]
    large_percent: f64,

    /// The largest item, in bytes (s_L)
    #[arg(long, value_name = "BYTES", default_value = "500k", value_parser = parse_count)]
    large_max: u64,

    /// Share of GETs
    #[arg(long, value_name = "SHARE", default_value_t = Mix::PAPER.get_ratio)]
    get_ratio: f64,

    /// Exponent of the popularity
    #[arg(long, value_name = "EXPONENT", default_value_t = Mix::PAPER.zipf)]
    zipf: f64,

    /// Percentile of the latencies to look at
    #[arg(long, value_name = "PERCENT", default_value_t = 99.0)]
    percentile: f64,

    /// Percentile of the sizes up to which requests are small
    #[arg(long, value_name = "PERCENT", default_value_t = 99.0)]
    small_percentile: f64,

    /// Largest small value: auto, by that percentile, or a fixed size
    #[arg(long, value_name = "auto|BYTES", default_value = "auto")]
    threshold: Threshold,

    /// Order in which a worker serves the large requests of its ring; fifo runs to completion
    #[arg(long, default_value = "fifo", value_parser = names::<LargeOrder>(LargeOrder::NAMES))]
    large_order: LargeOrder,

    /// Bytes of a large reply that are composed at a time [default: 32 packets]
    #[arg(long, value_name = "BYTES", value_parser = parse_count)]
    slice: Option<u64>,

    /// TX queues of a worker: design, as the design has them; one; two, one of them for replies of several
    /// packets
    #[arg(long, value_enum, default_value_t = Tx::Design)]
    tx_queues: Tx,

    /// Packets that a TX queue holds; a worker with more waits, and serves nothing meanwhile
    #[arg(long, value_name = "N", default_value_t = 1024)]
    tx_max: u64,

    /// Clients; if the costs of a client are known, each client does one thing at a time
    #[arg(long, value_name = "N", default_value_t = 56)]
    clients: usize,

    /// Connections of all clients together: requests behind a large request that was handed over wait for it
    /// [default: none, as with datagrams].
    #[arg(long, default_value_t = 0, value_name = "N", hide_default_value = true)]
    connections: usize,

    /// Requests of a run, such as 500k or 2m
    #[arg(long, value_name = "N", default_value = "2m", value_parser = parse_count)]
    requests: u64,

    /// Percentage of the requests, from the start, that are not counted
    #[arg(long, value_name = "PERCENT", default_value_t = 10.0)]
    warmup_percent: f64,

    /// Requests between two plans [default: a twentieth of all]
    #[arg(long, value_name = "N", value_parser = parse_count)]
    epoch_requests: Option<u64>,

    /// Seed of all random numbers
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,

    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

pub(super) const ALL: &str = "all";

#[derive(Clone, Copy, Debug)]
struct Dispatch(Option<Design>);

fn designs() -> impl TypedValueParser<Value = Dispatch> {
    let names = std::iter::once(ALL).chain(Design::ALL.map(Design::name));
    PossibleValuesParser::new(names).map(|name| Dispatch(name.parse().ok()))
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum OnStandby {
    Large,
    Slices,
}

impl From<OnStandby> for Standby {
    fn from(standby: OnStandby) -> Self {
        match standby {
            OnStandby::Large => Self::TurnsLarge,
            OnStandby::Slices => Self::Slices,
        }
    }
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Tx {
    Design,
    One,
    Two,
}

impl From<Tx> for TxQueues {
    fn from(tx: Tx) -> Self {
        match tx {
            Tx::Design => Self::Design,
            Tx::One => Self::One,
            Tx::Two => Self::Two,
        }
    }
}

#[derive(Serialize)]
struct Results {
    evidence: &'static str,
    workers: usize,
    costs: Costs,
    mix: Mix,
    percentile: f64,
    slo_us: Option<f64>,
    requests: u64,
    seed: u64,
    runs: Vec<Outcome>,
}

pub(super) fn run(args: &DispatchArgs) -> Result<()> {
    let specs = args.specs()?;
    let bar = ProgressBar::with_draw_target(Some(specs.len() as u64), ProgressDrawTarget::stderr_with_hz(5));
    let done = || bar.inc(1);
    let runs = match args.slo {
        Some(slo_us) => {
            throughput_under_all(&specs, slo_us, done).map(|found| found.into_iter().flatten().collect())
        }
        None => run_all(&specs, done),
    };
    bar.finish_and_clear();
    let results = Results {
        evidence: "simulated",
        workers: args.workers,
        costs: specs[0].costs.clone(),
        mix: specs[0].mix,
        percentile: args.percentile,
        slo_us: args.slo,
        requests: args.requests,
        seed: args.seed,
        runs: runs?,
    };
    Ok(emit_either(args.json, &results, &results.text())?)
}

impl DispatchArgs {
    fn specs(&self) -> Result<Vec<Spec>> {
        let rates = match (self.sweep, self.step) {
            (Some(range), Some(step)) if step > 0.0 => range.points(step),
            (Some(_), Some(step)) => bail!("step: {step} is not allowed; allowed is above 0"),
            _ => vec![self.rate],
        };
        let costs = Costs::named(&self.costs)?;
        let mix = Mix {
            large_percent: self.large_percent,
            large_max: self.large_max,
            get_ratio: self.get_ratio,
            zipf: self.zipf,
        };
        let designs = self.designs();
        let mut specs = Vec::with_capacity(rates.len() * designs.len());
        for rate in rates {
            specs.extend(designs.iter().map(|&(design, handoff_workers)| Spec {
                handoff_workers,
                steal: self.steal == Switch::On,
                standby: self.standby.into(),
                workers: self.workers,
                mix,
                costs: costs.clone(),
                percentile: self.percentile,
                small_percentile: self.small_percentile,
                threshold: self.threshold,
                large_order: self.large_order,
                tx_queues: self.tx_queues.into(),
                tx_max: self.tx_max,
                clients: self.clients,
                connections: self.connections,
                slice_bytes: self.slice.unwrap_or(Spec::SLICE_BYTES),
                requests: self.requests,
                warmup_percent: self.warmup_percent,
                epoch_requests: self.epoch_requests.unwrap_or((self.requests / EPOCHS_DEFAULT).max(100)),
                seed: self.seed,
                ..Spec::new(design, rate)
            }));
        }
        specs.iter().try_for_each(Spec::check)?;
        Ok(specs)
    }

    /// The designs to run, each with its number of hand-off workers; with `all`, those that the number of
    /// workers allows.
    fn designs(&self) -> Vec<(Design, usize)> {
        let handoff = match self.handoff_workers {
            Some(workers) => vec![usize::from(workers)],
            None => (1..=HANDOFF_WORKERS_MAX).filter(|&handoff| handoff < self.workers).collect(),
        };
        let variants = |design: Design| match design {
            Design::HandOff => handoff.iter().map(|&workers| (design, workers)).collect(),
            _ => vec![(design, 1)],
        };
        match self.dispatch.0 {
            // Kept, so that the check refuses it by name.
            Some(Design::HandOff) if self.workers < 2 => vec![(Design::HandOff, 1)],
            Some(design) => variants(design),
            None => Design::ALL.into_iter().flat_map(variants).collect(),
        }
    }
}

impl Results {
    fn text(&self) -> String {
        let percentile = format!("p{}", self.percentile);
        let header = [
            "dispatch",
            "offered, kops",
            "achieved",
            &percentile,
            "small",
            "p99.9",
            "large",
            "large p99.9",
            "p50",
            "link %",
            "busy %",
            "large workers",
            "dropped",
        ];
        let slo =
            self.slo_us.map_or_else(String::new, |us| format!("; highest rate with {percentile} <= {us} us"));
        let Mix { large_percent, large_max, get_ratio, zipf } = self.mix;
        format!(
            "simulated: {} workers, costs {}; p_L {large_percent} %, s_L {large_max} B, GETs {get_ratio}, zipf {zipf}; \
             {} requests, seed {}; latencies in us{slo}\n{}",
            self.workers,
            self.costs.source,
            self.requests,
            self.seed,
            table(&header, 1, self.runs.iter().map(row))
        )
    }
}

fn row(run: &Outcome) -> Vec<String> {
    let latency = &run.latency_us;
    let large = |us| if latency.large.count > 0 { rounded(us) } else { "-".to_owned() };
    vec![
        format!("{}{}", run.design, if run.large_tx_queues { ", large TX queue" } else { "" }),
        rounded(run.offered_rps / 1e3),
        rounded(run.achieved_rps / 1e3),
        rounded(latency.all.percentile.value),
        rounded(latency.small.percentile.value),
        rounded(latency.small.p999),
        large(latency.large.percentile.value),
        large(latency.large.p999),
        rounded(latency.all.p50),
        rounded(100.0 * run.link_busy),
        rounded(100.0 * run.busiest()),
        run.large_workers.to_string(),
        run.dropped.to_string(),
    ]
}
