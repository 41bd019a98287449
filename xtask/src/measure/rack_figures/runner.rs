//! Turns: one node of a rack gets requests, and the processor time of all nodes is taken.

use std::{
    fs,
    path::Path,
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, ensure};
use minos_client::{Config, blocking::Client};
use minos_testkit::Client as MemcachedClient;

use super::keys::{Keys, NODES, Part};
use crate::measure::{
    driver::{self, Measurement, ON_THE_SECOND, Pace},
    idle::Counts,
    rack::Rack,
};

const WARMUP_MS: u32 = 100;
/// Time in which nodes attach the memory of their unit, and show clients a directory.
const READY_WITHIN: Duration = Duration::from_secs(30);
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// Turns that fail before the measurement does: on a busy machine, a node may not get its lease in time.
const FAILURES_MAX: u32 = 5;
const REST: Duration = Duration::from_secs(2);

/// Microseconds of processor time for an operation.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cost {
    /// Of the node that is asked.
    pub(super) asked_us: f64,
    /// Of all other nodes together.
    pub(super) others_us: f64,
}

/// The protocol that the driver speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Protocol {
    Native,
    Memcached,
}

/// Racks that hold all keys, and where traces are written.
pub(super) struct Runner<'a> {
    program: &'a Path,
    millis: u32,
    trace: tempfile::NamedTempFile,
    pub(super) keys: Keys,
    /// One unit of all nodes.
    pub(super) united: Rack,
    /// Units of one node.
    pub(super) apart: Rack,
}

impl<'a> Runner<'a> {
    /// Starts the racks and stores the keys of the hottest servers at their nodes.
    pub(super) fn start(program: &'a Path, millis: u32, ports: [u16; 2]) -> anyhow::Result<Self> {
        let native = ["--native", "--memory", "64m"];
        let united = Rack::up_with(program, "one unit", ports[0], (NODES, NODES), &native)?;
        let apart = Rack::up_with(program, "units of one", ports[1], (NODES, 1), &native)?;
        (0..NODES).try_for_each(|node| wait_until_attached(&united, node))?;
        // Both racks have the same name, and so the same owners.
        let client = client_with_directory(&united.target_of("minos", 0))?;
        let owner = |name: &str| Ok(client.owner(name).context("the rack has no directory")? as usize);
        let keys = Keys::of_the_hottest(program, owner)?;
        let trace = tempfile::Builder::new().suffix(".csv").tempfile()?;
        let runner = Self { program, millis, trace, keys, united, apart };
        for node in 0..NODES {
            fs::write(&runner.trace, runner.keys.load(node))?;
            for rack in [&runner.united, &runner.apart] {
                // A node refuses what another one owns.
                driver::load(program, &rack.target_of("minos", node), &["--workload", &runner.workload()])?;
            }
        }
        Ok(runner)
    }

    fn workload(&self) -> String {
        format!("trace:{}", self.trace.path().display())
    }

    /// Lets one node get requests of these parts, one on each of 16 sockets or connections.
    pub(super) fn turn(
        &self,
        rack: &Rack,
        node: usize,
        protocol: Protocol,
        parts: &[Part],
    ) -> anyhow::Result<Cost> {
        fs::write(&self.trace, self.keys.trace(parts))?;
        for _ in 1..FAILURES_MAX {
            match self.attempt(rack, node, protocol, parts) {
                Ok(cost) => return Ok(cost),
                Err(error) => eprintln!("rack-figures: once more, as it failed: {error:#}"),
            }
            thread::sleep(REST);
        }
        self.attempt(rack, node, protocol, parts)
    }

    fn attempt(&self, rack: &Rack, node: usize, protocol: Protocol, parts: &[Part]) -> anyhow::Result<Cost> {
        let scheme = if protocol == Protocol::Native { "minos" } else { "memcached" };
        let measurement = Measurement {
            target: &rack.target_of(scheme, node),
            server_pid: rack.pids()[node],
            threads: ON_THE_SECOND,
            pace: Pace::Spin,
            drain: "100ms",
            warmup_ms: WARMUP_MS,
            millis: self.millis,
            arguments: &["--workload", &self.workload(), "--rate", "max", "--connections", "16"],
        };
        let (before, hits) = (times(rack)?, remote_hits(rack, node)?);
        let result = measurement.run(self.program)?;
        let (after, hits) = (times(rack)?, remote_hits(rack, node)? - hits);
        // Other nodes' keys are read in their memory, or else the costs are of something else.
        let is_remote = rack.pids() == self.united.pids() && parts.iter().any(|part| part.owner != node);
        ensure!((hits > 0) == is_remote, "node {node}: {hits} remote reads with {parts:?}");
        Pace::Spin.pause(WARMUP_MS + self.millis);
        for kind in ["errors", "lost", "misses"] {
            ensure!(result[kind] == 0, "node {node}: {} {kind}, {}", result[kind], result["errors_by_kind"]);
        }
        let asked_us = result["server_cpu_us_per_op"].as_f64().context("no processor time")?;
        let spent: Vec<f64> = after.iter().zip(&before).map(|(after, before)| after - before).collect();
        let others: f64 = spent.iter().sum::<f64>() - spent[node];
        Ok(Cost { asked_us, others_us: asked_us * others / spent[node] })
    }
}

/// A client that knows the owners.
fn client_with_directory(address: &str) -> anyhow::Result<Client> {
    let mut client = Client::connect(address, Config::new())?;
    let deadline = Instant::now() + READY_WITHIN;
    while client.rack().is_none() {
        ensure!(Instant::now() < deadline, "{address} shows no directory");
        // It is asked for along with operations.
        client.get("any")?;
    }
    Ok(client)
}

/// Waits until a node reads the memory of all others.
fn wait_until_attached(rack: &Rack, node: usize) -> anyhow::Result<()> {
    let deadline = Instant::now() + READY_WITHIN;
    loop {
        let stats = MemcachedClient::connect(rack.address_of(node))?.stats("rack")?;
        if stats.iter().filter(|(_, value)| value == "attached").count() == NODES - 1 {
            return Ok(());
        }
        ensure!(Instant::now() < deadline, "node {node} does not attach all others' memory");
        thread::sleep(LOOK_EVERY);
    }
}

/// Reads that a node has found in others' memory.
fn remote_hits(rack: &Rack, node: usize) -> anyhow::Result<u64> {
    let stats = MemcachedClient::connect(rack.address_of(node))?.stats("rack")?;
    let hits = stats.iter().find(|(name, _)| name == "remote_hits").context("no remote_hits")?;
    Ok(hits.1.parse()?)
}

/// Nanoseconds of each node so far.
fn times(rack: &Rack) -> anyhow::Result<Vec<f64>> {
    rack.pids().iter().map(|&pid| Ok(Counts::of(pid)?.cpu_ns as f64)).collect()
}
