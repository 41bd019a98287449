//! `minos secret`: a fresh secret for the native protocol or for a rack; and the files with secrets.

use std::{
    fs::File,
    io::{self, Read, Write},
    os::unix::fs::PermissionsExt,
    path::Path,
};

use anyhow::{Context, ensure};
use clap::Args;
use minos_client::Secret;

/// Print a fresh secret for --native-secret-file and --secret-file, or for --rack-secret; or the hash of a password.
///
/// It is a line ID:HEX. Redirect it to a file that only the server, or the client, may read.
#[derive(Debug, Args)]
pub(crate) struct SecretArgs {
    /// Number of the secret, visible in datagrams; must differ from that of the secret it replaces [default:
    /// random]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(1..))]
    id: Option<u8>,
    /// Read a password from standard input, up to the end of its line, and print its Argon2 hash for --acl instead
    #[arg(long, conflicts_with = "id")]
    hash: bool,
}

/// Prints a secret.
pub(crate) fn run(args: &SecretArgs) -> anyhow::Result<()> {
    if args.hash {
        return print_hash();
    }
    let [number, bytes @ ..] = random::<{ Secret::BYTES + 1 }>()?;
    let secret = Secret::new(args.id.unwrap_or(number.max(1)), bytes)?;
    writeln!(io::stdout(), "{}", secret.reveal()).context("cannot write the secret")
}

/// Random bytes.
pub(crate) fn random<const BYTES: usize>() -> anyhow::Result<[u8; BYTES]> {
    let mut random = [0; BYTES];
    File::open("/dev/urandom")
        .and_then(|mut source| source.read_exact(&mut random))
        .context("cannot read /dev/urandom")?;
    Ok(random)
}

/// Prints the hash of a password, which no list of processes and no history shows.
fn print_hash() -> anyhow::Result<()> {
    let mut password = String::new();
    io::stdin().read_line(&mut password).context("cannot read a password")?;
    let password = password.trim_end_matches(['\r', '\n']);
    ensure!(!password.is_empty(), "there is no password on standard input");
    let hash = minos_access::hash(password.as_bytes()).map_err(anyhow::Error::msg)?;
    writeln!(io::stdout(), "#{hash}").context("cannot write the hash")
}

/// The secrets in the file that the option `option` names. A file that others may read brings a warning.
pub(crate) fn read_all(option: &str, path: &Path) -> anyhow::Result<Vec<Secret>> {
    let name = || format!("{option} {}", path.display());
    let text = std::fs::read_to_string(path).with_context(name)?;
    warn_if_others_may_read(option, path)?;
    Secret::all_in(&text).with_context(name)
}

/// Warns if other users may read the file with a secret that `option` names.
pub(crate) fn warn_if_others_may_read(option: &str, path: &Path) -> anyhow::Result<()> {
    let metadata = std::fs::metadata(path).with_context(|| format!("{option} {}", path.display()))?;
    if metadata.permissions().mode() & 0o077 != 0 {
        tracing::warn!(path = %path.display(), "{option}: other users may read it");
    }
    Ok(())
}
