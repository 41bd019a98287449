//! Options that all client commands have.

use std::{env, fs, path::PathBuf, time::Duration};

use anyhow::Context;
use clap::Args;
use minos_client::{Config, DEFAULT_PORT, Secret, blocking::Client};

use crate::time::parse_time;

/// Longest value that a command handles, in bytes: the upper bound of any server.
const VALUE_BYTES_MAX: u64 = minos_base::VALUE_BYTES_MAX;

/// Names the server where the command line does not.
const SERVER_VARIABLE: &str = "MINOS_SERVER";

/// The server, and how to speak to it.
#[derive(Debug, Args)]
pub(crate) struct ServerArgs {
    /// Server, as minos://HOST:PORT or HOST:PORT: the address of its --native [default: $MINOS_SERVER, or
    /// 127.0.0.1:11311]
    #[arg(long, short, value_name = "ADDR")]
    server: Option<String>,

    /// File with the secret shared with the server, in its first line
    #[arg(long, value_name = "PATH")]
    secret_file: Option<PathBuf>,

    /// How long to wait for an answer
    #[arg(long, value_name = "TIME", default_value = "2s", value_parser = parse_time)]
    timeout: Duration,
}

impl ServerArgs {
    /// A client of the server, which has answered.
    pub(super) fn connect(&self) -> anyhow::Result<Client> {
        let mut config = Config::new().timeout(self.timeout).value_bytes_max(VALUE_BYTES_MAX);
        if let Some(path) = &self.secret_file {
            config = config.secret(&secret(path)?);
        }
        let server =
            self.server.clone().or_else(|| env::var(SERVER_VARIABLE).ok().filter(|it| !it.is_empty()));
        let server = server.unwrap_or_else(|| format!("127.0.0.1:{DEFAULT_PORT}"));
        Client::connect(&server, config).with_context(|| format!("cannot use the server {server}"))
    }
}

/// The first secret in a file, which the server reads as well.
fn secret(path: &PathBuf) -> anyhow::Result<Secret> {
    let text = fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    let secrets = Secret::all_in(&text).with_context(|| path.display().to_string())?;
    secrets.into_iter().next().context("there is no secret")
}
