//! A rack of eight nodes, all of which get their requests at the same time, beside units of one and Redis Cluster; and
//! writes into a micro-shard that moves.

use std::{fs, path::Path, thread};

use anyhow::Context as _;
use minos_rackmodel::Random;
use serde_json::Value;

use super::machine::{Driver, Target};
use crate::measure::{
    Samples,
    driver::Pace,
    rack_moves,
    rack_peers::{
        LIMIT_US, NODES, PORTS,
        bench::{Bench, REQUESTS, TRIES, is_within},
        cluster,
        groups::{self, Group},
        keys::Keys,
        limit::highest_rate,
    },
    report::{Report, cell},
};

/// Part of what the nodes answer in closed loop at which the search for the limit begins.
const START: f64 = 0.5;

struct System<'g> {
    name: &'static str,
    scheme: &'static str,
    group: &'g Group,
    /// So far. Each has other requests.
    attempts: u64,
    /// Million operations a second of all nodes, closed loop.
    most: Samples,
    /// Under the limit.
    within: Samples,
}

pub(super) fn measure(driver: &Driver<'_>, rounds: u32) -> anyhow::Result<Vec<Report>> {
    Ok(vec![peers(driver, rounds)?, moves(driver)?])
}

fn moves(driver: &Driver<'_>) -> anyhow::Result<Report> {
    rack_moves::measure(driver.program, Some(driver.machine.processors / 2))
}

/// On a machine of sixteen processors, nodes and the threads of the driver have one each.
fn peers(driver: &Driver<'_>, rounds: u32) -> anyhow::Result<Report> {
    let processors = driver.machine.processors / 2;
    let mut bench = Bench::new(driver.program, driver.millis)?;
    let [united, apart] = [
        groups::start_rack(driver.program, PORTS[0], NODES)?,
        groups::start_rack(driver.program, PORTS[1], 1)?,
    ];
    let client = apart.client()?;
    let imbalances = Keys::imbalances(|name| groups::owner_in(&client, name))?;
    let clusters = Keys::imbalances(|name| Ok(cluster::owner(name)))?;
    let united = Group::rack(&mut bench, Keys::median(&imbalances), united, true)?;
    let apart = Group::rack(&mut bench, Keys::median(&imbalances), apart, false)?;
    let redis = Group::cluster(&mut bench, Keys::median(&clusters), Path::new("redis-server"))?;
    [&united, &apart, &redis].into_iter().try_for_each(|group| group.spread(processors))?;
    let system = |name, scheme, group| System {
        name,
        scheme,
        group,
        attempts: 0,
        most: Samples::default(),
        within: Samples::default(),
    };
    let mut systems = [
        system("Minos, one unit, native", "minos", &united),
        system("Minos, units of one, native", "minos", &apart),
        system("Minos, one unit, memcached's protocol", "memcached", &united),
        system("Minos, units of one, memcached's protocol", "memcached", &apart),
        system("Redis Cluster", "resp", &redis),
    ];
    for round in 0..rounds {
        eprintln!("rack: round {} of {rounds}", round + 1);
        systems.iter_mut().try_for_each(|system| system.round(driver))?;
    }
    Ok(report(&systems))
}

impl System<'_> {
    fn round(&mut self, driver: &Driver<'_>) -> anyhow::Result<()> {
        let number = |result: &Value| result["operations_per_s"].as_f64().unwrap_or(f64::NAN);
        let most: f64 = self.at_once(driver, None)?.iter().map(number).sum();
        self.most.push(most / 1e6);
        let within = highest_rate(START * most, |rate| {
            for _ in 0..TRIES {
                match self.at_once(driver, Some(rate)) {
                    Ok(results) if results.iter().all(is_within) => return Ok(true),
                    Ok(_) => (),
                    // Far beyond the limit, nothing is answered in time.
                    Err(error) => eprintln!("rack: beyond the limit, as it failed: {error:#}"),
                }
            }
            Ok(false)
        })?;
        self.within.push(within / 1e6);
        Ok(())
    }

    /// Sends each node its part at the same time, at a rate of all together or in closed loop.
    fn at_once(&mut self, driver: &Driver<'_>, rate: Option<f64>) -> anyhow::Result<Vec<Value>> {
        self.attempts += 1;
        let (this, traces) = (&*self, tempfile::tempdir()?);
        let path = |node: usize| traces.path().join(format!("{node}.csv"));
        let write = |node: usize| {
            let rate = rate.map(|rate| rate * this.group.shares[node]);
            let seconds = f64::from(crate::measure::driver::WARMUP_MS + driver.millis) / 1e3;
            let requests = rate.map_or(REQUESTS, |rate| (rate * seconds) as usize);
            let mut random = Random::new(this.attempts, node as u64);
            fs::write(path(node), this.group.mix(node).trace(requests, rate, &mut random))
        };
        let ask = |node: usize| {
            let cpu = driver.machine.processors / 2 + node % (driver.machine.processors / 2);
            let (target, workload) =
                (this.group.target(this.scheme, node), format!("trace:{}", path(node).display()));
            let target = Target { url: &target, pid: this.group.pids()[node] };
            let usual = ["--workload", &workload];
            let closed: &[&str] = if rate.is_none() { &["--pipeline", "1"] } else { &[] };
            let threads = ["--threads", "1", "--pin", &cpu.to_string()];
            driver.run((pace(driver), 0), target, &threads, &[&usual[..], closed].concat())
        };
        on_each_node(|node| Ok(write(node)?))?;
        on_each_node(ask)
    }
}

/// Calls a function for each node in a thread of its own.
fn on_each_node<T: Send>(call: impl Fn(usize) -> anyhow::Result<T> + Sync) -> anyhow::Result<Vec<T>> {
    thread::scope(|scope| {
        let call = &call;
        let threads: Vec<_> = (0..NODES).map(|node| scope.spawn(move || call(node))).collect();
        threads.into_iter().map(|thread| thread.join().ok().context("a thread panicked")?).collect()
    })
}

/// Drivers that share a processor must not spin.
fn pace(driver: &Driver<'_>) -> Pace {
    if driver.machine.processors < 2 * NODES { Pace::Due } else { Pace::Spin }
}

fn report(systems: &[System<'_>]) -> Report {
    let mut report = Report::new(
        "A rack of eight nodes",
        &format!(
            "Half a million keys of 16 bytes with values of 32 bytes, zipf 0.99, reads only. Each node has one worker and a processor, \
             and a thread of the driver on another one, which sends its part over 16 connections or sockets: all at the same time. \
             Clients know the owners; a key of a unit of eight is asked from any node. Closed loop: what all nodes answer. Under the \
             limit: the highest rate of Poisson arrivals at which every node answers 99 % of its requests within {LIMIT_US} us, in \
             one of two tries."
        ),
        &[
            "nodes",
            "busiest over mean",
            "closed loop, Mops/s",
            "under the limit, Mops/s",
            "over units of one",
        ],
    );
    for system in systems {
        let is_base = |base: &&System<'_>| {
            base.group.is_apart() && (base.scheme == "minos") == (system.scheme == "minos")
        };
        let base = systems.iter().find(is_base).map_or(f64::NAN, |base| base.within.median());
        let share = system.group.shares.iter().copied().fold(0.0, f64::max);
        report.rows.push(vec![
            system.name.to_owned(),
            format!("{:.2}", share * NODES as f64),
            cell(&system.most, 2),
            cell(&system.within, 2),
            format!("{:.2}", system.within.median() / base),
        ]);
    }
    report
}
