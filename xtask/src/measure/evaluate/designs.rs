//! The designs of dispatch over datagrams, by load and by the sizes of large items (Minos §6, figures 3 to 7).

use std::path::Path;

use anyhow::ensure;

use super::machine::{Driver, Series, Shot, Target};
use crate::measure::{
    Samples,
    contestants::{self, Contestant},
    native::plot::{self, Line},
    report::{Report, cell},
};

/// The paper's items and requests: 95:5, zipf 0.99 (Minos §5.3).
const PAPER: [&str; 6] = ["--workload", "etc", "--keys", "100000", "--large-keys", "500"];
/// Shares of what keyhash answers in closed loop.
const LOADS: [f64; 5] = [0.2, 0.4, 0.6, 0.8, 0.9];
/// The load at which other workloads are compared.
const LOAD: f64 = 0.6;
/// Percent of the requests that are large (Minos' p_L), and the largest item (s_L): the paper's default, then the rest.
const MIXES: [(&str, &str); 7] = [
    ("0.125", "500k"),
    ("0.0625", "500k"),
    ("0.25", "500k"),
    ("0.5", "500k"),
    ("0.75", "500k"),
    ("0.125", "250k"),
    ("0.125", "1m"),
];
/// Name, design, stealing between small workers' queues.
const DESIGNS: [(&str, &str, &str); 5] = [
    ("keyhash", "keyhash", "on"),
    ("handoff", "handoff", "on"),
    ("stealing", "stealing", "on"),
    ("size-aware", "size-aware", "on"),
    ("size-aware, --steal off", "size-aware", "off"),
];
const OURS: usize = 3;
const RIVALS: usize = 3;

struct Design {
    server: Contestant,
    url: String,
}

/// A workload at one rate, with a series for each design.
struct Case {
    mix: (&'static str, &'static str),
    load: f64,
    rate: f64,
    series: [Series; DESIGNS.len()],
}

/// A table by load, one by workload; draws `designs.svg`.
pub(super) fn measure(driver: &Driver<'_>, rounds: u32, out: &Path) -> anyhow::Result<Vec<Report>> {
    // Handoff gives one away.
    ensure!(driver.machine.workers() > 1, "the designs need two workers, and so six processors");
    let designs = start(driver)?;
    let (mut cases, mut stored) = (Vec::new(), "");
    for mix in MIXES {
        if mix.1 != stored {
            stored = mix.1;
            load(driver, &designs, mix)?;
        }
        let most_per_s = most(driver, &designs[0], mix, rounds)?;
        let loads = if mix == MIXES[0] { &LOADS[..] } else { &[LOAD] };
        let mut new: Vec<_> = loads
            .iter()
            .map(|&load| Case { mix, load, rate: load * most_per_s, series: Default::default() })
            .collect();
        for round in 0..rounds {
            eprintln!("designs: p_L {} %, s_L {}, round {} of {rounds}", mix.0, mix.1, round + 1);
            new.iter_mut().try_for_each(|case| case.round(driver, round, &designs))?;
        }
        cases.extend(new);
    }
    plot::draw(&lines(&cases[..LOADS.len()]), &out.join("designs.svg"))?;
    let by_load = "by load: a share of what keyhash answers in closed loop";
    Ok(vec![
        table("Designs of dispatch by load", by_load, driver, &cases[..LOADS.len()]),
        table("Designs of dispatch by workload", "at a load of 0.6", driver, &cases[LOADS.len()..]),
    ])
}

fn start(driver: &Driver<'_>) -> anyhow::Result<Vec<Design>> {
    let workers = driver.machine.workers();
    let (cpus, count) = (driver.machine.servers(workers), workers.to_string());
    let start = |&(name, dispatch, steal): &(&'static str, &str, &str)| {
        let options = ["--workers", &count, "--dispatch", dispatch, "--steal", steal];
        let server = contestants::minos_native(name, driver.program, &cpus, &options)?;
        Ok(Design { url: server.target_in("minos"), server })
    };
    DESIGNS.iter().map(start).collect()
}

fn arguments<'a>((percent, largest): (&'a str, &'a str), connections: &'a str) -> Vec<&'a str> {
    let mix = ["--large-percent", percent, "--large-max", largest, "--connections", connections];
    [&PAPER[..], &mix].concat()
}

fn load(driver: &Driver<'_>, designs: &[Design], mix: (&str, &str)) -> anyhow::Result<()> {
    let store = |design: &Design| {
        let target = design.server.target_in("memcached");
        crate::measure::driver::load(driver.program, &target, &arguments(mix, "16"))
    };
    designs.iter().try_for_each(store)
}

/// Requests a second of a design in closed loop.
fn most(driver: &Driver<'_>, design: &Design, mix: (&str, &str), rounds: u32) -> anyhow::Result<f64> {
    let connections = driver.machine.connections(driver.machine.workers());
    let mut series = Series::default();
    for round in 0..rounds {
        let target = Target { url: &design.url, pid: design.server.pid() };
        series.0.push(driver.shoot(
            round,
            target,
            &[&arguments(mix, &connections)[..], &["--rate", "max"]].concat(),
        )?);
    }
    Ok(series.median(|shot| shot.per_s))
}

impl Case {
    fn round(&mut self, driver: &Driver<'_>, round: u32, designs: &[Design]) -> anyhow::Result<()> {
        let (rate, connections) =
            (format!("{:.0}", self.rate), driver.machine.connections(driver.machine.workers()));
        let arguments = [&arguments(self.mix, &connections)[..], &["--rate", &rate]].concat();
        for (design, series) in designs.iter().zip(&mut self.series) {
            let target = Target { url: &design.url, pid: design.server.pid() };
            series.0.push(driver.shoot(round, target, &arguments)?);
        }
        Ok(())
    }

    /// The 99th percentile of small requests of size-aware over that of the rival with the lowest.
    fn duel(&self) -> (&'static str, Samples) {
        let p99 = |at: &usize| self.series[*at].median(small_p99);
        let best = (0..RIVALS).min_by(|one, other| p99(one).total_cmp(&p99(other))).unwrap_or(0);
        (DESIGNS[best].0, self.series[OURS].ratio(&self.series[best], small_p99))
    }
}

fn small_p99(shot: &Shot) -> f64 {
    shot.small_p99
}

fn lines(cases: &[Case]) -> Vec<Line> {
    let line = |(at, &(name, ..)): (usize, &(&'static str, &str, &str))| {
        let of = |figure: fn(&Shot) -> f64| {
            cases.iter().map(|case| (case.rate, case.series[at].median(figure))).collect()
        };
        Line { name, p50: of(|shot| shot.small_p50), p99: of(small_p99) }
    };
    DESIGNS.iter().enumerate().map(line).collect()
}

fn table(title: &str, subject: &str, driver: &Driver<'_>, cases: &[Case]) -> Report {
    let note = format!(
        "99th percentile of small requests in microseconds, {subject}; {} workers, the native protocol, Poisson arrivals, 95:5, \
         zipf 0.99. p_L: percent of the requests that are large; s_L: the largest item. In brackets what was lost of all \
         requests, if anything. The ratio is of size-aware to the rival with the lowest median, round by round.",
        driver.machine.workers()
    );
    let mut report = Report::new(title, &note, &["p_L, %", "s_L", "load", "thousand requests a second"]);
    report.columns.extend(DESIGNS.iter().map(|(name, ..)| (*name).to_owned()));
    report.columns.push("size-aware to the best rival".to_owned());
    for case in cases {
        let (percent, largest) = case.mix;
        let mut row = vec![percent.to_owned(), largest.to_owned(), case.load.to_string()];
        row.push(format!("{:.0}", case.rate / 1e3));
        for series in &case.series {
            let lost: f64 = series.0.iter().map(|shot| shot.lost).sum();
            let lost = if lost > 0.0 { format!(" [{lost:.0}]") } else { String::new() };
            row.push(cell(&series.samples(small_p99), 0) + &lost);
        }
        let (rival, ratio) = case.duel();
        row.push(format!("{rival}: {}", cell(&ratio, 2)));
        report.rows.push(row);
    }
    report
}
