//! `minos del`.

use std::process::ExitCode;

use clap::Args;

use super::{Ended, args::ServerArgs, run};

/// Delete items.
///
/// Exits with 0 if all were there, with 1 if one was not, with 2 if something failed.
#[derive(Debug, Args)]
pub(crate) struct DelArgs {
    /// Keys
    #[arg(required = true, value_name = "KEY")]
    keys: Vec<String>,

    #[command(flatten)]
    server: ServerArgs,
}

impl DelArgs {
    /// Runs the command.
    pub(crate) fn run(&self) -> ExitCode {
        run(|| self.delete_all())
    }

    fn delete_all(&self) -> anyhow::Result<Ended> {
        let mut client = self.server.connect()?;
        let mut ended = Ended::Found;
        for (key, result) in self.keys.iter().zip(client.delete_many(&self.keys)) {
            if !result.map_err(|error| anyhow::anyhow!("{key}: {error}"))? {
                eprintln!("minos: {key}: not found");
                ended = Ended::Missing;
            }
        }
        Ok(ended)
    }
}
