//! `minos bench`: drives a server and prints the latencies of small and large requests; or drives a table
//! within this process and prints its operations per second; or reads and writes a device.

mod args;
pub(in crate::lab) mod device;
pub(in crate::lab) mod inproc;
mod numbers;
mod plot;
mod progress;
mod sweep;
mod table;
pub(in crate::lab) mod target;
mod team;
pub(in crate::lab) mod tier;
mod versus;

use std::io;

use anyhow::{Context, Result, bail};
use minos_workload::{LoadReport, Report, RunConfig, Target, Workload};
use serde::Serialize;

pub(crate) use args::BenchArgs;
pub(crate) use plot::{bar, log_share};

use crate::client::show;
use progress::ProgressLine;
use target::BenchTarget;

/// Prints `text` and a line end. A closed pipe, as behind `head`, is no error.
pub(crate) fn emit(text: &str) -> io::Result<()> {
    show(|out| writeln!(out, "{text}"))
}

pub(crate) fn emit_json(value: &impl Serialize) -> io::Result<()> {
    emit(&serde_json::to_string_pretty(value)?)
}

/// Prints a result as JSON, or its text.
pub(crate) fn emit_either(as_json: bool, value: &impl Serialize, text: &str) -> io::Result<()> {
    if as_json { emit_json(value) } else { emit(text) }
}

pub(crate) fn run(args: &BenchArgs) -> Result<()> {
    args.check()?;
    match &args.target {
        BenchTarget::Server(target) => drive(args, target),
        BenchTarget::InProcess(table) => inproc::run(args, *table),
        BenchTarget::Device(target) => device::run(args, target),
        BenchTarget::Tier(target) => tier::run(args, target),
    }
}

fn drive(args: &BenchArgs, target: &Target) -> Result<()> {
    let workload = Workload::open(&args.workload, &args.shape(), args.seed)?.with_draw(args.draw);
    let config = args.run_config(target);
    if args.load || args.load_only {
        let targets = std::iter::once(target).chain(&args.vs);
        for target in targets {
            load(args, &RunConfig { target: target.clone(), ..config.clone() }, &workload)?;
        }
    }
    match (args.load_only, &args.vs, args.sweep) {
        (true, ..) => Ok(()),
        (_, Some(rival), _) => versus::run(args, &config, rival, &workload),
        (_, None, Some(range)) => sweep::run(args, &config, range, &workload),
        (_, None, None) => single(args, &config, &workload),
    }
}

fn single(args: &BenchArgs, config: &RunConfig, workload: &Workload) -> Result<()> {
    let report = measure(config, workload, args.is_quiet())?;
    emit_either(args.json, &report, &table::report(&report))?;
    if report.completed == 0 {
        bail!("{} answered nothing as it should", report.target);
    }
    Ok(())
}

/// One run, with a progress line unless `is_quiet`.
pub(crate) fn measure(config: &RunConfig, workload: &Workload, is_quiet: bool) -> Result<Report> {
    let total_ms = (config.warmup + config.duration).as_millis() as u64;
    let line = ProgressLine::new(&config.target, total_ms, "{msg}", is_quiet);
    Ok(minos_workload::run(config, workload, |moment| line.show(moment, config.warmup))?)
}

fn load(args: &BenchArgs, config: &RunConfig, workload: &Workload) -> Result<()> {
    let loaded = fill(config, workload, args.is_quiet())?;
    if args.json && args.load_only {
        emit_json(&loaded)?;
    } else if !args.json {
        emit(&table::load(&config.target, &loaded))?;
    }
    Ok(())
}

/// Stores every item, with a progress line unless `is_quiet`.
pub(crate) fn fill(config: &RunConfig, workload: &Workload, is_quiet: bool) -> Result<LoadReport> {
    let items = workload.item_count();
    let line = ProgressLine::new(&config.target, items, "{human_pos} of {human_len} items stored", is_quiet);
    let loaded = minos_workload::load(config, workload, |moment| line.bar.set_position(moment.answered))
        .with_context(|| format!("loading {}", config.target))?;
    drop(line);
    if loaded.errors > 0 {
        let (largest, kinds) = (loaded.value_bytes.max, table::kinds(&loaded.errors_by_kind));
        let hint = table::of_a_rack(&loaded.errors_by_kind).map_or_else(
            || format!("the largest value has {largest} bytes, is that more than the server takes?"),
            str::to_owned,
        );
        bail!("{} of {items} items were not stored in {} ({kinds}); {hint}", loaded.errors, config.target);
    }
    Ok(loaded)
}

/// The same configuration for another server.
pub(crate) fn aimed_at(config: &RunConfig, target: &Target) -> RunConfig {
    RunConfig { target: target.clone(), server_pid: None, ..config.clone() }
}
