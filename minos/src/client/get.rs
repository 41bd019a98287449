//! `minos get`.

use std::process::ExitCode;

use clap::Args;

use super::{Ended, args::ServerArgs, output::show, run};

/// Show values.
///
/// Each value is followed by a line end, unless --raw. Exits with 0 if all keys exist, with 1 if one does
/// not, with 2 if something failed.
#[derive(Debug, Args)]
pub(crate) struct GetArgs {
    /// Keys
    #[arg(required = true, value_name = "KEY")]
    keys: Vec<String>,

    /// Show the values' bytes and nothing else
    #[arg(long)]
    raw: bool,

    /// Show key, flags and CAS unique before each value
    #[arg(long, short, conflicts_with = "raw")]
    verbose: bool,

    #[command(flatten)]
    server: ServerArgs,
}

impl GetArgs {
    /// Runs the command.
    pub(crate) fn run(&self) -> ExitCode {
        run(|| self.show_all())
    }

    fn show_all(&self) -> anyhow::Result<Ended> {
        let mut client = self.server.connect()?;
        let mut ended = Ended::Found;
        for (key, result) in self.keys.iter().zip(client.get_many(&self.keys)) {
            let Some(value) = result.map_err(|error| anyhow::anyhow!("{key}: {error}"))? else {
                eprintln!("minos: {key}: not found");
                ended = Ended::Missing;
                continue;
            };
            show(|out| {
                if self.verbose {
                    writeln!(out, "{key} {} {} {}", value.flags, value.bytes.len(), value.cas)?;
                }
                out.write_all(&value.bytes)?;
                if self.raw { Ok(()) } else { writeln!(out) }
            })?;
        }
        Ok(ended)
    }
}
