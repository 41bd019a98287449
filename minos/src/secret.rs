//! `minos secret`: a fresh secret for servers and clients of the native protocol.

use std::{
    fs::File,
    io::{self, Read, Write},
};

use anyhow::Context;
use clap::Args;
use minos_client::Secret;

/// Print a fresh secret for --native-secret-file and --secret-file.
///
/// It is a line ID:HEX. Redirect it to a file that only the server, or the client, may read.
#[derive(Debug, Args)]
pub(crate) struct SecretArgs {
    /// Number of the secret, visible in datagrams; must differ from that of the secret it replaces [default:
    /// random]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(1..))]
    id: Option<u8>,
}

/// Prints a secret.
pub(crate) fn run(args: &SecretArgs) -> anyhow::Result<()> {
    let mut random = [0; Secret::BYTES + 1];
    File::open("/dev/urandom")
        .and_then(|mut source| source.read_exact(&mut random))
        .context("cannot read /dev/urandom")?;
    let [number, bytes @ ..] = random;
    let secret = Secret::new(args.id.unwrap_or(number.max(1)), bytes)?;
    writeln!(io::stdout(), "{}", secret.reveal()).context("cannot write the secret")
}
