//! Commands of an operator to the coordinator of a rack.

use std::path::PathBuf;

use anyhow::{Context, bail};
use clap::{Args, Subcommand};
use minos_node::coordinator::ask;

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
    /// Add a node that is running, and move its part of the micro-shards to it
    Add(Add),
    /// Remove a node that was drained
    Remove(OfNode),
    /// Give up the items of a node that is dead or has lost them: others begin without them
    GiveUp(OfNode),
}

/// The coordinator.
#[derive(Args, Debug)]
pub(super) struct State {
    /// Unix socket of the coordinator
    #[arg(long, value_name = "PATH")]
    coordinator: PathBuf,
}

#[derive(Args, Debug)]
pub(super) struct Where {
    #[command(flatten)]
    at: State,
    /// The key
    key: String,
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
        Operate::Where(Where { at, key }) => (at, format!("where {key}")),
        Operate::Move(Move { at, micro_shard, to }) => (at, format!("move {micro_shard} {to}")),
        Operate::Drain(OfNode { at, node }) => (at, format!("drain {node}")),
        Operate::Add(Add { at, node, unit, address }) => {
            let address = address.map(|address| address.to_string()).unwrap_or_default();
            (at, format!("add {node} {unit} {address}"))
        }
        Operate::Remove(OfNode { at, node }) => (at, format!("remove {node}")),
        Operate::GiveUp(OfNode { at, node }) => (at, format!("give-up {node}")),
    };
    let path = &at.coordinator;
    let answer = ask(path, &line).with_context(|| format!("the coordinator at {}", path.display()))?;
    match answer.strip_prefix("error: ") {
        Some(error) => bail!("{}", error.trim()),
        None if answer.is_empty() => bail!("the coordinator at {} does not answer", path.display()),
        None => print!("{answer}"),
    }
    Ok(())
}
