//! Runs `minos bench` and keeps every sample.

use std::{fmt::Write as _, path::Path};

use anyhow::{Context, ensure};
use serde_json::Value;

use super::{
    designs::Contest,
    gaps::{Gaps, Stolen},
};
use crate::measure::{
    Samples,
    driver::{self, Measurement, Pace},
};

/// Linux takes a twentieth of each second from those that spin under SCHED_FIFO and leave nothing to others: a run must
/// be over before, with its warm-up, and one must not follow upon the other.
const SPINNING_MILLIS_MAX: u32 = 650;
const DRAIN: &str = "600ms";

/// Latencies of one class of requests, in microseconds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Latency {
    pub(super) p50_us: f64,
    pub(super) p90_us: f64,
    pub(super) p99_us: f64,
    pub(super) p999_us: f64,
}

/// What one run of `minos bench` came to.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sample {
    pub(super) achieved_per_s: f64,
    pub(super) small: Latency,
    pub(super) large: Latency,
    pub(super) lost: u64,
    pub(super) server_cpu_us: f64,
    send_lag_p99_us: f64,
    stolen_percent: f64,
}

/// All samples of one case.
#[derive(Clone, Debug, Default)]
pub(super) struct Series(pub(super) Vec<Sample>);

impl Series {
    pub(super) fn samples(&self, figure: impl Fn(&Sample) -> f64) -> Samples {
        let mut samples = Samples::default();
        self.0.iter().for_each(|sample| samples.push(figure(sample)));
        samples
    }

    pub(super) fn median(&self, figure: impl Fn(&Sample) -> f64) -> f64 {
        self.samples(figure).median()
    }

    /// The same figure of both in the same round, one divided by the other.
    pub(super) fn ratio(&self, to: &Self, figure: impl Fn(&Sample) -> f64) -> Samples {
        let mut samples = Samples::default();
        self.0.iter().zip(&to.0).for_each(|(ours, theirs)| samples.push(figure(ours) / figure(theirs)));
        samples
    }

    pub(super) fn lost(&self) -> u64 {
        self.0.iter().map(|sample| sample.lost).sum()
    }
}

/// What the samples of a run are called.
#[derive(Clone, Copy, Debug)]
pub(super) struct Case<'a> {
    pub(super) name: &'a str,
    pub(super) round: u32,
    pub(super) pace: Pace,
}

/// Runs `minos bench`.
pub(super) struct Runner<'a> {
    program: &'a Path,
    millis: u32,
    /// Whether the driver may be put before all others on its processor.
    is_realtime: bool,
    csv: String,
    gaps: Vec<Gaps>,
    stolen_percent: Samples,
}

impl<'a> Runner<'a> {
    pub(super) fn new(program: &'a Path, millis: u32) -> Self {
        let header = "case,round,server,arguments,achieved_per_s,lost,server_cpu_us,small_p50_us,small_p90_us,small_p99_us,\
                      small_p999_us,large_p50_us,large_p90_us,large_p99_us,large_p999_us,send_lag_p99_us,stolen_percent\n";
        Self {
            program,
            millis,
            is_realtime: driver::may_be_realtime(),
            csv: header.to_owned(),
            gaps: Vec::new(),
            stolen_percent: Samples::default(),
        }
    }

    /// All samples so far.
    pub(super) fn csv(&self) -> &str {
        &self.csv
    }

    /// Bounds measurements by what Linux allows to those that spin, and puts the server before everything else on its
    /// processor, if it may be.
    pub(super) fn prepare_spinning(&mut self, contests: &[&Contest]) -> anyhow::Result<()> {
        if self.is_realtime {
            self.millis = self.millis.min(SPINNING_MILLIS_MAX);
            contests.iter().try_for_each(|contest| contest.make_realtime())?;
        }
        Ok(())
    }

    /// Length of each measurement.
    pub(super) fn millis(&self) -> u32 {
        self.millis
    }

    /// How server and driver have a processor each.
    pub(super) fn spinning_in_words(&self) -> &'static str {
        if self.is_realtime { ", both before everything else there (SCHED_FIFO)" } else { "" }
    }

    /// How the driver shares its processor.
    pub(super) fn driver_in_words(&self) -> &'static str {
        if self.is_realtime {
            ", sleep until a request is due and then go before the worker there (SCHED_FIFO)"
        } else {
            " and sleep until a request is due"
        }
    }

    /// What the machine itself took while everything was measured.
    pub(super) fn disturbance(&self) -> String {
        let median = |figure: fn(&Gaps) -> f64| {
            let mut samples = Samples::default();
            self.gaps.iter().for_each(|gaps| samples.push(figure(gaps)));
            (samples.median(), samples.max())
        };
        let (share, share_max) = median(|gaps| 100.0 * gaps.share);
        let (long, long_max) = median(|gaps| f64::from(gaps.long));
        let (longest, longest_max) = median(|gaps| gaps.longest_us);
        format!(
            "The machine beside it, median (most): a loop that only reads the clock, on both processors for 100 ms before \
             each round, lost {share:.1} ({share_max:.1}) % of the time in gaps above 20 us, of which {long:.0} ({long_max:.0}) \
             above 200 us, the longest {longest:.0} ({longest_max:.0}) us; during a measurement the hypervisor took \
             {:.1} ({:.1}) % of the processors.",
            self.stolen_percent.median(),
            self.stolen_percent.max(),
        )
    }

    /// Looks at what the machine itself takes; once a round, when nothing else runs.
    pub(super) fn look_at_machine(&mut self) {
        self.gaps.push(Gaps::measure());
    }

    /// Stores the items of a workload.
    pub(super) fn load(&self, contest: &Contest, arguments: &[&str]) -> anyhow::Result<()> {
        driver::load(self.program, &contest.loading_target(), arguments)
    }

    /// One measurement.
    pub(super) fn measure(
        &mut self,
        contest: &Contest,
        case: Case<'_>,
        arguments: &[&str],
    ) -> anyhow::Result<Sample> {
        if self.is_realtime {
            case.pace.pause();
        }
        let before = Stolen::now()?;
        let result = self.once(contest, case.pace, arguments)?;
        let sample = Sample::of(&result, Stolen::now()?.percent_since(before))
            .with_context(|| format!("{} of {}", case.name, contest.name))?;
        self.stolen_percent.push(sample.stolen_percent);
        let Sample { small, large, .. } = sample;
        write!(self.csv, "{},{},\"{}\",{}", case.name, case.round, contest.name, arguments.join(" "))?;
        write!(self.csv, ",{:.0},{},{:.3}", sample.achieved_per_s, sample.lost, sample.server_cpu_us)?;
        for Latency { p50_us, p90_us, p99_us, p999_us } in [small, large] {
            write!(self.csv, ",{p50_us},{p90_us},{p99_us},{p999_us}")?;
        }
        writeln!(self.csv, ",{},{:.2}", sample.send_lag_p99_us, sample.stolen_percent)?;
        Ok(sample)
    }

    /// The JSON object that `minos bench` prints.
    fn once(&self, contest: &Contest, pace: Pace, arguments: &[&str]) -> anyhow::Result<Value> {
        let measurement = Measurement {
            target: &contest.target(),
            server_pid: contest.pid(),
            // A worker on each processor shares it with as much of the driver as the other.
            threads: if contest.workers == 1 { driver::ON_THE_SECOND } else { driver::ON_BOTH },
            pace,
            drain: DRAIN,
            millis: self.millis,
            arguments,
        };
        measurement.run(self.program)
    }
}

impl Sample {
    fn of(result: &Value, stolen_percent: f64) -> anyhow::Result<Self> {
        ensure!(result["errors"] == 0, "{} errors: {}", result["errors"], result["errors_by_kind"]);
        let number = |value: &Value| value.as_f64().unwrap_or(f64::NAN);
        Ok(Self {
            achieved_per_s: number(&result["achieved_rps"]),
            small: Latency::of(&result["latency_us"]["small"]),
            large: Latency::of(&result["latency_us"]["large"]),
            lost: result["lost"].as_u64().unwrap_or(0),
            server_cpu_us: number(&result["server_cpu_us_per_op"]),
            send_lag_p99_us: number(&result["driver"]["send_lag_us"]["p99"]),
            stolen_percent,
        })
    }
}

impl Latency {
    /// From an object with these percentiles, of the driver or of the simulator.
    pub(super) fn of(value: &Value) -> Self {
        let number = |name: &str| value[name].as_f64().unwrap_or(f64::NAN);
        Self { p50_us: number("p50"), p90_us: number("p90"), p99_us: number("p99"), p999_us: number("p999") }
    }
}
