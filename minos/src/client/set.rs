//! `minos set`.

use std::{
    io::{self, Read},
    process::ExitCode,
    time::Duration,
};

use anyhow::Context;
use clap::Args;
use minos_client::StoreOptions;

use super::{Ended, args::ServerArgs, run};
use crate::time::parse_time;

/// Store a value.
///
/// Exits with 0 if it was stored, with 1 if the condition of --add or --replace does not hold, with 2 if
/// something failed.
#[derive(Debug, Args)]
pub(crate) struct SetArgs {
    /// Key
    key: String,

    /// Value; `-`, or nothing, takes it from standard input
    #[arg(allow_hyphen_values = true)]
    value: Option<String>,

    /// Let the item expire so long from now, as in 90s, 5m, 2h or 1day [default: never]
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    ttl: Option<Duration>,

    /// Number to keep with the item
    #[arg(long, value_name = "NUMBER", default_value_t = 0)]
    flags: u32,

    /// Store it only if there is none
    #[arg(long, conflicts_with = "replace")]
    add: bool,

    /// Store it only if there is one
    #[arg(long)]
    replace: bool,

    #[command(flatten)]
    server: ServerArgs,
}

impl SetArgs {
    /// Runs the command.
    pub(crate) fn run(&self) -> ExitCode {
        run(|| self.store())
    }

    fn store(&self) -> anyhow::Result<Ended> {
        let value = self.value()?;
        let mut options = StoreOptions::new().flags(self.flags);
        if let Some(ttl) = self.ttl {
            options = options.ttl(ttl);
        }
        let mut client = self.server.connect()?;
        let stored = if self.add {
            client.add(&self.key, value, options)?
        } else if self.replace {
            client.replace(&self.key, value, options)?
        } else {
            Some(client.put_with(&self.key, value, options)?)
        };
        if stored.is_none() {
            eprintln!("minos: {}: not stored", self.key);
        }
        Ok(if stored.is_some() { Ended::Found } else { Ended::Missing })
    }

    fn value(&self) -> anyhow::Result<Vec<u8>> {
        match self.value.as_deref() {
            Some(value) if value != "-" => Ok(value.as_bytes().to_vec()),
            _ => {
                let mut value = Vec::new();
                io::stdin().read_to_end(&mut value).context("cannot read the value from standard input")?;
                Ok(value)
            }
        }
    }
}
