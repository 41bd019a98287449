//! `cargo xtask evaluate`: what a machine of many processors shows, in minutes.
//!
//! Servers have processors of their own, the driver has the others; on a machine of two, one each. Each part starts its
//! servers, loads them, and measures them in turn (A B C A B C). A part that fails is named on the page, and the others
//! go on.

mod bundle;
mod designs;
mod engine;
mod machine;
mod noise;
mod rack;
mod scaling;

use std::{
    fs,
    path::{Path, PathBuf},
    time::Instant,
};

use anyhow::Context as _;
use clap::builder::PossibleValuesParser;

use self::machine::{Driver, Machine};
use super::{release_build, report::Report, save};

const PARTS: [&str; 5] = ["scaling", "engine", "noise", "designs", "rack"];

#[derive(clap::Args, Debug)]
pub(crate) struct EvaluateOptions {
    /// Only these parts
    #[arg(long, value_parser = PossibleValuesParser::new(PARTS), default_values = PARTS)]
    parts: Vec<String>,
    /// Rounds of each measurement
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// Milliseconds of each measurement
    #[arg(long, default_value_t = 400, value_parser = clap::value_parser!(u32).range(20..))]
    millis: u32,
    /// A release build of minos [default: it is built]
    #[arg(long, value_name = "FILE")]
    program: Option<PathBuf>,
    /// Folder for results and pictures
    #[arg(long, default_value = "target/evaluate")]
    out: PathBuf,
    /// Instead, build minos and xtask as static programs into this folder, with memcached and Redis beside them: all that
    /// another machine needs
    #[arg(long, value_name = "DIR")]
    bundle: Option<PathBuf>,
}

/// Measures the parts, and writes `evaluate.md` after each of them.
pub(crate) fn run(options: &EvaluateOptions) -> anyhow::Result<()> {
    if let Some(folder) = &options.bundle {
        return bundle::make(folder);
    }
    let program = match &options.program {
        Some(program) => program.canonicalize().with_context(|| program.display().to_string())?,
        None => release_build()?,
    };
    fs::create_dir_all(&options.out)?;
    let machine = Machine::find()?;
    let driver = Driver { program: &program, machine: &machine, millis: options.millis };
    let mut page = format!("{}\n", head(&machine, options));
    for part in &options.parts {
        let began = Instant::now();
        match measure(part, &driver, options.rounds, &options.out) {
            Ok(reports) => reports.iter().for_each(|report| page += &format!("\n#{report}")),
            Err(error) => page += &format!("\n## {part}\n\nFailed: {error:#}\n"),
        }
        eprintln!("evaluate: {part} took {} s", began.elapsed().as_secs());
        save(&page, &options.out.join("evaluate.md"))?;
    }
    println!("{page}");
    Ok(())
}

fn measure(part: &str, driver: &Driver<'_>, rounds: u32, out: &Path) -> anyhow::Result<Vec<Report>> {
    Ok(match part {
        "scaling" => scaling::measure(driver, rounds)?,
        "engine" => vec![engine::measure(driver, rounds)?],
        "noise" => vec![noise::measure(driver, rounds)?],
        "designs" => designs::measure(driver, rounds, out)?,
        _ => rack::measure(driver, rounds)?,
    })
}

fn head(machine: &Machine, options: &EvaluateOptions) -> String {
    let EvaluateOptions { rounds, millis, .. } = options;
    format!(
        "# Evaluation on {} processors\n\nMeasured on {}. Servers have the processors {}, the driver's threads one each of \
         the others, where they spin. Medians (smallest..largest) of {rounds} interleaved rounds of {millis} ms. Of the time \
         of all processors, the hypervisor took {:.2} % in the second before. \
         `cargo xtask evaluate --rounds {rounds} --millis {millis}`",
        machine.processors,
        machine.name,
        machine.servers(machine.workers()),
        machine.stolen_percent,
    )
}
