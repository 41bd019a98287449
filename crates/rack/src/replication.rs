//! Migration and replication of the hottest micro-shards (RackOut §4.7).

use crate::{BadParameter, unit_count};

/// Service times of requests at a server, in microseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ServiceTimes {
    /// A read from the server's own memory.
    pub lr_us: f64,
    /// A read from another server's memory.
    pub rr_us: f64,
    /// A write, at the server that owns the data.
    pub lw_us: f64,
}

impl ServiceTimes {
    /// These, if each is above zero.
    ///
    /// # Errors
    /// One is not.
    pub fn checked(self) -> Result<Self, BadParameter> {
        for (name, time) in [("lr-us", self.lr_us), ("rr-us", self.rr_us), ("lw-us", self.lw_us)] {
            BadParameter::unless_positive(name, time)?;
        }
        Ok(self)
    }
}

/// The requests for a micro-shard, as shares of all requests.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Demand {
    /// Reads.
    pub reads: f64,
    /// Writes.
    pub writes: f64,
}

/// The kind of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StepKind {
    /// The only copy moved to another server.
    Migration,
    /// One more copy was made.
    Replication,
}

/// One step of the greedy algorithm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// The kind.
    pub kind: StepKind,
    /// The micro-shard.
    pub micro_shard: u32,
    /// The server that was the hottest.
    pub relieved: u32,
    /// The server that was the least loaded, of the units without a copy.
    pub to: u32,
}

/// Servers in units, their micro-shards, and the resulting load.
///
/// Reads of a micro-shard are spread evenly over the units with a copy, and there over all servers; a write goes to
/// every copy. The load of a server is the time it spends on one request of the whole cluster, on average.
#[derive(Clone, Debug)]
pub struct Cluster<'a> {
    gf: usize,
    times: ServiceTimes,
    demands: &'a [Demand],
    /// For each micro-shard, the servers with a copy.
    holders: Vec<Vec<u32>>,
    /// For each micro-shard, true if it was ever moved.
    moved: Vec<bool>,
    /// For each unit, the micro-shards that it has a copy of.
    held: Vec<Vec<u32>>,
    /// For each unit, the reads that come to it.
    unit_reads: Vec<f64>,
    servers: Vec<Server>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Server {
    /// Reads of the server's micro-shards, by any server of the unit.
    reads: f64,
    writes: f64,
}

impl<'a> Cluster<'a> {
    /// `servers` in units of `gf`, with the `owners` of the micro-shards.
    ///
    /// # Errors
    /// The servers do not divide into units, a service time is not above zero, or the owners are not servers
    /// of the cluster, one for each demand.
    pub fn new(
        servers: u32,
        gf: u32,
        times: ServiceTimes,
        owners: &[u32],
        demands: &'a [Demand],
    ) -> Result<Self, BadParameter> {
        let units = unit_count(servers, gf)? as usize;
        if owners.len() != demands.len() {
            return Err(BadParameter::new("owners", owners.len(), demands.len()));
        }
        if let Some(owner) = owners.iter().find(|owner| **owner >= servers) {
            return Err(BadParameter::new("owner", owner, format_args!("below {servers}")));
        }
        let mut cluster = Self {
            gf: gf as usize,
            times: times.checked()?,
            demands,
            holders: vec![Vec::new(); owners.len()],
            moved: vec![false; owners.len()],
            held: vec![Vec::new(); units],
            unit_reads: vec![0.0; units],
            servers: vec![Server::default(); servers as usize],
        };
        for (micro_shard, &owner) in owners.iter().enumerate() {
            cluster.copy_to(micro_shard as u32, owner);
        }
        Ok(cluster)
    }

    /// The time that a server spends on one request of the cluster, in microseconds.
    pub fn load(&self, server: u32) -> f64 {
        let Server { reads, writes } = self.servers[server as usize];
        let others = self.unit_reads[server as usize / self.gf] - reads;
        let per_server = (reads * self.times.lr_us + others * self.times.rr_us) / self.gf as f64;
        per_server + writes * self.times.lw_us
    }

    /// The server with the highest load, and that load.
    pub fn hottest(&self) -> (u32, f64) {
        self.extreme((0..self.servers.len() as u32).rev(), |a, b| a.total_cmp(&b)).unwrap_or((0, 0.0))
    }

    /// The rate at which the hottest server saturates, as a share of the cluster's saturation with only local
    /// reads, spread evenly (RackOut §4.2).
    pub fn utilization(&self) -> f64 {
        self.times.lr_us / (self.servers.len() as f64 * self.hottest().1)
    }

    /// The servers with a copy of a micro-shard.
    pub fn holders(&self, micro_shard: u32) -> &[u32] {
        &self.holders[micro_shard as usize]
    }

    /// Takes one step of the greedy algorithm: the micro-shard that contributes most to the unit of the
    /// hottest server moves to the least loaded server, or gets a copy there if it was moved before. `None`
    /// if every micro-shard of that unit has a copy in every unit.
    pub fn relieve(&mut self) -> Option<Step> {
        let relieved = self.hottest().0;
        let unit = relieved as usize / self.gf;
        let units = self.held.len();
        let movable = self.held[unit].iter().filter(|&&m| self.holders[m as usize].len() < units);
        let micro_shard = *movable
            .max_by(|&&a, &&b| self.contribution(a).total_cmp(&self.contribution(b)).then(b.cmp(&a)))?;
        let to = self.least_loaded_without(micro_shard)?;
        let kind = if self.moved[micro_shard as usize] { StepKind::Replication } else { StepKind::Migration };
        if kind == StepKind::Migration {
            self.withdraw(micro_shard);
        }
        self.moved[micro_shard as usize] = true;
        self.copy_to(micro_shard, to);
        Some(Step { kind, micro_shard, relieved, to })
    }

    /// The time that a unit with a copy of it spends on a micro-shard.
    fn contribution(&self, micro_shard: u32) -> f64 {
        let Demand { reads, writes } = self.demands[micro_shard as usize];
        let copies = self.holders[micro_shard as usize].len() as f64;
        let read_us = (self.times.lr_us + (self.gf as f64 - 1.0) * self.times.rr_us) / self.gf as f64;
        reads / copies * read_us + writes * self.times.lw_us
    }

    fn least_loaded_without(&self, micro_shard: u32) -> Option<u32> {
        let holders = &self.holders[micro_shard as usize];
        let taken = |server: u32| holders.iter().any(|h| *h as usize / self.gf == server as usize / self.gf);
        let free = (0..self.servers.len() as u32).rev().filter(|&server| !taken(server));
        self.extreme(free, |a, b| b.total_cmp(&a)).map(|(server, _)| server)
    }

    /// The last of the greatest.
    fn extreme(
        &self,
        servers: impl Iterator<Item = u32>,
        order: impl Fn(f64, f64) -> std::cmp::Ordering,
    ) -> Option<(u32, f64)> {
        servers.map(|server| (server, self.load(server))).max_by(|a, b| order(a.1, b.1))
    }

    fn copy_to(&mut self, micro_shard: u32, server: u32) {
        self.account(micro_shard, -1.0);
        self.holders[micro_shard as usize].push(server);
        self.held[server as usize / self.gf].push(micro_shard);
        self.account(micro_shard, 1.0);
    }

    /// Removes all copies.
    fn withdraw(&mut self, micro_shard: u32) {
        self.account(micro_shard, -1.0);
        for server in std::mem::take(&mut self.holders[micro_shard as usize]) {
            self.held[server as usize / self.gf].retain(|other| *other != micro_shard);
        }
    }

    /// Adds the load of a micro-shard to its holders, or subtracts it.
    fn account(&mut self, micro_shard: u32, sign: f64) {
        let Demand { reads, writes } = self.demands[micro_shard as usize];
        let holders = &self.holders[micro_shard as usize];
        let share = sign * reads / holders.len().max(1) as f64;
        for &server in holders {
            self.unit_reads[server as usize / self.gf] += share;
            self.servers[server as usize].reads += share;
            self.servers[server as usize].writes += sign * writes;
        }
    }
}
