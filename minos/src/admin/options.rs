//! The options of the admin endpoint.

use std::{fmt, path::PathBuf, str::FromStr, time::Duration};

use anyhow::ensure;
use clap::Args;
use minos_net::{Address, ParseAddressError};
use minos_node::settings::parse_time;

/// The options of `minos serve` for the admin endpoint.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Admin endpoint")]
pub(crate) struct AdminOptions {
    /// Address for statistics, metrics and settings over HTTP: IP:PORT or unix:/PATH, or tls:IP:PORT for HTTPS with the
    /// certificate of --tls-cert, and the authorities of --tls-client-ca [default: none]
    #[arg(long, value_name = "ADDR")]
    pub(crate) admin: Option<AdminAddress>,
    /// File with a token, as `minos secret` prints one: every change needs it. An address that others than processes of
    /// this machine reach must have one [default: whoever can connect may change]
    #[arg(long, value_name = "FILE", requires = "admin")]
    pub(super) admin_token_file: Option<PathBuf>,
    /// Host name that requests may use beside addresses and localhost, such as a proxy's; may be given
    /// several times
    #[arg(long, value_name = "NAME")]
    pub(super) admin_host: Vec<String>,
    /// Connections to the admin endpoint at a time
    #[arg(long, value_name = "N", default_value_t = 16)]
    pub(super) admin_connections: usize,
    /// Folder in which `minos ctl snapshot` may make files [default: none; no snapshots]
    #[arg(long, value_name = "DIR", requires = "admin", requires = "flash")]
    pub(super) snapshot_folder: Option<PathBuf>,
    /// Time for a request to the admin endpoint to arrive, and for its answer to be read
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = parse_time)]
    pub(super) admin_timeout: Duration,
}

/// The address of an admin endpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct AdminAddress {
    pub(crate) address: Address,
    /// Written `tls:` before the address.
    pub(crate) is_tls: bool,
}

/// Why an address of an admin endpoint could not be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ParseAdminError {
    Address(ParseAddressError),
    Unix,
}

impl FromStr for AdminAddress {
    type Err = ParseAdminError;

    fn from_str(text: &str) -> Result<Self, ParseAdminError> {
        let secured = text.strip_prefix("tls:");
        let address: Address = secured.unwrap_or(text).parse().map_err(ParseAdminError::Address)?;
        match (&address, secured) {
            (Address::Unix(_), Some(_)) => Err(ParseAdminError::Unix),
            _ => Ok(Self { address, is_tls: secured.is_some() }),
        }
    }
}

impl fmt::Display for AdminAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", if self.is_tls { "tls:" } else { "" }, self.address)
    }
}

impl fmt::Display for ParseAdminError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Address(error) => error.fmt(f),
            Self::Unix => f.write_str("a Unix socket needs no TLS"),
        }
    }
}

impl std::error::Error for ParseAdminError {}

/// The upper bound of the connection limit: each connection takes a descriptor, and 12 KiB for its input.
const CONNECTIONS_MAX: usize = 1024;

impl AdminOptions {
    /// Connections to the endpoint at a time; none without one.
    pub(crate) fn connections(&self) -> usize {
        self.admin.as_ref().map_or(0, |_| self.admin_connections)
    }

    /// Checks the values; an error names the option.
    pub(super) fn check(&self) -> anyhow::Result<()> {
        let connections = self.admin_connections;
        ensure!(
            (1..=CONNECTIONS_MAX).contains(&connections),
            "--admin-connections: {connections} is not allowed; it must be between 1 and {CONNECTIONS_MAX}"
        );
        ensure!(
            !self.admin_timeout.is_zero(),
            "--admin-timeout: a request takes some time; it must not be 0"
        );
        if let Some(admin) = self.admin.as_ref().filter(|admin| !admin.address.is_local()) {
            ensure!(
                self.admin_token_file.is_some(),
                "--admin {admin}: whoever can reach it could change how the server works; use --admin-token-file"
            );
        }
        if let Some(folder) = &self.snapshot_folder {
            ensure!(folder.is_dir(), "--snapshot-folder {}: there is no such folder", folder.display());
        }
        Ok(())
    }
}
