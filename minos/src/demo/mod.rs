//! `minos demo`: small requests beside large ones, on this machine, in under a minute.

mod contestant;
mod view;

use std::time::{Duration, Instant};

use anyhow::Result;
use clap::Args;
use minos_workload::{Arrivals, DatagramOptions, Pace, Report, RunConfig, Shape, Target, Workload};
use serde::Serialize;

use crate::bench::{emit, emit_json, fill, measure};
use contestant::{Contestant, Started, start};

/// See in under a minute what size-aware sharding does, on this machine.
///
/// Starts a server for each discipline, and memcached and Redis where they are installed, on free
/// loopback ports; gives each the papers' mix and then `noise`; and compares the latencies of small
/// requests. Everything it started ends with it.
#[derive(Args, Debug)]
pub(crate) struct DemoArgs {
    /// Seconds that each server is measured with each workload
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u64).range(1..=60))]
    seconds: u64,

    /// What everything random comes from
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,

    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// One workload that all contestants get.
struct Act {
    title: &'static str,
    workload: Workload,
    rate: f64,
}

/// What one contestant did in one act.
#[derive(Serialize)]
struct Score {
    act: &'static str,
    contestant: &'static str,
    report: Report,
}

/// Runs the subcommand.
///
/// # Errors
/// A server of our own does not start, or a run fails.
pub(crate) fn run(args: &DemoArgs) -> Result<()> {
    let begun = Instant::now();
    let acts = acts(args.seed)?;
    let cpus = minos_net::allowed_cpus();
    if !args.json {
        emit(&view::opening(&acts, cpus.len()))?;
    }
    let mut scores = Vec::new();
    for contestant in Contestant::ALL {
        match start(contestant, &cpus)? {
            Started::Running(server) => {
                for act in &acts {
                    let report = play(args, act, server.target(), &cpus)?;
                    scores.push(Score { act: act.title, contestant: contestant.name(), report });
                }
            }
            Started::NotInstalled => {
                if !args.json {
                    emit(&view::absent(contestant.name()))?;
                }
            }
        }
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

/// Loads and measures one act.
fn play(args: &DemoArgs, act: &Act, target: &Target, cpus: &[usize]) -> Result<Report> {
    let config = RunConfig {
        target: target.clone(),
        arrivals: Arrivals::Open { rate: act.rate },
        // With one processor a spinning driver would take it from the server.
        pace: if cpus.len() > 1 { Pace::Spin } else { Pace::Sleep },
        duration: Duration::from_secs(args.seconds),
        warmup: Duration::from_millis(1200),
        drain: Duration::from_secs(1),
        threads: 1,
        connections: 16,
        keys_per_get: 1,
        check_contents: false,
        cpus: if cpus.len() > 1 { cpus.last().copied().into_iter().collect() } else { Vec::new() },
        server_pid: None,
        receive_buffer: None,
        datagrams: DatagramOptions::default(),
    };
    fill(&config, &act.workload, args.json)?;
    measure(&config, &act.workload, args.json)
}
