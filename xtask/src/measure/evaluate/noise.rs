//! Small requests beside large ones, on servers with several workers.

use super::machine::{Driver, Series, Target};
use crate::measure::{
    contestants::{self, Contestant},
    report::{Report, cell},
};

/// Small GETs a second for each worker.
const RATE: usize = 30_000;

/// The small requests of the other workload alone.
const QUIET: [&str; 2] = ["--workload", "xtask/workloads/quiet.toml"];
const NOISE: [&str; 2] = ["--workload", "noise"];

/// Each server, quiet and under noise in turn.
pub(super) fn measure(driver: &Driver<'_>, rounds: u32) -> anyhow::Result<Report> {
    let workers = driver.machine.workers();
    let (cpus, count) = (driver.machine.servers(workers), workers.to_string());
    let minos = |name, dispatch| {
        contestants::minos(name, driver.program, &cpus, &["--workers", &count, "--dispatch", dispatch])
    };
    let servers = [
        minos("Minos", "size-aware")?,
        minos("Minos as keyhash", "keyhash")?,
        minos("Minos as stealing", "stealing")?,
        contestants::memcached(&cpus, workers as u32)?,
        contestants::redis_with_threads(&cpus, workers as u32)?,
    ];
    for server in &servers {
        crate::measure::driver::load(driver.program, &server.target(), &NOISE)?;
    }
    let (rate, connections) = ((RATE * workers).to_string(), driver.machine.connections(workers));
    let usual = ["--rate", &rate, "--connections", &connections];
    let mut series: [[Series; 2]; 5] = Default::default();
    for round in 0..rounds {
        eprintln!("noise: round {} of {rounds}", round + 1);
        for (server, series) in servers.iter().zip(&mut series) {
            for (workload, series) in [QUIET, NOISE].into_iter().zip(series) {
                let target = Target { url: &server.target(), pid: server.pid() };
                series.0.push(driver.shoot(round, target, &[&workload[..], &usual].concat())?);
            }
        }
    }
    Ok(report(&servers, &series, &rate, &connections))
}

fn report(servers: &[Contestant], series: &[[Series; 2]], rate: &str, connections: &str) -> Report {
    let mut report = Report::new(
        "Under noise",
        &format!(
            "{rate} GETs of small values a second on {connections} connections over TCP, alone, and beside 20 GETs a second of 10 MB \
             on 4 others. Microseconds. The ratio is of Minos' 99th percentile to this server's, under noise, in the same round."
        ),
        &["server", "quiet p50", "p99", "p99.9", "noise p50", "p99", "p99.9", "large p50", "lost", "ratio"],
    );
    for (server, [quiet, noise]) in servers.iter().zip(series) {
        let mut row = vec![server.name.to_owned()];
        for series in [quiet, noise] {
            row.push(cell(&series.samples(|shot| shot.small_p50), 0));
            row.push(cell(&series.samples(|shot| shot.small_p99), 0));
            row.push(cell(&series.samples(|shot| shot.small_p999), 0));
        }
        row.push(cell(&noise.samples(|shot| shot.large_p50), 0));
        row.push(format!("{:.0}", noise.0.iter().map(|shot| shot.lost).sum::<f64>()));
        row.push(cell(&series[0][1].ratio(noise, |shot| shot.small_p99), 3));
        report.rows.push(row);
    }
    report
}
