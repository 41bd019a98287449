//! `cargo xtask measure`: the figures of the README and of the engine, measured on this machine.
//!
//! Minos, memcached and Redis run side by side, each bound to the first processor, and are measured in turn
//! (A B C A B C) by `minos bench` on the second one. Only one of them is under load at a time. `engine` and
//! `eviction` need no server. Figures are medians with the smallest and the largest value seen.

mod contestants;
mod crowd;
mod dispatch;
mod driver;
mod engine;
mod evaluate;
mod eviction;
mod files;
mod flash;
mod idle;
mod memory;
mod native;
mod pauses;
mod plan;
mod processor;
mod rack;
mod rack_figures;
mod rack_kill;
mod rack_moves;
mod rack_peers;
mod rack_tax;
mod report;
mod stolen;
mod tails;
mod tls;
mod turn;

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, bail};
use serde_json::Value;

use crate::command::{self, cargo, target};
use contestants::Contestant;
pub(crate) use evaluate::{EvaluateOptions, run as evaluate};
pub(crate) use pauses::print as print_pauses;

/// The figures, in the order in which they are measured.
const FIGURES: [&str; 19] = [
    "processor",
    "tails",
    "tails2",
    "tls",
    "crowd",
    "memory",
    "files",
    "eviction",
    "engine",
    "native",
    "dispatch",
    "flash",
    "rack",
    RACK_FIGURES,
    "rack-moves",
    RACK_PEERS,
    "rack-kill",
    "rack-tax",
    "idle",
];
const RACK_FIGURES: &str = "rack-figures";
const RACK_PEERS: &str = "rack-peers";
/// Kills of a node for each round.
const KILLS_A_ROUND: u32 = 6;
/// A figure that takes long, and is measured only by its name.
const FLASH_RUN: &str = "flash-run";

/// The figures to measure, and the length of measurements.
#[derive(clap::Args, Debug)]
pub(crate) struct MeasureOptions {
    /// The figures to measure
    #[arg(default_values = FIGURES, value_parser = clap::builder::PossibleValuesParser::new(FIGURES.iter().chain([&FLASH_RUN])))]
    figures: Vec<String>,
    /// Rounds of each measurement [default: 5; tails: 10; engine: 3]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: Option<u32>,
    /// Seconds of each measurement [default: 4; engine: 1; idle: 30; flash-run: 600 a server]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..))]
    seconds: Option<u32>,
    /// Milliseconds of each measurement, for tails, crowd, native, dispatch, flash, rack, rack-figures and rack-peers
    /// [default: tails: 400; crowd: 300, or Linux throttles its spinning driver; native: 500; dispatch and rack: 1000;
    /// flash: 1500; rack-figures: 200; rack-peers: 300]
    #[arg(long, value_parser = clap::value_parser!(u32).range(20..))]
    millis: Option<u32>,
    /// Over the native protocol instead of TCP, for dispatch
    #[arg(long)]
    native: bool,
    /// Share of large requests in percent, for dispatch
    #[arg(long, default_value_t = dispatch::LARGE_PERCENT)]
    large_percent: f64,
    /// Without stealing between small workers' queues, for dispatch
    #[arg(long)]
    no_steal: bool,
    /// MiB of items, for flash and flash-run
    #[arg(long, default_value_t = 1024, value_parser = clap::value_parser!(u64).range(64..))]
    mib: u64,
    /// Folder on the disk to measure, for flash, flash-run and idle; the files are removed again
    #[arg(long, value_name = "DIR", default_value = "target")]
    disk: PathBuf,
    /// Only these parts, for flash
    #[arg(long, value_parser = clap::builder::PossibleValuesParser::new(flash::PARTS))]
    parts: Vec<String>,
    /// Items, for engine [default: as the data set says]
    #[arg(long)]
    keys: Option<u64>,
    /// All data sets, for engine [default: tiny items only]
    #[arg(long)]
    full: bool,
    /// A server of Valkey, as `make` leaves it in src/valkey-server, for rack-peers [default: it is not measured]
    #[arg(long, value_name = "FILE")]
    valkey: Option<PathBuf>,
    /// A release build of minos to measure [default: it is built]
    #[arg(long, value_name = "FILE")]
    program: Option<PathBuf>,
    /// Folder for results and picture
    #[arg(long, default_value = "docs/results")]
    out: PathBuf,
}

impl MeasureOptions {
    /// Short by default: there are many cases, and their figures vary little.
    fn engine_extent(&self) -> engine::Extent {
        engine::Extent {
            rounds: self.rounds.unwrap_or(3),
            seconds: self.seconds.unwrap_or(1),
            keys: self.keys,
            is_full: self.full,
        }
    }

    fn tails_extent(&self) -> tails::Extent {
        tails::Extent { rounds: self.rounds.unwrap_or(10), millis: self.millis.unwrap_or(400) }
    }

    /// The name of a page without extension. Other loads of dispatch have pages of their own.
    fn stem(&self, figure: &str) -> String {
        if figure == "dispatch" { self.dispatch_extent(0).stem() } else { figure.to_owned() }
    }

    fn dispatch_extent(&self, rounds: u32) -> dispatch::Extent {
        dispatch::Extent {
            rounds,
            millis: self.millis.unwrap_or(1000),
            native: self.native,
            large_percent: self.large_percent,
            steals: !self.no_steal,
        }
    }

    fn flash_extent(&self, rounds: u32) -> flash::Extent {
        flash::Extent {
            rounds,
            millis: self.millis.unwrap_or(1500),
            mib: self.mib,
            folder: self.disk.clone(),
            parts: self.parts.clone(),
        }
    }

    /// Measures a figure whose page has several tables.
    fn page(&self, figure: &str, program: &Path, rounds: u32) -> anyhow::Result<Option<String>> {
        let extent = self.dispatch_extent(rounds);
        Ok(Some(match figure {
            "native" => {
                let extent = native::Extent { rounds, millis: self.millis.unwrap_or(500) };
                native::measure(program, &extent, &self.out)?
            }
            "dispatch" => dispatch::measure(program, &extent, &self.out)?,
            "flash" => flash::measure(program, &self.flash_extent(rounds))?,
            RACK_FIGURES => {
                let extent = rack_figures::Extent { rounds, millis: self.millis.unwrap_or(200) };
                rack_figures::measure(program, &extent, &self.out)?
            }
            RACK_PEERS => {
                let millis = self.millis.unwrap_or(300);
                let valkey = self.valkey.as_ref().map(|valkey| valkey.canonicalize()).transpose()?;
                rack_peers::measure(program, &rack_peers::Extent { rounds, millis, valkey })?
            }
            FLASH_RUN => {
                let seconds = self.seconds.unwrap_or(600);
                flash::run(program, &self.flash_extent(rounds), seconds, &self.out)?
            }
            _ => return Ok(None),
        }))
    }
}

/// Takes the measurements; writes reports and pictures.
pub(crate) fn run(options: &MeasureOptions) -> anyhow::Result<()> {
    let program = match &options.program {
        Some(program) => program.canonicalize().with_context(|| program.display().to_string())?,
        None => release_build()?,
    };
    fs::create_dir_all(&options.out)?;
    for figure in &options.figures {
        let (seconds, rounds) = (options.seconds.unwrap_or(4), options.rounds.unwrap_or(5));
        let bench = Bench { program: program.clone(), seconds, rounds };
        if let Some(text) = options.page(figure, &program, rounds)? {
            finish(&text, &options.out.join(format!("{}.md", options.stem(figure))))?;
            continue;
        }
        let report = match figure.as_str() {
            "processor" => processor::measure(&bench)?,
            "tails" => tails::on_one_processor(&program, &options.tails_extent(), &options.out)?,
            "tails2" => tails::on_two_processors(&program, &options.tails_extent(), &options.out)?,
            "tls" => tls::measure(&program, rounds, seconds)?,
            "crowd" => crowd::measure(&program, rounds, options.millis.unwrap_or(300))?,
            "memory" => memory::measure(&bench)?,
            "rack" => rack::measure(&program, rounds, options.millis.unwrap_or(1000))?,
            "rack-moves" => rack_moves::measure(&program, None)?,
            "rack-kill" => rack_kill::measure(&program, rounds * KILLS_A_ROUND)?,
            "rack-tax" => rack_tax::measure(&program)?,
            "idle" => idle::measure(&program, options.seconds.unwrap_or(30), &options.disk)?,
            "files" => files::measure(&bench)?,
            "eviction" => eviction::measure(&options.out)?,
            "engine" => engine::measure(&program, &options.engine_extent(), &options.out)?,
            other => bail!("no figure is called {other}"),
        };
        finish(&report.to_string(), &options.out.join(format!("{figure}.md")))?;
    }
    Ok(())
}

fn finish(text: &str, path: &Path) -> anyhow::Result<()> {
    println!("{text}");
    save(text, path)
}

fn save(text: &str, path: &Path) -> anyhow::Result<()> {
    fs::write(path, text).with_context(|| path.display().to_string())
}

fn release_build() -> anyhow::Result<PathBuf> {
    command::run(&mut cargo(&["build", "--release", "--package", "minos"]))?;
    Ok(target().join("release/minos").canonicalize()?)
}

/// Runs `minos bench` on the second processor.
pub(crate) struct Bench {
    program: PathBuf,
    seconds: u32,
    rounds: u32,
}

impl Bench {
    /// Takes one measurement; returns the JSON output.
    fn measure(&self, contestant: &Contestant, arguments: &[&str]) -> anyhow::Result<Value> {
        let seconds = format!("{}s", self.seconds);
        let mut command = driver::bench(Command::new(&self.program), &contestant.target(), contestant.pid());
        command.args(arguments).args(["--duration", &seconds, "--warmup", "1s", "--pin", "1"]);
        let result = driver::json(command).with_context(|| format!("measuring {}", contestant.name))?;
        for kind in ["errors", "lost"] {
            if result[kind].as_u64() != Some(0) {
                bail!("{}: {} {kind} with {arguments:?}", contestant.name, result[kind]);
            }
        }
        Ok(result)
    }

    /// Stores the items of a workload.
    fn load(&self, contestant: &Contestant, arguments: &[&str]) -> anyhow::Result<()> {
        driver::load(&self.program, &contestant.target(), arguments)
    }
}

/// Values of one figure over the rounds.
#[derive(Clone, Debug, Default)]
pub(crate) struct Samples(Vec<f64>);

impl Samples {
    fn push(&mut self, value: f64) {
        self.0.push(value);
        self.0.sort_by(f64::total_cmp);
    }

    /// The median; the lower one of two.
    fn median(&self) -> f64 {
        self.0.get((self.0.len().saturating_sub(1)) / 2).copied().unwrap_or(f64::NAN)
    }

    fn min(&self) -> f64 {
        self.0.first().copied().unwrap_or(f64::NAN)
    }

    fn max(&self) -> f64 {
        self.0.last().copied().unwrap_or(f64::NAN)
    }
}
