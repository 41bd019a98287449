//! Who may connect: TLS.

use std::{path::PathBuf, str::FromStr, sync::Arc, time::Duration};

use anyhow::{Context, ensure};
use clap::Args;
use minos_net::{Address, ParseAddressError};
use minos_node::config::{Acceptor, TlsConfig, TlsFiles};

use crate::{secret::warn_if_others_may_read, time::parse_time};

/// The options of `minos serve` about who may connect.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Security")]
pub(crate) struct SecurityOptions {
    /// Certificate and those between it and an authority, in PEM: clients speak TLS at all TCP addresses that do not begin
    /// with notls: (memcached's spelling). SIGHUP reads it, key and authorities again
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    tls_cert: Option<PathBuf>,
    /// Key of the certificate, in PEM
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_key: Option<PathBuf>,
    /// Authorities in PEM, one of which must have signed each client's certificate [default: clients need none]
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_client_ca: Option<PathBuf>,
    /// TLS handshakes under way at a time; the oldest is given up for one more
    #[arg(long, value_name = "N", default_value_t = 256)]
    tls_handshakes: usize,
    /// Time for a TLS handshake
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = parse_time)]
    tls_timeout: Duration,
}

/// An address for clients, and whether they speak TLS there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ClientAddress {
    pub(crate) address: Address,
    /// Written `notls:` before the address.
    is_plain: bool,
}

impl FromStr for ClientAddress {
    type Err = ParseAddressError;

    fn from_str(text: &str) -> Result<Self, ParseAddressError> {
        let plain = text.strip_prefix("notls:");
        Ok(Self { address: plain.unwrap_or(text).parse()?, is_plain: plain.is_some() })
    }
}

impl SecurityOptions {
    /// TLS at `addresses`, if it is asked for.
    ///
    /// # Errors
    /// Names the file that is of no use, or the address that is given both ways.
    pub(crate) fn tls(&self, addresses: &[ClientAddress]) -> anyhow::Result<Option<TlsConfig>> {
        let plain: Vec<_> =
            addresses.iter().filter(|each| each.is_plain).map(|each| each.address.clone()).collect();
        let (Some(cert), Some(key)) = (&self.tls_cert, &self.tls_key) else { return Ok(None) };
        if let Some(both) = addresses.iter().find(|each| !each.is_plain && plain.contains(&each.address)) {
            anyhow::bail!("{}: given with notls: and without", both.address);
        }
        warn_if_others_may_read("--tls-key", key)?;
        let files = TlsFiles { cert: cert.clone(), key: key.clone(), client_ca: self.tls_client_ca.clone() };
        let acceptor = Arc::new(Acceptor::load(files).context("--tls-cert")?);
        ensure!(!self.tls_timeout.is_zero(), "--tls-timeout: a handshake takes some time; it must not be 0");
        let (handshakes_max, handshake_timeout) = (self.tls_handshakes, self.tls_timeout);
        Ok(Some(TlsConfig { acceptor, plain, handshakes_max, handshake_timeout }))
    }
}

/// Reads the files of `tls` again.
pub(crate) fn reload(tls: Option<&Acceptor>) {
    let Some(tls) = tls else { return };
    match tls.reload() {
        Ok(()) => tracing::info!("certificate, key and authorities are read again"),
        Err(error) => tracing::error!(%error, "the certificate in force stays"),
    }
}
