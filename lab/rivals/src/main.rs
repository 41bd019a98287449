//! Compares the Minos engine with other tables side by side, and with the machine's limit; by `flash` its store above
//! flash with other stores.
//!
//! All contestants are loaded with the same items, then run the same operations in turn, round by round
//! (A B C A B C). The output is medians and spreads over the rounds. See `README.md` beside this crate.

#![forbid(unsafe_code)]

mod contestant;
mod contestants;
mod emit;
mod flash;
mod options;
mod pages;
mod probe;
mod report;
mod rounds;
mod workload;

use clap::Parser;
use contestant::{Contestant, Setup};
use options::{Command, Options, Preset};
use report::{Cell, Report};
use rounds::{Effort, measure};

fn main() -> anyhow::Result<()> {
    let options = Options::parse();
    match &options.command {
        Some(Command::Flash(options)) => return flash::compare(options),
        Some(Command::FlashPeer) => return flash::serve(),
        None => {}
    }
    let _reserved = options.hugetlb_bytes().map(pages::Reserved::reserve).transpose()?;
    let report = match options.preset {
        Preset::Tiny => compare::<8, 8>(&options),
        Preset::Small => compare::<16, 64>(&options),
        Preset::Large => compare::<128, 1024>(&options),
    }?;
    report.write(&options)
}

/// Runs the comparison for items of one size.
fn compare<const KEY: usize, const VALUE: usize>(options: &Options) -> anyhow::Result<Report> {
    let mut report = Report::new(options);
    for &threads in &options.threads {
        let mut contestants = load::<KEY, VALUE>(options, threads)?;
        report.note_pages(threads)?;
        for mix in options.mixes() {
            let effort =
                Effort { items: options.items(), operations: options.operations(), rounds: options.rounds };
            let samples = measure(&mut contestants, mix, effort)?;
            for (contestant, samples) in contestants.iter().zip(samples) {
                report.add(Cell { name: contestant.name.clone(), threads, mix, samples });
            }
        }
    }
    Ok(report)
}

fn load<const KEY: usize, const VALUE: usize>(
    options: &Options,
    threads: usize,
) -> anyhow::Result<Vec<Contestant<KEY>>> {
    let setup = Setup {
        items: options.items(),
        threads,
        batch: options.batch,
        hashes_inline: options.hashes_inline(),
        backing: options.backing(),
    };
    let mut contestants = Vec::new();
    for family in options.families() {
        contestants.extend(family.load::<KEY, VALUE>(&setup)?);
    }
    Ok(contestants)
}
