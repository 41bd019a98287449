//! Latency of small and of large requests, by the share of the latter and under noise.

use std::{iter, path::Path};

use anyhow::ensure;
use minos_plot::{BarPanel, Bars, Group, Scale};
use serde_json::Value;

use super::{
    Samples,
    contestants::{self, Contestant},
    driver::{self, Measurement, Pace},
    plan::{self, Plan},
    report::{Report, cell},
    save,
};

#[derive(Clone, Copy, Debug)]
pub(super) struct Extent {
    pub(super) rounds: u32,
    /// Milliseconds of each measurement. Fewer short ones are spoilt by other load on the machine.
    pub(super) millis: u32,
}

/// The servers to compare, and the placement of servers and driver.
struct Contest {
    contestants: [Contestant; 5],
    place: &'static str,
    driver: &'static [&'static str],
    pace: Pace,
}

/// All rounds of one server under one load.
#[derive(Clone, Default)]
struct Rounds {
    small: Latencies,
    large: Latencies,
    plans: Vec<Option<Plan>>,
}

/// Samples for each of [`PERCENTILES`].
#[derive(Clone, Default)]
struct Latencies([Samples; 3]);

/// Loads that share a set of items, each with the arguments of `minos bench` that make it.
struct Family {
    items: &'static [&'static str],
    common: &'static [&'static str],
    loads: &'static [(&'static str, &'static [&'static str])],
}

const ETC: &[&str] = &["--workload", "etc", "--keys", "200000", "--large-keys", "500"];
const NOISE: &[&str] = &["--workload", "noise"];
const QUIET: &[&str] = &["--workload", "xtask/workloads/quiet.toml"];
const FAMILIES: [Family; 2] = [
    Family {
        items: ETC,
        common: ETC,
        loads: &[
            ("0 % large", &["--rate", "40k", "--large-percent", "0"]),
            ("0.125 % large", &["--rate", "40k", "--large-percent", "0.125"]),
            ("0.75 % large", &["--rate", "40k", "--large-percent", "0.75"]),
        ],
    },
    Family { items: NOISE, common: &[], loads: &[("quiet", QUIET), ("noise", NOISE)] },
];
const PERCENTILES: [&str; 3] = ["p50", "p99", "p999"];

/// Each server alone on one processor, the driver on the other.
pub(super) fn on_one_processor(program: &Path, extent: &Extent, out: &Path) -> anyhow::Result<Report> {
    let contestants = [
        contestants::minos("Minos", program, "0", &["--workers", "1"])?,
        contestants::minos("Minos, keyhash", program, "0", &["--workers", "1", "--dispatch", "keyhash"])?,
        contestants::minos_resp(program, "0", &["--workers", "1"])?,
        contestants::memcached("0", 1)?,
        contestants::redis("0")?,
    ];
    let place = "server alone on one processor, driver on the other";
    let contest = Contest { contestants, place, driver: driver::ON_THE_SECOND, pace: Pace::Spin };
    contest.measure(program, extent, "tails", &out.join("tails.svg"))
}

/// Servers on both processors, which they share with the driver.
pub(super) fn on_two_processors(program: &Path, extent: &Extent, out: &Path) -> anyhow::Result<Report> {
    let sleeping = ["--workers", "2", "--poll", "sleep"];
    let unaware = [&sleeping[..], &["--dispatch", "keyhash"]].concat();
    let contestants = [
        contestants::minos("Minos", program, "0,1", &sleeping)?,
        contestants::minos("Minos, keyhash", program, "0,1", &unaware)?,
        contestants::minos_resp(program, "0,1", &sleeping)?,
        contestants::memcached("0,1", 2)?,
        contestants::redis("0,1")?,
    ];
    let place = "server with two workers (Redis: one) on both processors, which it shares with the two threads of the driver";
    let contest = Contest { contestants, place, driver: driver::ON_BOTH, pace: Pace::Due };
    contest.measure(program, extent, "tails2", &out.join("tails2.svg"))
}

impl Latencies {
    /// Adds those of one measurement, if it had any.
    fn push(&mut self, latencies: &Value) {
        if latencies["count"] == 0 {
            return;
        }
        for (samples, percentile) in self.0.iter_mut().zip(PERCENTILES) {
            if let Some(latency) = latencies[percentile].as_f64() {
                samples.push(latency);
            }
        }
    }

    /// Each percentile with its spread.
    fn cell(&self) -> String {
        self.0.iter().map(|samples| cell(samples, 0)).collect::<Vec<_>>().join(", ")
    }
}

/// Draws 99th percentiles, a group of bars for each load.
fn draw(groups: Vec<Group>, path: &Path) -> anyhow::Result<()> {
    let title = "p99 of small requests in microseconds, logarithmic (lower is better)".to_owned();
    let panels = [BarPanel { title, groups }];
    save(&Bars { scale: Scale::Log10, panels: &panels }.svg()?, path)
}

impl Contest {
    fn measure(
        &self,
        program: &Path,
        extent: &Extent,
        figure: &str,
        picture: &Path,
    ) -> anyhow::Result<Report> {
        let names = self.contestants.iter().map(|contestant| contestant.name);
        let columns: Vec<_> = iter::once("load").chain(names).chain(["Minos' plans"]).collect();
        let mut report = Report::new(
            "Latency of small and of large requests",
            &self.description(extent, figure),
            &columns,
        );
        let mut groups = Vec::new();
        for family in &FAMILIES {
            for contestant in &self.contestants {
                driver::load(program, &contestant.target(), family.items)?;
            }
            for &(name, arguments) in family.loads {
                let samples = self.rounds(program, extent, &[family.common, arguments].concat())?;
                let pairs = self.contestants.iter().zip(&samples);
                let bars = pairs.map(|(contestant, rounds)| (contestant.name, rounds.small.0[1].median()));
                groups.push(Group { name: name.to_owned(), bars: bars.collect() });
                // The first server is Minos with its defaults, which assigns workers by size.
                let plans = plan::in_words(samples[0].plans.iter().copied());
                let cells = samples.iter().map(|rounds| rounds.small.cell());
                report.rows.push(iter::once(name.to_owned()).chain(cells).chain([plans]).collect());
                if !samples[0].large.0[0].median().is_nan() {
                    let cells = samples.iter().map(|rounds| rounds.large.cell());
                    let name = format!("{name}: large requests");
                    report.rows.push(iter::once(name).chain(cells).chain([String::new()]).collect());
                }
            }
        }
        draw(groups, picture)?;
        Ok(report)
    }

    fn description(&self, extent: &Extent, figure: &str) -> String {
        let (Self { place, pace, .. }, Extent { rounds, millis }) = (self, extent);
        let rank = if driver::may_be_realtime() { ", with SCHED_FIFO" } else { "" };
        format!(
            "Measured. p50, p99, p99.9 of small requests, unless stated, in microseconds from the intended send time, open loop with Poisson arrivals; \
             {place}{rank} (`--pace {}`); median (smallest..largest) of {rounds} interleaved rounds of {millis} ms. The \
             first three loads are the papers' mix (ETC, 95 % GET, large values up to 500 KB) at 40 k requests a second on \
             16 connections for small and large requests; noise is 40 k GETs of small values a second on 16 connections \
             beside 20 GETs a second of 10 MB on 4 others; quiet lacks the latter. `cargo xtask measure {figure} --rounds \
             {rounds} --millis {millis}`",
            pace.name(),
        )
    }

    fn rounds(&self, program: &Path, extent: &Extent, arguments: &[&str]) -> anyhow::Result<Vec<Rounds>> {
        let mut samples = vec![Rounds::default(); self.contestants.len()];
        for round in 0..extent.rounds {
            for (contestant, samples) in self.contestants.iter().zip(&mut samples) {
                let result = self.once(program, contestant, (extent.millis, round), arguments)?;
                samples.plans.push(contestant.plan()?);
                samples.small.push(&result["latency_us"]["small"]);
                samples.large.push(&result["latency_us"]["large"]);
            }
        }
        Ok(samples)
    }

    /// Takes one measurement; returns the JSON output of `minos bench`.
    fn once(
        &self,
        program: &Path,
        contestant: &Contestant,
        (millis, draw): (u32, u32),
        arguments: &[&str],
    ) -> anyhow::Result<Value> {
        self.pace.pause(driver::WARMUP_MS + millis);
        let measurement = Measurement {
            target: &contestant.target(),
            server_pid: contestant.pid(),
            threads: self.driver,
            pace: self.pace,
            drain: "3s",
            warmup_ms: driver::WARMUP_MS,
            millis,
            draw,
            arguments,
        };
        let result = measurement.run(program)?;
        for kind in ["errors", "lost"] {
            ensure!(result[kind] == 0, "{}: {} {kind} with {arguments:?}", contestant.name, result[kind]);
        }
        Ok(result)
    }
}
