//! A stand-in for the laboratory's commands in a build without them.

use std::ffi::OsString;

use anyhow::{Result, bail};
use clap::Subcommand;

/// The commands that are missing.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    #[command(name = "bench", aliases = ["calibrate", "demo", "figures", "sim"], hide = true, disable_help_flag = true)]
    Absent {
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        _arguments: Vec<OsString>,
    },
}

impl Command {
    /// Fails with a hint how to get the command.
    pub(crate) fn run(&self) -> Result<()> {
        bail!(
            "bench, calibrate, demo, figures and sim are not in this program: it was built without the cargo feature \
             `lab`, which is on by default"
        )
    }
}
