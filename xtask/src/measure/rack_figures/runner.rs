//! Turns: one node of a rack gets requests, and the processor time of all nodes is taken.

use std::{fs, path::Path, thread, time::Duration};

use anyhow::{Context as _, ensure};

use super::keys::{Keys, NODES, Part};
use crate::measure::{
    driver::{self, Measurement, ON_THE_SECOND, Pace},
    rack::Rack,
    turn::{self, Cost},
};

const WARMUP_MS: u32 = 100;
/// Turns that fail before the measurement does: on a busy machine, a node may not get its lease in time.
const FAILURES_MAX: u32 = 5;
const REST: Duration = Duration::from_secs(2);

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
        (0..NODES).try_for_each(|node| united.wait_until_attached(node))?;
        // Both racks have the same name, and so the same owners.
        let client = united.client()?;
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
            draw: 0,
            arguments: &["--workload", &self.workload(), "--rate", "max", "--connections", "16"],
        };
        let hits = rack.remote_hits(node)?;
        let cost = turn::take(self.program, &measurement, rack.pids(), node, 0.0)?;
        let hits = rack.remote_hits(node)? - hits;
        // Other nodes' keys are read in their memory, or else the costs are of something else.
        let is_remote = rack.pids() == self.united.pids() && parts.iter().any(|part| part.owner != node);
        ensure!((hits > 0) == is_remote, "node {node}: {hits} remote reads with {parts:?}");
        Ok(cost)
    }
}
