//! Eight servers that hold all keys together: a rack or a cluster.

use std::{
    path::Path,
    time::{Duration, Instant},
};

use anyhow::{Context as _, ensure};
use minos_client::blocking;
use minos_rackmodel::Random;
use minos_testkit::Client;

use super::{
    MEMORY_MIB, NODES,
    bench::Bench,
    cluster::{self, Cluster},
    keys::{Keys, Mix},
};
use crate::measure::rack::{Rack, count_in, spread};

/// Two intervals in which a coordinator weighs reads, and a little more.
const SETTLE: Duration = Duration::from_secs(25);
/// Requests of a client that knows the owners, by which the balance is counted.
const REQUESTS: usize = 100_000;

enum Servers {
    Rack(Rack),
    Cluster(Cluster),
}

/// Servers with all keys.
pub(in crate::measure) struct Group {
    keys: Keys,
    servers: Servers,
    /// The node of each key.
    owners: Vec<usize>,
    /// True if any node answers for any key.
    is_unit: bool,
    /// The part of all requests that each node gets, computed from the popularity of its keys.
    pub(in crate::measure) shares: [f64; NODES],
    /// The busiest node over the mean, as counted by the servers themselves.
    pub(super) counted: f64,
}

/// Starts a rack whose units have so many nodes.
pub(in crate::measure) fn start_rack(program: &Path, port: u16, unit_size: usize) -> anyhow::Result<Rack> {
    let memory = format!("{MEMORY_MIB}m");
    Rack::up_with(program, "a rack of eight", port, (NODES, unit_size), &["--native", "--memory", &memory])
}

/// The owner of a key as a client knows it.
pub(in crate::measure) fn owner_in(client: &blocking::Client, name: &str) -> anyhow::Result<usize> {
    Ok(client.owner(name).context("the rack has no directory")? as usize)
}

impl Group {
    /// A rack that has started, with these keys.
    pub(in crate::measure) fn rack(
        bench: &mut Bench<'_>,
        keys: Keys,
        rack: Rack,
        is_unit: bool,
    ) -> anyhow::Result<Self> {
        if is_unit {
            (0..NODES).try_for_each(|node| rack.wait_until_attached(node))?;
        }
        let client = rack.client()?;
        let owners = keys.names.iter().map(|name| owner_in(&client, name)).collect::<anyhow::Result<_>>()?;
        Self::loaded(bench, keys, Servers::Rack(rack), owners, is_unit)
    }

    pub(in crate::measure) fn cluster(
        bench: &mut Bench<'_>,
        keys: Keys,
        program: &Path,
    ) -> anyhow::Result<Self> {
        let servers = Servers::Cluster(Cluster::start(program)?);
        let owners = keys.names.iter().map(|name| cluster::owner(name)).collect();
        Self::loaded(bench, keys, servers, owners, false)
    }

    /// Stores all keys and counts the balance.
    fn loaded(
        bench: &mut Bench<'_>,
        keys: Keys,
        servers: Servers,
        owners: Vec<usize>,
        is_unit: bool,
    ) -> anyhow::Result<Self> {
        let shares = if is_unit { [1.0 / NODES as f64; NODES] } else { keys.shares(&owners) };
        let mut group = Self { keys, servers, owners, is_unit, shares, counted: 0.0 };
        for node in 0..NODES {
            bench.load(&group.target("memcached", node), &group.keys.of_node(&group.owners, node))?;
        }
        group.counted = group.count_balance(&group.keys.all())?;
        Ok(group)
    }

    /// The value of `minos bench --target` for a node. A cluster has a protocol of its own.
    pub(in crate::measure) fn target(&self, scheme: &str, node: usize) -> String {
        match &self.servers {
            Servers::Rack(rack) => rack.target_of(scheme, node),
            Servers::Cluster(cluster) => cluster.target(node),
        }
    }

    /// Gives each server a processor of its own, of so many, in turn.
    pub(in crate::measure) fn spread(&self, processors: usize) -> anyhow::Result<()> {
        spread(&self.pids(), processors)
    }

    pub(in crate::measure) fn pids(&self) -> Vec<u32> {
        match &self.servers {
            Servers::Rack(rack) => rack.pids().to_vec(),
            Servers::Cluster(cluster) => cluster.pids(),
        }
    }

    /// True for a rack whose units have one node.
    pub(in crate::measure) fn is_apart(&self) -> bool {
        matches!(self.servers, Servers::Rack(_)) && !self.is_unit
    }

    /// The node that bounds the group: the one with the greatest share; each in its turn, if all are equal.
    pub(super) fn node_to_ask(&self, round: usize) -> usize {
        let hottest = (0..NODES).max_by(|&one, &other| self.shares[one].total_cmp(&self.shares[other]));
        if self.is_unit { round % NODES } else { hottest.unwrap_or(0) }
    }

    /// Keys that clients which know the owners ask this node for.
    pub(in crate::measure) fn mix(&self, node: usize) -> Mix<'_> {
        if self.is_unit { self.keys.all() } else { self.keys.of_node(&self.owners, node) }
    }

    /// Sends reads by a client that knows the owners, and compares what the nodes have counted.
    fn count_balance(&self, keys: &Mix<'_>) -> anyhow::Result<f64> {
        self.settle(keys)?;
        let before = self.gets()?;
        let mut random = Random::new(1, 1);
        let names = (0..REQUESTS).map(|_| keys.draw(&mut random));
        match &self.servers {
            Servers::Rack(rack) => {
                let mut client = rack.client()?;
                for name in names {
                    client.get(name)?;
                }
            }
            Servers::Cluster(cluster) => cluster.read(names)?,
        }
        let counted: Vec<u64> =
            self.gets()?.iter().zip(before).map(|(after, before)| after - before).collect();
        let (sum, most) = (counted.iter().sum::<u64>(), counted.iter().max().copied().unwrap_or(0));
        ensure!(sum >= REQUESTS as u64, "the nodes have counted {counted:?}");
        Ok((most * NODES as u64) as f64 / sum as f64)
    }

    /// Reads until a unit has weighed its nodes by these reads: by what loading them has cost, it would read less where
    /// keys were stored last.
    fn settle(&self, keys: &Mix<'_>) -> anyhow::Result<()> {
        let Servers::Rack(rack) = &self.servers else { return Ok(()) };
        // A node of a unit of its own has no choice.
        if !self.is_unit {
            return Ok(());
        }
        let (mut client, mut random) = (rack.client()?, Random::new(2, 1));
        let end = Instant::now() + SETTLE;
        while Instant::now() < end {
            client.get(keys.draw(&mut random))?;
        }
        Ok(())
    }

    /// GETs that each node has executed.
    fn gets(&self) -> anyhow::Result<Vec<u64>> {
        let of_rack = |rack: &Rack, node| {
            let mut client =
                Client::connect(rack.address_of(node)).with_context(|| format!("node {node}"))?;
            let stats = client.stats("")?;
            count_in(&stats, "cmd_get").context("no cmd_get")
        };
        match &self.servers {
            Servers::Rack(rack) => (0..NODES).map(|node| of_rack(rack, node)).collect(),
            Servers::Cluster(cluster) => cluster.gets(),
        }
    }
}
