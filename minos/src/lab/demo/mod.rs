//! `minos demo`: small requests beside large ones, on this machine, in under a minute.

mod machine;
mod view;

use std::time::{Duration, Instant};

use anyhow::Result;
use clap::Args;
use minos_workload::{Arrivals, DatagramOptions, Pace, Report, RunConfig, Shape, Target, Workload};
use serde::Serialize;

use crate::lab::{
    bench::{emit, emit_json, fill, measure},
    contestant::{Contestant, Server, start},
};
use machine::{Disturbance, Ticks};

const CONTESTANTS: [Contestant; 4] =
    [Contestant::SizeAware, Contestant::KeyHash, Contestant::Memcached, Contestant::Redis];

/// Length of a round. Servers take turns, so that disturbances hit all of them.
const ROUND: Duration = Duration::from_millis(500);

/// See the effect of size-aware sharding on this machine, in under a minute.
///
/// Starts a server for each design, and memcached and Redis where they are installed, on free
/// loopback ports; gives each the papers' mix and then `noise`, in short rounds that take turns; and compares
/// the latencies of small requests. Everything it started ends with it.
#[derive(Args, Debug)]
pub(crate) struct DemoArgs {
    /// Seconds that each server is measured with each workload
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u64).range(1..=60))]
    seconds: u64,

    /// Seed of all random numbers
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,

    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// One workload for all contestants.
struct Act {
    title: &'static str,
    workload: Workload,
    rate: f64,
}

/// The results of one contestant in one act.
#[derive(Serialize)]
struct Score {
    act: &'static str,
    contestant: &'static str,
    /// The round with the median 99th percentile.
    report: Report,
    /// All rounds, in order.
    rounds: Vec<Round>,
}

#[derive(Clone, Serialize)]
struct Round {
    /// Its start, in seconds since the first round.
    at_s: f64,
    disturbance: Disturbance,
    report: Report,
}

impl Score {
    fn of(act: &'static str, contestant: &'static str, rounds: Vec<Round>) -> Option<Self> {
        let mut by_p99: Vec<&Report> = rounds.iter().map(|round| &round.report).collect();
        by_p99.sort_by(|a, b| a.latency_us.small.p99.total_cmp(&b.latency_us.small.p99));
        let report = (*by_p99.get(by_p99.len() / 2)?).clone();
        Some(Self { act, contestant, report, rounds })
    }
}

pub(crate) fn run(args: &DemoArgs) -> Result<()> {
    let begun = Instant::now();
    let acts = acts(args.seed)?;
    let cpus = minos_net::allowed_cpus();
    if !args.json {
        emit(&view::opening(&acts, cpus.len()))?;
    }
    let mut servers = Vec::new();
    for contestant in CONTESTANTS {
        match start(contestant, &cpus)? {
            Some(server) => servers.push((contestant, server)),
            None if args.json => {}
            None => emit(&view::absent(contestant.name()))?,
        }
    }
    let mut scores = Vec::new();
    for act in &acts {
        scores.extend(play(args, act, &servers, &cpus)?);
    }
    if args.json {
        emit_json(&serde_json::json!({ "scores": scores }))?;
    } else {
        emit(&view::results(&acts, &scores))?;
        emit(&format!("{:.0} seconds in all. More: minos bench --help", begun.elapsed().as_secs_f64()))?;
    }
    Ok(())
}

fn acts(seed: u64) -> Result<[Act; 2]> {
    let shape = Shape { keys: Some(50_000), large_keys: Some(50), ..Shape::default() };
    let noise = Shape { large_keys: Some(2), ..shape };
    Ok([
        Act {
            title: "the papers' mix: 20 000 requests/s, one in 800 of them for up to 500 KB",
            workload: Workload::open("etc", &shape, seed)?,
            rate: 20_000.0,
        },
        Act {
            title: "noise: 20 000 small GETs/s, and on other connections 20 GETs/s of 10 MB",
            workload: Workload::open("noise", &noise, seed)?,
            rate: 20_000.0,
        },
    ])
}

/// Loads one act into all servers and measures them in turns.
fn play(args: &DemoArgs, act: &Act, servers: &[(Contestant, Server)], cpus: &[usize]) -> Result<Vec<Score>> {
    let configs: Vec<_> = servers.iter().map(|(_, server)| round(act, &server.target, cpus)).collect();
    for config in &configs {
        fill(config, &act.workload, args.json)?;
    }
    let begun = Instant::now();
    let mut rounds: Vec<Vec<Round>> = servers.iter().map(|_| Vec::new()).collect();
    for _ in 0..Duration::from_secs(args.seconds).as_millis() / ROUND.as_millis() {
        for (((_, server), config), rounds) in servers.iter().zip(&configs).zip(&mut rounds) {
            let (at_s, before) = (begun.elapsed().as_secs_f64(), Ticks::now(server.pid())?);
            let report = measure(config, &act.workload, args.json)?;
            let disturbance = Disturbance::between(before, Ticks::now(server.pid())?, &report);
            rounds.push(Round { at_s, disturbance, report });
        }
    }
    let names = servers.iter().map(|(contestant, _)| contestant.name());
    Ok(names.zip(rounds).filter_map(|(name, rounds)| Score::of(act.title, name, rounds)).collect())
}

fn round(act: &Act, target: &Target, cpus: &[usize]) -> RunConfig {
    RunConfig {
        target: target.clone(),
        arrivals: Arrivals::Open { rate: act.rate },
        // With one processor a spinning driver would take it from the server.
        pace: if cpus.len() > 1 { Pace::Spin } else { Pace::Sleep },
        duration: ROUND,
        warmup: Duration::from_millis(200),
        drain: Duration::from_secs(1),
        threads: 1,
        connections: 16,
        keys_per_get: 1,
        check_contents: false,
        cpus: if cpus.len() > 1 { cpus.last().copied().into_iter().collect() } else { Vec::new() },
        server_pid: None,
        receive_buffer: None,
        datagrams: DatagramOptions::default(),
    }
}
