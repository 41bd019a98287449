//! The laboratory: measurements and simulations, which servers and clients do not need.

mod bench;
mod calibrate;
mod contestant;
mod demo;
mod figures;
mod sim;

use anyhow::Result;
use clap::Subcommand;

/// The laboratory's commands.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Bench(Box<bench::BenchArgs>),
    Calibrate(calibrate::CalibrateArgs),
    Demo(demo::DemoArgs),
    Figures(figures::FiguresArgs),
    Sim(sim::SimArgs),
}

impl Command {
    pub(crate) fn run(&self) -> Result<()> {
        match self {
            Self::Bench(args) => bench::run(args),
            Self::Calibrate(args) => calibrate::run(args),
            Self::Demo(args) => demo::run(args),
            Self::Figures(args) => figures::run(args),
            Self::Sim(args) => sim::run(args),
        }
    }
}
