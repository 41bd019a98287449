//! `minos get`, `set`, `del` and `stats`: a server from the command line, by the native protocol.

mod args;
mod del;
mod get;
mod output;
mod set;
mod stats;

use std::process::ExitCode;

pub(crate) use self::{del::DelArgs, get::GetArgs, output::show, set::SetArgs, stats::StatsArgs};

/// How a command ended, as scripts see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    /// All keys were there, or everything was done.
    Found,
    /// A key was not there.
    Missing,
}

impl From<Ended> for ExitCode {
    fn from(ended: Ended) -> Self {
        match ended {
            Ended::Found => Self::SUCCESS,
            Ended::Missing => Self::from(1),
        }
    }
}

/// Exit code of a command that failed.
const FAILED: u8 = 2;

/// Runs a command and returns its exit code; prints errors.
fn run(command: impl FnOnce() -> anyhow::Result<Ended>) -> ExitCode {
    match command() {
        Ok(ended) => ended.into(),
        Err(error) => {
            eprintln!("minos: {error:#}");
            ExitCode::from(FAILED)
        }
    }
}
