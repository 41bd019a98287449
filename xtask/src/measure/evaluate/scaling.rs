//! Throughput by the number of workers.

use super::machine::{Driver, Series, Target};
use crate::measure::{
    contestants::{self, Contestant},
    report::{Report, cell},
};

const WORKLOAD: &str = "xtask/workloads/get32.toml";
/// How requests are sent, each in closed loop.
const WAYS: [(&str, [&str; 2]); 3] = [
    ("one at a time", ["--pipeline", "1"]),
    ("16 at a time", ["--pipeline", "16"]),
    ("32 keys a request", ["--multiget", "32"]),
];

struct System {
    contestant: Contestant,
    url: String,
    series: [Series; WAYS.len()],
}

impl System {
    fn new(contestant: Contestant) -> Self {
        Self { url: contestant.target(), contestant, series: Default::default() }
    }
}

/// A table for each number of workers.
pub(super) fn measure(driver: &Driver<'_>, rounds: u32) -> anyhow::Result<Vec<Report>> {
    driver.machine.scales().into_iter().map(|workers| with_workers(driver, rounds, workers)).collect()
}

fn with_workers(driver: &Driver<'_>, rounds: u32, workers: usize) -> anyhow::Result<Report> {
    let mut systems = systems(driver, workers)?;
    let connections = driver.machine.connections(workers);
    let usual = ["--workload", WORKLOAD, "--connections", &connections, "--rate", "max"];
    for system in &systems {
        crate::measure::driver::load(driver.program, &system.contestant.target(), &usual[..2])?;
    }
    for round in 0..rounds {
        eprintln!("scaling: {workers} workers, round {} of {rounds}", round + 1);
        for (at, (_, way)) in WAYS.iter().enumerate() {
            for system in &mut systems {
                let target = Target { url: &system.url, pid: system.contestant.pid() };
                system.series[at].0.push(driver.shoot(round, target, &[&usual[..], way].concat())?);
            }
        }
    }
    Ok(report(&systems, workers, &connections))
}

/// Servers with so many workers, on as many processors.
fn systems(driver: &Driver<'_>, workers: usize) -> anyhow::Result<Vec<System>> {
    let (cpus, count) = (driver.machine.servers(workers), workers.to_string());
    let options = ["--workers", &count];
    let native = contestants::minos_native("Minos, native", driver.program, &cpus, &options)?;
    Ok(vec![
        System::new(contestants::minos("Minos, memcached's protocol", driver.program, &cpus, &options)?),
        System::new(contestants::minos_resp(driver.program, &cpus, &options)?),
        System { url: native.target_in("minos"), ..System::new(native) },
        System::new(contestants::memcached(&cpus, workers as u32)?),
        System::new(contestants::redis_with_threads(&cpus, workers as u32)?),
    ])
}

fn report(systems: &[System], workers: usize, connections: &str) -> Report {
    let mut report = Report::new(
        &format!("Throughput with {workers} workers"),
        &format!(
            "GETs of 32 bytes on {connections} connections, closed loop: million keys a second, microseconds of the server's \
             processors for a key, and the share of the driver's time in which it was busy. memcached and Redis have as many \
             threads (Redis: io-threads, also for reads)."
        ),
        &["server"],
    );
    for (name, _) in WAYS {
        report.columns.extend([format!("{name}: Mops/s"), "us".to_owned(), "driver".to_owned()]);
    }
    for system in systems {
        let mut row = vec![system.contestant.name.to_owned()];
        for series in &system.series {
            row.push(cell(&series.samples(|shot| shot.per_s / 1e6), 2));
            row.push(format!("{:.2}", series.median(|shot| shot.server_us)));
            row.push(format!("{:.2}", series.median(|shot| shot.driver_busy)));
        }
        report.rows.push(row);
    }
    report
}
