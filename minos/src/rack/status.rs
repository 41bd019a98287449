//! `minos rack status`: what a node knows of its rack.

use std::{io::Write, time::Duration};

use anyhow::ensure;
use clap::Args;

use crate::{client::Plain, transfer::place_of};

/// Time that a node has to answer.
const TIMEOUT: Duration = Duration::from_secs(2);

/// Show the nodes of a rack, as the nodes see them.
#[derive(Args, Debug)]
pub(crate) struct StatusArgs {
    /// Addresses of nodes for memcached clients; each is asked. With users, memcached://USER@HOST:PORT
    #[arg(value_name = "HOST:PORT", default_value = "127.0.0.1:11311")]
    nodes: Vec<String>,
}

/// Asks each node and prints its answer.
pub(super) fn run(args: &StatusArgs) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    let mut answered = 0;
    for node in &args.nodes {
        let address = node.strip_prefix("memcached://").unwrap_or(node);
        // Without user and password.
        let (_, place) = place_of(address);
        match ask(address) {
            Ok(facts) => {
                answered += 1;
                print(&mut out, place, &facts)?;
            }
            Err(error) => writeln!(out, "{place}  {error:#}")?,
        }
    }
    ensure!(answered > 0, "no node has answered");
    Ok(())
}

type Facts = Vec<(String, String)>;

fn ask(address: &str) -> anyhow::Result<Facts> {
    let facts = Plain::connect(address, TIMEOUT)?.stats("rack")?;
    ensure!(!facts.is_empty(), "is no node of a rack");
    Ok(facts)
}

fn print(out: &mut impl Write, address: &str, facts: &Facts) -> std::io::Result<()> {
    let of = |name: &str| facts.iter().find(|(other, _)| other == name).map_or("?", |(_, value)| value);
    writeln!(out, "{address}  node {} of rack {}, {} nodes", of("node"), of("rack"), of("nodes"))?;
    writeln!(out, "  node  unit  micro-shards  memory")?;
    let nodes = of("nodes").parse().unwrap_or(0);
    for node in 0..nodes {
        let of = |what: &str| of(&format!("node:{node}:{what}"));
        writeln!(out, "  {node:>4}  {:>4}  {:>12}  {}", of("unit"), of("micro_shards"), of("memory"))?;
    }
    let counters =
        ["remote_reads", "remote_hits", "remote_asked", "forwarded", "forward_failed", "forward_late"];
    let counters: Vec<_> = counters.iter().map(|name| format!("{name} {}", of(name))).collect();
    writeln!(out, "  {}", counters.join(", "))
}
