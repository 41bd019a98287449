//! `minos stats`.

use std::process::ExitCode;

use clap::Args;
use minos_client::Error;

use super::{Ended, args::ServerArgs, output::show, run};

/// Show a server's statistics.
///
/// Exits with 0 if there are any, with 1 if there is no such group, with 2 if something failed.
#[derive(Debug, Args)]
pub(crate) struct StatsArgs {
    /// Group, such as minos, settings, items or slabs [default: the general ones]
    #[arg(default_value = "", hide_default_value = true)]
    group: String,

    #[command(flatten)]
    server: ServerArgs,
}

impl StatsArgs {
    /// Runs the command.
    pub(crate) fn run(&self) -> ExitCode {
        run(|| self.show())
    }

    fn show(&self) -> anyhow::Result<Ended> {
        let lines = match self.server.connect()?.stats(&self.group) {
            // The server does not know the group: the request has no other argument.
            Err(Error::BadRequest) => Vec::new(),
            result => result?,
        };
        if lines.is_empty() {
            eprintln!("minos: {}: no such group of statistics", self.group);
            return Ok(Ended::Missing);
        }
        let name_chars = lines.iter().map(|(name, _)| name.chars().count()).max().unwrap_or(0);
        show(|out| lines.iter().try_for_each(|(name, value)| writeln!(out, "{name:name_chars$} {value}")))?;
        Ok(Ended::Found)
    }
}
