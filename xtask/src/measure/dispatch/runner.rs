//! Runs `minos bench` and keeps every sample.

use std::{fmt::Write as _, path::Path, time::Duration};

use anyhow::{Context, ensure};
use minos_testkit::Client;
use serde_json::Value;

use super::designs::Contest;
use crate::measure::{
    Samples,
    driver::{self, Measurement, Pace},
    pauses::Pauses,
    plan::{self, Plan},
    stolen::Stolen,
};

const DRAIN: &str = "600ms";
/// Time for which the idle machine is observed.
pub(super) const LOOK: Duration = Duration::from_millis(150);

/// Latencies of one class of requests, in microseconds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Latency {
    pub(super) p50_us: f64,
    pub(super) p90_us: f64,
    pub(super) p99_us: f64,
    pub(super) p999_us: f64,
}

/// The results of one run of `minos bench`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sample {
    pub(super) achieved_per_s: f64,
    pub(super) small: Latency,
    pub(super) large: Latency,
    pub(super) lost: u64,
    pub(super) server_cpu_us: f64,
    /// The server's own counts, warm-up included.
    work: Work,
    /// Share of the driver's time.
    driver_busy: f64,
    /// Turns of the driver of more than a millisecond.
    driver_long_turns: f64,
    send_lag_p99_us: f64,
    stolen_percent: f64,
    /// The plan in force at the end.
    pub(super) plan: Option<Plan>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Work {
    requests: f64,
    busy_ns: f64,
    /// Turns of more than a millisecond.
    long_turns: f64,
}

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

    /// By round, the figure of this series divided by that of `to`.
    pub(super) fn ratio(&self, to: &Self, figure: impl Fn(&Sample) -> f64) -> Samples {
        let mut samples = Samples::default();
        self.0.iter().zip(&to.0).for_each(|(ours, theirs)| samples.push(figure(ours) / figure(theirs)));
        samples
    }

    pub(super) fn lost(&self) -> u64 {
        self.0.iter().map(|sample| sample.lost).sum()
    }
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Case<'a> {
    pub(super) name: &'a str,
    pub(super) round: u32,
}

/// Runs `minos bench`.
pub(super) struct Runner<'a> {
    program: &'a Path,
    millis: u32,
    /// True if the driver may preempt other threads on its processor.
    is_realtime: bool,
    /// All samples so far.
    pub(super) csv: String,
    /// All observations of the idle machine.
    pub(super) pauses: Pauses,
    stolen_percent: Samples,
}

impl<'a> Runner<'a> {
    pub(super) fn new(program: &'a Path, millis: u32) -> Self {
        let header = "case,round,server,arguments,achieved_per_s,lost,server_cpu_us,small_p50_us,small_p90_us,small_p99_us,\
                      small_p999_us,large_p50_us,large_p90_us,large_p99_us,large_p999_us,send_lag_p99_us,stolen_percent,\
                      worker_busy_ns,driver_busy,worker_long_turns,driver_long_turns,plan\n";
        Self {
            program,
            millis,
            is_realtime: driver::may_be_realtime(),
            csv: header.to_owned(),
            pauses: Pauses::default(),
            stolen_percent: Samples::default(),
        }
    }

    /// A description of the driver's use of its processor.
    pub(super) fn driver_in_words(&self) -> &'static str {
        if self.is_realtime {
            ", sleep until a request is due and then preempt the worker (SCHED_FIFO)"
        } else {
            ", sleep until a request is due"
        }
    }

    /// A description of the machine's own load during the measurement.
    pub(super) fn disturbance(&self) -> String {
        let Self { pauses, .. } = self;
        format!(
            "The idle machine stopped a loop of equal instructions on both processors for over 5 us {:.1} % of the time: \
             {:.0} times a second, {:.0} above 50 us, {:.1} above 500 us, at most {:.0} us. During a measurement the \
             hypervisor took {:.1} (at most {:.1}) % of the processors.",
            pauses.percent(),
            pauses.per_s_above(5.0),
            pauses.per_s_above(50.0),
            pauses.per_s_above(500.0),
            pauses.longest_us(),
            self.stolen_percent.median(),
            self.stolen_percent.max(),
        )
    }

    /// Stores the items of a workload.
    pub(super) fn load(&self, contest: &Contest, arguments: &[&str]) -> anyhow::Result<()> {
        driver::load(self.program, &contest.server.target_in("memcached"), arguments)
    }

    pub(super) fn measure(
        &mut self,
        contest: &Contest,
        case: Case<'_>,
        arguments: &[&str],
    ) -> anyhow::Result<Sample> {
        let (worked, before) = (Work::of(contest)?, Stolen::now()?);
        let result = self.once(contest, case.round, arguments)?;
        let stolen_percent = Stolen::now()?.percent_since(before);
        let work = Work::of(contest)?.since(&worked);
        let sample = Sample::of(&result, work, stolen_percent, contest.server.plan()?)
            .with_context(|| format!("{} of {}", case.name, contest.name))?;
        self.stolen_percent.push(sample.stolen_percent);
        let Sample { small, large, .. } = sample;
        write!(self.csv, "{},{},\"{}\",{}", case.name, case.round, contest.name, arguments.join(" "))?;
        write!(self.csv, ",{:.0},{},{:.3}", sample.achieved_per_s, sample.lost, sample.server_cpu_us)?;
        for Latency { p50_us, p90_us, p99_us, p999_us } in [small, large] {
            write!(self.csv, ",{p50_us},{p90_us},{p99_us},{p999_us}")?;
        }
        write!(self.csv, ",{},{:.2}", sample.send_lag_p99_us, sample.stolen_percent)?;
        write!(self.csv, ",{:.0},{}", sample.work.busy_ns(), sample.driver_busy)?;
        write!(self.csv, ",{},{}", sample.work.long_turns, sample.driver_long_turns)?;
        writeln!(self.csv, ",\"{}\"", plan::in_words([sample.plan]))?;
        Ok(sample)
    }

    /// Runs `minos bench`; returns its JSON output.
    fn once(&self, contest: &Contest, draw: u32, arguments: &[&str]) -> anyhow::Result<Value> {
        let measurement = Measurement {
            target: &contest.target(),
            server_pid: contest.server.pid(),
            // With a worker on each processor, each shares its processor with an equal part of the driver.
            threads: if contest.workers == 1 { driver::ON_THE_SECOND } else { driver::ON_BOTH },
            pace: Pace::Due,
            drain: DRAIN,
            warmup_ms: driver::WARMUP_MS,
            millis: self.millis,
            draw,
            arguments,
        };
        measurement.run(self.program)
    }
}

impl Sample {
    fn of(result: &Value, work: Work, stolen_percent: f64, plan: Option<Plan>) -> anyhow::Result<Self> {
        ensure!(result["errors"] == 0, "{} errors: {}", result["errors"], result["errors_by_kind"]);
        let number = |value: &Value| value.as_f64().unwrap_or(f64::NAN);
        Ok(Self {
            achieved_per_s: number(&result["achieved_rps"]),
            small: Latency::of(&result["latency_us"]["small"]),
            large: Latency::of(&result["latency_us"]["large"]),
            lost: result["lost"].as_u64().unwrap_or(0),
            server_cpu_us: number(&result["server_cpu_us_per_op"]),
            work,
            driver_busy: number(&result["driver"]["busy"]),
            driver_long_turns: number(&result["driver"]["long_turns"]),
            send_lag_p99_us: number(&result["driver"]["send_lag_us"]["p99"]),
            stolen_percent,
            plan,
        })
    }
}

impl Work {
    fn of(contest: &Contest) -> anyhow::Result<Self> {
        let mut client = Client::connect(contest.server.address())?;
        let mut work = Self::default();
        for (name, value) in [client.stats("")?, client.stats("minos")?].concat() {
            let sum = match name.rsplit(':').next() {
                Some("cmd_get" | "cmd_set") => &mut work.requests,
                Some("busy_ns") => &mut work.busy_ns,
                Some("long_turns") => &mut work.long_turns,
                _ => continue,
            };
            *sum += value.parse::<f64>().with_context(|| format!("{name} {value}"))?;
        }
        Ok(work)
    }

    fn since(&self, before: &Self) -> Self {
        Self {
            requests: self.requests - before.requests,
            busy_ns: self.busy_ns - before.busy_ns,
            long_turns: self.long_turns - before.long_turns,
        }
    }

    /// Time of the workers for a request.
    fn busy_ns(&self) -> f64 {
        self.busy_ns / self.requests
    }
}

impl Latency {
    /// Parses an object with these percentiles.
    fn of(value: &Value) -> Self {
        let number = |name: &str| value[name].as_f64().unwrap_or(f64::NAN);
        Self { p50_us: number("p50"), p90_us: number("p90"), p99_us: number("p99"), p999_us: number("p999") }
    }
}
