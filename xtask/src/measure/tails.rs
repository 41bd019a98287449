//! Latency of small requests, by the share of large ones and under noise.

use std::path::Path;

use super::{
    Bench, Samples, chart,
    contestants::{self, Contestant},
    report::{Report, cell},
};

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

/// Servers alone on one processor, the driver on the other.
pub(super) fn on_one_processor(bench: &Bench, out: &Path) -> anyhow::Result<Report> {
    let contestants = [
        contestants::minos("Minos", &bench.program, "0", &["--workers", "1"])?,
        contestants::minos(
            "Minos, keyhash",
            &bench.program,
            "0",
            &["--workers", "1", "--dispatch", "keyhash"],
        )?,
        contestants::memcached("0", 1)?,
        contestants::redis("0")?,
    ];
    let place = "server alone on one processor, driver on the other";
    measure(bench, &contestants, place, "tails", &out.join("tails.svg"))
}

/// Servers on both processors, the second of which they share with the driver: so that workers sleep instead of
/// taking it away from the driver by spinning.
pub(super) fn on_two_processors(bench: &Bench, out: &Path) -> anyhow::Result<Report> {
    let contestants = [
        contestants::minos("Minos", &bench.program, "0,1", &["--workers", "2", "--poll", "sleep"])?,
        contestants::minos(
            "Minos, no stealing",
            &bench.program,
            "0,1",
            &["--workers", "2", "--poll", "sleep", "--steal", "off"],
        )?,
        contestants::memcached("0,1", 2)?,
        contestants::redis("0,1")?,
    ];
    let place = "server with two workers on both processors, the second of which it shares with the driver";
    measure(bench, &contestants, place, "tails2", &out.join("tails2.svg"))
}

fn measure(
    bench: &Bench,
    contestants: &[Contestant],
    place: &str,
    figure: &str,
    picture: &Path,
) -> anyhow::Result<Report> {
    let mut report = Report::new(
        "Latency of small requests",
        &format!(
            "Measured. Microseconds from the intended send time, open loop with Poisson arrivals; {place}; \
             median (smallest to largest) of interleaved rounds. The first three loads are the papers' mix (ETC, \
             95 % GET, large values up to 500 KB) at 40 k requests a second on 16 connections that carry small \
             and large requests; noise is 40 k GETs of small values a second on 16 connections, beside 20 GETs a \
             second of 10 MB on 4 others, and quiet is the same without those. `cargo xtask measure {figure}`"
        ),
        &["load", "server", "p50", "p99", "p99.9"],
    );
    let mut bars = Vec::new();
    for family in &FAMILIES {
        for contestant in contestants {
            bench.load(contestant, family.items)?;
        }
        for &(name, arguments) in family.loads {
            let samples = rounds(bench, contestants, &[family.common, arguments].concat())?;
            for (contestant, samples) in contestants.iter().zip(&samples) {
                let cells = samples.iter().map(|samples| cell(samples, 0));
                let names = [name.to_owned(), contestant.name.to_owned()];
                report.rows.push(names.into_iter().chain(cells).collect());
                bars.push(chart::Bar { group: name, series: contestant.name, value: samples[1].median() });
            }
        }
    }
    chart::draw(&bars, picture)?;
    Ok(report)
}

fn rounds(
    bench: &Bench,
    contestants: &[Contestant],
    arguments: &[&str],
) -> anyhow::Result<Vec<[Samples; 3]>> {
    let mut samples = vec![<[Samples; 3]>::default(); contestants.len()];
    for _ in 0..bench.rounds {
        for (contestant, samples) in contestants.iter().zip(&mut samples) {
            let result = bench.measure(contestant, arguments)?;
            for (samples, percentile) in samples.iter_mut().zip(PERCENTILES) {
                samples.push(result["latency_us"]["small"][percentile].as_f64().unwrap_or(f64::NAN));
            }
        }
    }
    Ok(samples)
}
