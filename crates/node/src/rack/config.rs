//! The options of a node of a rack.

#[cfg(feature = "ucx")]
use std::sync::Arc;
use std::{
    ffi::OsString,
    net::SocketAddr,
    path::{Path, PathBuf},
    time::Duration,
};

use minos_base::{hash_key, is_left_out};
#[cfg(feature = "ucx")]
pub use minos_fabric::ucx::UcxMemory;
use minos_net::Address;
use minos_proto::native::Secret;
use minos_sealed::Keys;
use minos_unit::MICRO_SHARDS_MAX;
pub use minos_unit::NODES_MAX;

use crate::server::config::{InvalidOption, bound};

/// Under which the name of a rack is hashed.
const NAME_SEED: u64 = 0x5ac4_0f5e_ed5a_11ce;

/// The seed of the public hash that chooses a key's micro-shard. Clients compute it, as a key's direction: it is the same at
/// all nodes, also after a restart, and reveals nothing of the place in a table.
pub(super) fn direction_seed(rack: &str) -> u64 {
    hash_key(rack.as_bytes(), NAME_SEED).0
}

/// A node's place in its rack.
#[derive(Clone, Debug)]
pub struct RackConfig {
    /// Name of the rack: nodes of another do not talk to this one.
    pub name: String,
    /// Number of this node in `nodes`.
    pub node: usize,
    /// All nodes of the rack.
    pub nodes: Vec<RackNode>,
    /// Micro-shards, into which the keys are divided; the same at all nodes.
    pub micro_shards: u32,
    /// Time that a forwarded command waits for its reply.
    pub timeout: Duration,
    /// Commands of one worker under way to one node.
    pub waiting_max: usize,
    /// Who moves micro-shards between nodes, if anyone does.
    pub managed: Option<Managed>,
    /// Secrets, one of which the other nodes must know; links are sealed with the first. Without any, links are not
    /// sealed.
    pub secrets: Vec<Secret>,
    /// By what the nodes of a unit read each other's memory; the same at all nodes.
    pub fabric: RackFabric,
}

/// By what the nodes of a unit read each other's memory.
#[derive(Clone, Debug, Default)]
pub enum RackFabric {
    /// Those of one machine map it.
    #[default]
    Mapped,
    /// By UCX, which has allocated this memory for the node's table.
    #[cfg(feature = "ucx")]
    Ucx(Arc<UcxMemory>),
}

/// How a node takes part in a rack that has a coordinator.
#[derive(Clone, Debug)]
pub struct Managed {
    /// Where coordinators listen, one of which leads: Unix sockets, or addresses at which they must prove to know a
    /// secret.
    pub coordinators: Vec<Address>,
    /// Time for which the coordinator lets a node answer. The same at the coordinator and all nodes.
    pub lease: Duration,
    /// What a change has reached when it is acknowledged, if the coordinator keeps copies in other units.
    pub acknowledge: Acknowledge,
    /// How old a copy of another unit's items may be from which memcached clients' reads are answered. Without it, none
    /// are.
    pub read_copies: Option<Duration>,
}

/// What a change has reached when it is acknowledged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Acknowledge {
    /// Its owner. If that is lost, so may be the latest changes.
    #[default]
    Owner,
    /// All copies that are there.
    Copies,
}

/// A node as the others know it.
#[derive(Clone, Debug)]
pub struct RackNode {
    /// Its unit, whose nodes read each other's memory.
    pub unit: u32,
    /// Where it listens for forwarded commands. At a Unix socket, it passes its memory too, at the same path with
    /// `.memory` or `.ucx` behind it.
    pub address: Address,
    /// Where native clients say hello to it; `None` if they cannot reach it.
    pub native: Option<SocketAddr>,
}

impl RackNode {
    /// The path of its socket, if it is on this machine.
    pub(crate) fn path(&self) -> Option<&Path> {
        match &self.address {
            Address::Unix(path) => Some(path),
            Address::Tcp(_) => None,
        }
    }
}

impl RackConfig {
    /// Nodes of these units on one machine, as one of them sees them, without a coordinator.
    #[cfg(test)]
    pub(crate) fn of_units(node: usize, units: &[u32], micro_shards: u32) -> Self {
        let peer = |(number, &unit)| RackNode {
            unit,
            address: Address::Unix(format!("/none/{number}").into()),
            native: None,
        };
        Self {
            name: "r".to_owned(),
            node,
            nodes: units.iter().enumerate().map(peer).collect(),
            micro_shards,
            timeout: Duration::from_secs(1),
            waiting_max: 1,
            managed: None,
            secrets: Vec::new(),
            fabric: RackFabric::Mapped,
        }
    }

    /// The socket at which a node passes its memory, if it is on this machine. Nodes with different fabrics do not meet.
    pub(crate) fn memory_path(&self, node: usize) -> Option<PathBuf> {
        let mut name = OsString::from(self.nodes.get(node)?.path()?);
        name.push(match self.fabric {
            RackFabric::Mapped => ".memory",
            #[cfg(feature = "ucx")]
            RackFabric::Ucx(_) => ".ucx",
        });
        Some(name.into())
    }

    /// The keys of the links, if they are sealed.
    pub(crate) fn keys(&self) -> Option<Keys> {
        (!self.secrets.is_empty()).then(|| Keys::new(&self.name, &self.secrets))
    }

    /// True if this node could read the memory of another, or another this one's: both are on one machine, or a fabric may
    /// lead there.
    pub(crate) fn is_near(&self, node: usize) -> bool {
        let is_mapped = matches!(self.fabric, RackFabric::Mapped);
        !is_mapped || [self.node, node].iter().all(|&node| self.nodes[node].path().is_some())
    }

    /// See [`direction_seed`].
    pub(crate) fn direction_seed(&self) -> u64 {
        direction_seed(&self.name)
    }

    /// True if micro-shards may move.
    #[inline]
    pub(crate) fn is_managed(&self) -> bool {
        self.managed.is_some()
    }

    /// True if a change is acknowledged once its copies have it.
    #[inline]
    pub(crate) fn acknowledges_copies(&self) -> bool {
        self.managed.as_ref().is_some_and(|managed| managed.acknowledge == Acknowledge::Copies)
            && !is_left_out("hold")
    }

    pub(crate) fn check(&self) -> Result<(), InvalidOption> {
        bound("--peers", self.nodes.len() as u64, 1, NODES_MAX as u64)?;
        bound("--node", self.node as u64, 0, self.nodes.len() as u64 - 1)?;
        let micro_shards_max = u64::from(MICRO_SHARDS_MAX);
        bound("--micro-shards", u64::from(self.micro_shards), self.nodes.len() as u64, micro_shards_max)?;
        let lease = self.managed.as_ref().map_or(1000, |managed| managed.lease.as_millis() as u64);
        bound("--rack-lease", lease, 100, 3_600_000)?;
        let copies = self.managed.as_ref().and_then(|managed| managed.read_copies);
        bound("--read-copies", copies.map_or(1000, |old| old.as_millis() as u64), 10, 3_600_000)?;
        bound("--rack-timeout", self.timeout.as_millis() as u64, 1, 3_600_000)?;
        bound("--rack-waiting", self.waiting_max as u64, 1, 1 << 20)
    }
}
