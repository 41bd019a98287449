//! Eight nodes beside the clusters of Redis and Valkey: the cost of an operation, the balance of the nodes, and the
//! throughput under a limit on the 99th percentile.
//!
//! One node at a time gets its part of the requests, while all others are there. The rack carries what its busiest node
//! carries, over that node's part.

pub(super) mod bench;
pub(super) mod cluster;
pub(super) mod groups;
pub(super) mod keys;
pub(super) mod limit;

use std::path::{Path, PathBuf};

use self::{
    bench::{Bench, Node},
    groups::Group,
    keys::Keys,
};
use super::{
    Samples,
    report::{Report, cell},
};
use crate::setup;

pub(super) const NODES: usize = 8;
/// The first port of each rack, apart from those of other figures. Native nodes take two ports each.
pub(super) const PORTS: [u16; 2] = [14_500, 14_520];
/// Memory of each node, for all contestants.
const MEMORY_MIB: u32 = 64;
/// The limit on the 99th percentile.
pub(super) const LIMIT_US: f64 = 500.0;
const PIPELINES: [&str; 2] = ["1", "16"];
/// What one unit is to gain over units of one, and how busy its busiest node may be over the mean.
const SPEEDUP_MIN: f64 = 1.3;
const BALANCE_MAX: f64 = 1.1;

/// Lengths of the measurement, and a server of Valkey.
pub(super) struct Extent {
    pub(super) rounds: u32,
    pub(super) millis: u32,
    pub(super) valkey: Option<PathBuf>,
}

/// A group of servers in one protocol.
struct System<'g> {
    name: &'static str,
    scheme: &'static str,
    group: &'g Group,
    /// Microseconds of all nodes for an operation, by pipeline.
    us: [Samples; 2],
    /// Operations a second that its busiest node answers within the limit.
    rates: Samples,
    /// Tries in which the driver had no time to spare.
    full: u32,
}

/// Measures; returns the text of `rack-peers.md`.
pub(super) fn measure(program: &Path, extent: &Extent) -> anyhow::Result<String> {
    setup::install()?;
    let mut bench = Bench::new(program, extent.millis)?;
    let racks = [groups::start_rack(program, PORTS[0], NODES)?, groups::start_rack(program, PORTS[1], 1)?];
    // Both racks have the same name, and so the same owners.
    let client = racks[1].client()?;
    let imbalances = Keys::imbalances(|name| groups::owner_in(&client, name))?;
    let cluster_imbalances = Keys::imbalances(|name| Ok(cluster::owner(name)))?;
    let [united, apart] = racks;
    let united = Group::rack(&mut bench, Keys::median(&imbalances), united, true)?;
    let apart = Group::rack(&mut bench, Keys::median(&imbalances), apart, false)?;
    let redis = Group::cluster(&mut bench, Keys::median(&cluster_imbalances), Path::new("redis-server"))?;
    let mut valkey = |program| Group::cluster(&mut bench, Keys::median(&cluster_imbalances), program);
    let valkey = extent.valkey.as_ref().map(|program| valkey(program)).transpose()?;
    let mut systems = vec![
        System::new("Minos, one unit, native", "minos", &united),
        System::new("Minos, units of one, native", "minos", &apart),
        System::new("Minos, one unit, memcached's protocol", "memcached", &united),
        System::new("Minos, units of one, memcached's protocol", "memcached", &apart),
        System::new("Redis Cluster", "resp", &redis),
    ];
    systems.extend(valkey.iter().map(|valkey| System::new("Valkey Cluster", "resp", valkey)));
    for round in 0..extent.rounds {
        eprintln!("rack-peers: round {} of {}", round + 1, extent.rounds);
        systems.iter_mut().try_for_each(|system| system.round(&mut bench, round as usize))?;
    }
    let note = note(extent, &[imbalances, cluster_imbalances]);
    Ok(format!("{}\n{}", table(&systems, &note), goals(&systems)))
}

impl<'g> System<'g> {
    fn new(name: &'static str, scheme: &'static str, group: &'g Group) -> Self {
        Self { name, scheme, group, us: Default::default(), rates: Samples::default(), full: 0 }
    }

    fn round(&mut self, bench: &mut Bench<'_>, round: usize) -> anyhow::Result<()> {
        let number = self.group.node_to_ask(round);
        let node = Node {
            target: self.group.target(self.scheme, number),
            pids: self.group.pids(),
            number,
            mix: self.group.mix(number),
        };
        let mut start = self.rates.median();
        for (pipeline, us) in PIPELINES.into_iter().zip(&mut self.us) {
            let cost = bench.cost(&node, pipeline)?;
            us.push(cost.asked_us + cost.others_us);
            if start.is_nan() {
                start = 1e6 / cost.asked_us;
            }
        }
        let full = bench.full;
        self.rates.push(bench.rate_within_limit(&node, start)?);
        self.full += bench.full - full;
        Ok(())
    }

    /// The part of all requests that the busiest node gets.
    fn share(&self) -> f64 {
        self.group.shares.iter().copied().fold(0.0, f64::max)
    }

    /// Million operations a second of the rack.
    fn mops(&self) -> Samples {
        let mut mops = Samples::default();
        self.rates.0.iter().for_each(|rate| mops.push(rate / self.share() / 1e6));
        mops
    }
}

/// What the page says of its origin. `imbalances` are those of Minos and of the clusters for each set of names.
fn note(extent: &Extent, imbalances: &[Vec<f64>; 2]) -> String {
    let Extent { rounds, millis, valkey } = extent;
    let missing =
        if valkey.is_none() { " Valkey was not measured: Debian 12 has no package of it." } else { "" };
    let [minos, clusters] = imbalances.each_ref().map(|imbalances| {
        let mut samples = Samples::default();
        imbalances.iter().for_each(|imbalance| samples.push(*imbalance));
        cell(&samples, 2)
    });
    format!(
        "Measured. Half a million keys of 16 bytes with values of {} bytes, zipf 0.99, reads only; eight processes with one worker \
         and {MEMORY_MIB} MiB each, all on the first processor. Clients know the owners: a key of a unit of one or of a cluster is \
         asked from its node, a key of a unit of eight from any. One node at a time gets its part from the driver on the second \
         processor, over 16 connections or sockets: the node with the greatest part, or each in turn if all are equal. Cost: \
         processor time of all eight processes for an operation, closed loop, 1 and 16 at a time on each connection. Throughput: \
         the highest rate of Poisson arrivals at which 99 % of the requests take at most {LIMIT_US} us from their intended time \
         in one of two tries; over the node's part it is that of the eight nodes, if each had a processor. Full: tries in which \
         the driver had no time to spare, and not the server was the limit. Busiest over mean: requests of the nodes by the \
         popularity of their keys, and as they counted 100,000 reads of a client that finds the node by itself. Chance puts hot keys \
         together: of {} sets of names, units of one are {minos} times as busy at the busiest node, clusters {clusters}; each is \
         measured with the set of its own median. Medians (smallest..largest), here of {rounds} interleaved rounds of \
         {millis} ms.{missing} `cargo xtask measure rack-peers`",
        keys::VALUE_BYTES,
        keys::SETS
    )
}

fn table(systems: &[System<'_>], note: &str) -> Report {
    let columns = ["us an operation, 1", "16", "busiest over mean", "counted"];
    let rates = ["busiest node, k/s", "full", "all, million/s", "over units of one"];
    let columns = [&["eight nodes"][..], &columns, &rates].concat();
    let mut report = Report::new("Eight nodes beside Redis Cluster", note, &columns);
    report.rows = systems.iter().map(|system| system.row(systems)).collect();
    report
}

impl System<'_> {
    fn row(&self, systems: &[System<'_>]) -> Vec<String> {
        let mut thousands = Samples::default();
        self.rates.0.iter().for_each(|rate| thousands.push(rate / 1e3));
        let is_native = self.scheme == "minos";
        let counted =
            if self.scheme == "memcached" { "-".to_owned() } else { format!("{:.2}", self.group.counted) };
        // Units of one in the same protocol; clusters beside memcached's.
        let base = systems
            .iter()
            .filter(|system| system.group.is_apart() && (system.scheme == "minos") == is_native);
        let base = base.map(|system| system.mops().median()).next().unwrap_or(f64::NAN);
        let [one, many] = [0, 1].map(|at| cell(&self.us[at], 2));
        vec![
            self.name.to_owned(),
            one,
            many,
            format!("{:.2}", self.share() * NODES as f64),
            counted,
            cell(&thousands, 0),
            self.full.to_string(),
            cell(&self.mops(), 2),
            format!("{:.2}", self.mops().median() / base),
        ]
    }
}

/// The goals of one unit, native.
fn goals(systems: &[System<'_>]) -> String {
    let (speedup, balance) =
        (systems[0].mops().median() / systems[1].mops().median(), systems[0].group.counted);
    let met = |is_met: bool| if is_met { "met" } else { "missed" };
    format!(
        "|goal, native|wanted|found||\n|---|---|---|---|\n\
         |one unit over units of one under the limit|{SPEEDUP_MIN} or more|{speedup:.2}|{}|\n\
         |busiest node over the mean|{BALANCE_MAX} or less|{balance:.2}|{}|\n",
        met(speedup.is_finite() && speedup >= SPEEDUP_MIN),
        met(balance <= BALANCE_MAX)
    )
}
