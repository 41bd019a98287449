//! `minos rack status`: what a node knows of its rack.

use std::{io::Write, time::Duration};

use anyhow::ensure;
use clap::Args;
use minos_node::settings::parse_time;

use crate::{client::Plain, transfer::Place, trust::TrustArgs};

/// Show the nodes of a rack, as the nodes see them.
#[derive(Args, Debug)]
pub(crate) struct StatusArgs {
    /// Addresses of nodes for memcached clients; each is asked. With users, memcached://USER@HOST:PORT; over TLS,
    /// memcacheds://HOST:PORT
    #[arg(value_name = "HOST:PORT", default_value = "127.0.0.1:11311")]
    nodes: Vec<String>,

    /// How long to wait for a node's answer
    #[arg(long, value_name = "TIME", default_value = "2s", value_parser = parse_time)]
    timeout: Duration,

    #[command(flatten)]
    trust: TrustArgs,
}

/// Asks each node and prints its answer.
pub(super) fn run(args: &StatusArgs) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    let mut answered = 0;
    let place = |node: &String| Place::at(node).unwrap_or_else(|| Place::plain(node));
    let places: Vec<_> = args.nodes.iter().map(place).collect();
    args.trust.check(places.iter().any(|place| place.is_tls), "memcacheds://")?;
    if places.iter().any(|place| place.is_tls) {
        // Once, and not for each node.
        args.trust.config()?;
    }
    for place in &places {
        // Without user and password.
        let address = place.host_and_port();
        match ask(place, args) {
            Ok(facts) => {
                answered += 1;
                print(&mut out, address, &facts)?;
            }
            Err(error) => writeln!(out, "{address}  {error:#}")?,
        }
    }
    ensure!(answered > 0, "no node has answered");
    Ok(())
}

type Facts = Vec<(String, String)>;

fn ask(place: &Place, args: &StatusArgs) -> anyhow::Result<Facts> {
    let facts = Plain::connect(place, &args.trust, args.timeout)?.stats("rack")?;
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
