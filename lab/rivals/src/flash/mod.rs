//! Compares the store of vector reads above flash with other stores and caches on flash.
//!
//! Each contestant runs in a process of its own, which stands still while others run, so that processor time, memory
//! and bytes of the device are its own. All hold the same items in the same file system and get the same memory.

mod job;
mod options;
mod peers;
mod process;
mod report;
mod run;
mod usage;

pub(crate) use options::FlashOptions;
pub(crate) use run::serve;

use crate::workload::{Mix, Popularity};
use anyhow::{Context, Result, ensure};
use job::{Job, Outcome, Plan, Run, Work};
use process::Process;
use report::{Cell, Report};

/// Runs the comparison and prints the report.
pub(crate) fn compare(options: &FlashOptions) -> Result<()> {
    let mut report = Report::new(options);
    for value_bytes in options.value_bytes() {
        of_size(options, value_bytes, &mut report)?;
    }
    report.write(options)
}

/// Loads all contestants with values of one size, and measures them.
fn of_size(options: &FlashOptions, value_bytes: usize, report: &mut Report) -> Result<()> {
    let folder = tempfile::Builder::new()
        .prefix("minos-rivals-")
        .tempdir_in(&options.folder)
        .with_context(|| options.folder.display().to_string())?;
    let mut processes = Vec::new();
    for peer in options.peers() {
        let plan = Plan {
            peer,
            folder: folder.path().join(peer.name()),
            items: options.items(value_bytes),
            value_bytes,
            memory_bytes: options.memory_bytes(),
        };
        let mut process = Process::start(&plan)?;
        let outcome = process.ask(&Job::Load)?;
        report.add(Cell { peer, value_bytes, work: Work::Load, outcomes: vec![outcome] });
        processes.push(process);
    }
    for work in options.works() {
        measure(options, &mut processes, (value_bytes, work), report)?;
    }
    Ok(())
}

/// Measures all contestants with one kind of work: A B A B.
fn measure(
    options: &FlashOptions,
    processes: &mut [Process],
    (value_bytes, work): (usize, Work),
    report: &mut Report,
) -> Result<()> {
    let (width, mix) = match work {
        Work::Load => return Ok(()),
        Work::Get { width } => (width, Mix { popularity: Popularity::Uniform, get_percent: 100 }),
        Work::Mixed { width } => (width, Mix { popularity: Popularity::Zipf, get_percent: 90 }),
    };
    let takes_part = |process: &&mut Process| mix.get_percent == 100 || !process.peer().is_cache();
    let mut processes: Vec<_> = processes.iter_mut().filter(takes_part).collect();
    let mut outcomes = vec![Vec::new(); processes.len()];
    for seed in 0..options.rounds as u64 {
        for (process, outcomes) in processes.iter_mut().zip(&mut outcomes) {
            let outcome = process.ask(&Job::Run(Run { mix, width, seconds: options.seconds, seed }))?;
            check(process, &outcome)?;
            outcomes.push(outcome);
        }
    }
    for (process, outcomes) in processes.iter().zip(outcomes) {
        report.add(Cell { peer: process.peer(), value_bytes, work, outcomes });
    }
    Ok(())
}

/// Only a cache may lose items; one that has none would be measured doing nothing.
fn check(process: &Process, outcome: &Outcome) -> Result<()> {
    let (name, Outcome { gets, found, .. }) = (process.peer().name(), outcome);
    ensure!(process.peer().is_cache() || found == gets, "{name} found {found} of {gets} items");
    ensure!(*found > 0, "{name} found nothing in {gets} gets");
    Ok(())
}
