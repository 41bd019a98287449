//! Commands of an operator to the coordinator of a rack.

use std::{ffi::OsString, os::unix::ffi::OsStrExt as _, path::PathBuf};

use anyhow::{Context, bail, ensure};
use clap::{Args, Subcommand};
use minos_base::limits::KEY_BYTES_MAX;
use minos_net::Address;
use minos_node::coordinator::{ask_leader, where_line};

use crate::secret::read_all;

/// What an operator may ask for.
#[derive(Debug, Subcommand)]
pub(super) enum Operate {
    /// Show who owns how much, as the coordinator sees it
    State(State),
    /// Show the micro-shard of a key, and its node
    Where(Where),
    /// Move a micro-shard to a node, while it is used
    Move(Move),
    /// Move all micro-shards away from a node
    Drain(OfNode),
    /// Add a node that is running, and move its part of the micro-shards to it. Of a node that is drained: let it stay
    Add(Add),
    /// Remove a node that was drained
    Remove(OfNode),
    /// Move every micro-shard to where it was at first, after others have replaced its node
    Balance(State),
    /// Give up the items of a node that is dead or has lost them: others begin without them
    GiveUp(OfNode),
}

/// The coordinator.
#[derive(Args, Debug)]
pub(super) struct State {
    /// Where the coordinator listens; several places if one of several leads. Over TCP, --rack and --rack-secret are
    /// needed
    #[arg(long, value_name = "PATH|IP:PORT", value_delimiter = ',', required = true)]
    coordinator: Vec<Address>,
    /// Name of the rack
    #[arg(long, value_name = "NAME", requires = "rack_secret")]
    rack: Option<String>,
    /// File with a secret that the coordinator knows
    #[arg(long, value_name = "PATH", requires = "rack")]
    rack_secret: Option<PathBuf>,
}

impl State {
    /// The coordinator's answer to a line.
    fn ask(&self, line: &str) -> anyhow::Result<String> {
        let file = self.rack_secret.as_deref();
        let secrets = file.map(|path| read_all("--rack-secret", path)).transpose()?;
        ensure!(
            secrets.is_some() || self.coordinator.iter().all(|address| matches!(address, Address::Unix(_))),
            "--coordinator IP:PORT: --rack and --rack-secret are needed"
        );
        let rack = self.rack.as_deref().zip(secrets.as_deref());
        ask_leader(&self.coordinator, rack, line).context("the coordinator of the rack")
    }
}

#[derive(Args, Debug)]
pub(super) struct Where {
    #[command(flatten)]
    at: State,
    /// The key
    key: OsString,
}

#[derive(Args, Debug)]
pub(super) struct Move {
    #[command(flatten)]
    at: State,
    /// Number of the micro-shard
    micro_shard: u32,
    /// Number of the node
    to: u32,
}

#[derive(Args, Debug)]
pub(super) struct OfNode {
    #[command(flatten)]
    at: State,
    /// Number of the node
    node: u32,
}

#[derive(Args, Debug)]
pub(super) struct Add {
    #[command(flatten)]
    at: State,
    /// Number of the node, which all nodes have in --peers
    node: u32,
    /// Its unit
    unit: u32,
    /// Where native clients find it
    address: Option<std::net::SocketAddr>,
}

/// Asks the coordinator, and prints its answer.
pub(super) fn run(command: &Operate) -> anyhow::Result<()> {
    let (at, line) = match command {
        Operate::State(at) => (at, "status".to_owned()),
        Operate::Where(Where { at, key }) => {
            let is_key = (1..=KEY_BYTES_MAX).contains(&key.len());
            ensure!(is_key, "a key has 1 to {KEY_BYTES_MAX} bytes, this one {}", key.len());
            (at, where_line(key.as_bytes()))
        }
        Operate::Move(Move { at, micro_shard, to }) => (at, format!("move {micro_shard} {to}")),
        Operate::Drain(OfNode { at, node }) => (at, format!("drain {node}")),
        Operate::Add(Add { at, node, unit, address }) => {
            let address = address.map(|address| address.to_string()).unwrap_or_default();
            (at, format!("add {node} {unit} {address}"))
        }
        Operate::Remove(OfNode { at, node }) => (at, format!("remove {node}")),
        Operate::Balance(at) => (at, "balance".to_owned()),
        Operate::GiveUp(OfNode { at, node }) => (at, format!("give-up {node}")),
    };
    let answer = at.ask(&line)?;
    match answer.strip_prefix("error: ") {
        Some(error) => bail!("{}", error.trim()),
        None => print!("{answer}"),
    }
    Ok(())
}
