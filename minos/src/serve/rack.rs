//! The options of a node of a rack.

use std::{
    net::SocketAddr,
    ops::Range,
    path::PathBuf,
    str::FromStr,
    time::{Duration, SystemTime},
};

use anyhow::{bail, ensure};
use clap::{Args, ValueEnum};
use minos_net::Address;
use minos_node::{
    config::{Acknowledge, Managed, NODES_MAX, RackConfig, RackFabric, RackNode, uniques},
    settings::parse_time,
};

use super::fabric::Fabric;
use crate::secret::read_all;

/// The options of `minos serve` for a node of a rack.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Rack")]
pub(crate) struct RackOptions {
    /// Name of the rack that this server is a node of: all its nodes are one store. `minos rack up` starts a whole one
    #[arg(long, value_name = "NAME", requires_all = ["peers", "node", "hash_seed"])]
    pub(crate) rack: Option<String>,
    /// Number of this node in --peers, from 0 on
    #[arg(long, value_name = "N", requires = "rack")]
    node: Option<usize>,
    /// All nodes, in the order of their numbers: each UNIT@PATH, a Unix socket, or UNIT@IP:PORT, for nodes of other
    /// machines alone; without UNIT@, unit 0. The nodes of a unit read each other's memory if they are on one machine.
    /// With --native, behind each = and the address at which native clients find it
    #[arg(long, value_name = "UNIT@PATH|IP:PORT[=IP:PORT]", value_delimiter = ',', requires = "rack")]
    peers: Vec<Peer>,
    /// File with secrets as `minos secret` prints them, one a line: other nodes must know one of them, and links to them
    /// are sealed with the first. Needed if one of --peers is IP:PORT
    #[arg(long, value_name = "PATH", requires = "rack")]
    rack_secret: Option<PathBuf>,
    /// By what the nodes of a unit read each other's memory, the same at all nodes: those of one machine map it (mapped), or
    /// by UCX (ucx), over all transports or these, as in UCX_TLS
    #[arg(long, value_name = "mapped|ucx[:TRANSPORTS]", default_value_t, requires = "rack")]
    pub(super) rack_fabric: Fabric,
    /// Stop when the process ends that has started this one
    #[arg(long, hide = true)]
    pub(super) ends_with_parent: bool,
    /// Micro-shards into which the keys are divided, the same at all nodes
    #[arg(long, value_name = "N", default_value_t = 4096)]
    micro_shards: u32,
    /// Time that a command waits for the node that owns its key
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = parse_time)]
    rack_timeout: Duration,
    /// Where the rack's coordinator (`minos rack coordinate`) listens, which moves micro-shards between nodes; several
    /// places if one of several coordinators leads. Without one they stay where they are
    #[arg(long, value_name = "PATH|IP:PORT", value_delimiter = ',', requires = "rack")]
    coordinator: Vec<Address>,
    /// Time for which a node answers without a word of the coordinator. The same at the coordinator
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = parse_time)]
    rack_lease: Duration,
    /// What a change has reached when it is acknowledged, where the coordinator keeps copies (--copies). The same at all
    /// nodes
    #[arg(long, value_enum, default_value_t = Reached::Owner, requires = "coordinator")]
    acknowledge: Reached,
    /// Answer reads of memcached clients from copies of other units' items (--copies) that are at most so old: a client may
    /// read what was overwritten that long ago [default: ask the owner]
    #[arg(long, value_name = "TIME", value_parser = parse_time, requires = "coordinator")]
    read_copies: Option<Duration>,
    /// Commands of one worker under way to one node
    #[arg(long, value_name = "N", default_value_t = 1024)]
    rack_waiting: usize,
}

/// What a change has reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Reached {
    /// Its owner. If that is lost, so may be the latest changes
    Owner,
    /// All copies that are there
    Copies,
}

const EXPECTED: &str =
    "expected UNIT@/PATH of a Unix socket, or UNIT@IP:PORT at which the other nodes find this one";

/// A node in `--peers`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Peer {
    unit: u32,
    address: Address,
    native: Option<SocketAddr>,
}

impl Peer {
    /// The node's unit, and its address for native clients: empty if there is none.
    pub(crate) fn unit_and_address(&self) -> (u32, String) {
        (self.unit, self.native.map(|address| address.to_string()).unwrap_or_default())
    }
}

/// Looks whether each node is at a place of its own.
///
/// # Errors
/// Names two that are not.
pub(crate) fn check_peers(peers: &[Peer]) -> anyhow::Result<()> {
    for (number, peer) in peers.iter().enumerate() {
        let twin = peers[..number].iter().position(|other| other.address == peer.address);
        if let Some(twin) = twin {
            bail!("--peers: nodes {twin} and {number} are both at {}", peer.address);
        }
    }
    Ok(())
}

impl FromStr for Peer {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (unit, address) = text.split_once('@').unwrap_or(("0", text));
        let unit = unit.parse().map_err(|_| format!("{unit} is not the number of a unit"))?;
        let (address, native) =
            address.split_once('=').map_or((address, None), |(address, native)| (address, Some(native)));
        let native = native.map(|native| native.parse().map_err(|_| format!("{native} is not IP:PORT")));
        let address: Address = address.parse().map_err(|_| EXPECTED)?;
        let is_reachable = match &address {
            Address::Unix(path) => path.is_absolute(),
            Address::Tcp(address) => address.port() != 0 && !address.ip().is_unspecified(),
        };
        if !is_reachable {
            return Err(EXPECTED.to_owned());
        }
        Ok(Self { unit, address, native: native.transpose()? })
    }
}

impl RackOptions {
    /// The server's place in its rack; `None` if it is in none.
    ///
    /// # Errors
    /// Names the option that does not go with a rack.
    pub(super) fn config(&self, serves: Serves) -> anyhow::Result<Option<RackConfig>> {
        let (Some(name), Some(node)) = (&self.rack, self.node) else { return Ok(None) };
        let is_word = |byte: u8| byte.is_ascii_graphic();
        ensure!(
            (1..=64).contains(&name.len()) && name.bytes().all(is_word),
            "--rack {name}: expected 1 to 64 characters without spaces"
        );
        ensure!(
            self.coordinator.is_empty() || !serves.promises_durability,
            "--coordinator and --durability: a node that loses its memory begins without items, also on flash. Use \
             --durability none"
        );
        self.check_peers(node, serves.native)?;
        let nodes = self.peers.iter().cloned();
        let nodes = nodes.map(|Peer { unit, address, native }| RackNode { unit, address, native });
        let file = self.rack_secret.as_deref();
        let secrets = file.map(|path| read_all("--rack-secret", path)).transpose()?.unwrap_or_default();
        ensure!(
            !secrets.is_empty() || self.peers.iter().all(|peer| matches!(peer.address, Address::Unix(_))),
            "--peers: whoever reaches a node at IP:PORT could read and write; --rack-secret is needed"
        );
        ensure!(
            !secrets.is_empty() || self.coordinator.iter().all(|address| matches!(address, Address::Unix(_))),
            "--coordinator: whoever answers at IP:PORT could move and drop items; --rack-secret is needed"
        );
        Ok(Some(RackConfig {
            name: name.clone(),
            node,
            nodes: nodes.collect(),
            micro_shards: self.micro_shards,
            timeout: self.rack_timeout,
            waiting_max: self.rack_waiting,
            managed: (!self.coordinator.is_empty()).then(|| Managed {
                coordinators: self.coordinator.clone(),
                lease: self.rack_lease,
                read_copies: self.read_copies,
                acknowledge: match self.acknowledge {
                    Reached::Owner => Acknowledge::Owner,
                    Reached::Copies => Acknowledge::Copies,
                },
            }),
            secrets,
            fabric: RackFabric::Mapped,
        }))
    }

    /// Each node has a place of its own. Native clients must find all nodes or none, and each where it is served.
    fn check_peers(&self, node: usize, served: Option<SocketAddr>) -> anyhow::Result<()> {
        check_peers(&self.peers)?;
        for (number, peer) in self.peers.iter().enumerate() {
            ensure!(
                peer.native.is_some() == served.is_some(),
                "--rack and --native: {} for node {number} in --peers",
                if served.is_some() {
                    "there is no =IP:PORT"
                } else {
                    "without --native, there must be no =IP:PORT"
                }
            );
        }
        let told = self.peers.get(node).and_then(|peer| peer.native);
        if let (Some(told), Some(served)) = (told, served) {
            ensure!(
                told.port() == served.port() && told.port() != 0,
                "--native {served}: clients look for it at {told}, as --peers says"
            );
        }
        Ok(())
    }

    /// True if nodes find each other at Unix sockets, which are for the user alone who has made them.
    pub(super) fn has_private_sockets(&self) -> bool {
        self.peers.iter().any(|peer| matches!(peer.address, Address::Unix(_)))
    }

    /// Micro-shards whose owners the memory shows.
    pub(super) fn micro_shards(&self) -> u32 {
        if self.rack.is_some() { self.micro_shards } else { 0 }
    }

    /// CAS uniques that the node may give, if items move between nodes.
    pub(super) fn uniques(&self) -> Option<Range<u64>> {
        let node = self.node.filter(|&node| node < NODES_MAX && !self.coordinator.is_empty())?;
        Some(uniques(node, SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default()))
    }
}

/// What else the server is asked for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Serves {
    /// True if changes survive the loss of memory.
    pub(super) promises_durability: bool,
    /// Where the native protocol is served.
    pub(super) native: Option<SocketAddr>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn peers_are_read() {
        let peer = |unit, path: &str| Ok(Peer { unit, address: Address::Unix(path.into()), native: None });
        assert_eq!("/a".parse(), peer(0, "/a"));
        assert_eq!("3@/a@b".parse(), peer(3, "/a@b"));
        assert_eq!("1@unix:/a".parse(), peer(1, "/a"));
        let native = Some("10.0.0.1:7".parse().unwrap());
        assert_eq!(
            "2@/a=10.0.0.1:7".parse(),
            Ok(Peer { unit: 2, address: Address::Unix("/a".into()), native })
        );
        let address = Address::Tcp("10.0.0.2:8".parse().unwrap());
        assert_eq!("2@10.0.0.2:8=10.0.0.1:7".parse(), Ok(Peer { unit: 2, address, native }));
        for text in
            ["", "a", "x@/a", "1@127.0.0.1:0", "1@0.0.0.0:1", "1@unix:a", "-1@/a", "/a=", "/a=localhost:1"]
        {
            assert!(text.parse::<Peer>().is_err(), "{text}");
        }
    }
}
