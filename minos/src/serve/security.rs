//! Who may connect: TLS, users, and addresses that strangers reach.

use std::{
    path::{Path, PathBuf},
    str::FromStr,
    sync::Arc,
    time::Duration,
};

use anyhow::{Context, anyhow, ensure};
use clap::Args;
use minos_access::Acl;
use minos_net::{Address, ParseAddressError};
use minos_node::{
    ServerConfig,
    config::{Acceptor, AccessConfig, AfterBind, Authority, TlsConfig, TlsFiles, read_users},
    settings::parse_time,
};

use super::{
    confine::{self, Unprivileged},
    values::Switch,
};
use crate::secret::{random, warn_if_others_may_read};

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
    /// Users in the format of Redis' ACL file, with hashes of `minos secret --hash`: clients must be one of them. SIGHUP reads
    /// it again
    #[arg(long, value_name = "FILE")]
    acl: Option<PathBuf>,
    /// Logins that wait for the check of their passwords at a time
    #[arg(long, value_name = "N", default_value_t = 256)]
    acl_waiting: usize,
    /// Serve strangers: listen where others than processes of this machine can connect, though clients need neither a user
    /// nor a certificate nor a secret
    #[arg(long, value_enum, default_value_t = Switch::Off, num_args = 0..=1, default_missing_value = "on", value_name = "on|off")]
    allow_public: Switch,
    /// User to become once all addresses are bound; files read again by SIGHUP must be readable by it [default: none]
    #[arg(long, value_name = "NAME")]
    user: Option<String>,
    /// Refuse, once the server has started, all system calls that it does not need (seccomp)
    #[arg(long, value_enum, default_value_t = Switch::Off, num_args = 0..=1, default_missing_value = "on", value_name = "on|off")]
    sandbox: Switch,
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

impl SecurityOptions {
    /// The users, if there is a file with them.
    ///
    /// # Errors
    /// Names the line that is of no use.
    pub(crate) fn access(&self) -> anyhow::Result<Option<AccessConfig>> {
        let Some(path) = &self.acl else { return Ok(None) };
        warn_if_others_may_read("--acl", path)?;
        let authority = Arc::new(Authority::new(read_acl(path)?, random()?));
        // ACL SAVE looks where links lead; in a sandbox nobody can ask then in which folder the server was started.
        let path = std::path::absolute(path).with_context(|| format!("--acl {}", path.display()))?;
        Ok(Some(AccessConfig::new(authority, path, self.acl_waiting)))
    }

    /// True if the process gives up rights once it has started.
    pub(crate) fn is_confined(&self) -> bool {
        self.changes_user() || self.is_sandboxed()
    }

    /// Refuses to serve strangers, unless that is what the operator wants; warns of them then.
    ///
    /// # Errors
    /// Names the address.
    pub(crate) fn check_public(&self, config: &ServerConfig) -> anyhow::Result<()> {
        let default = config.access.as_ref().map(|access| access.authority.default_user());
        let are_users = matches!(default, Some(None));
        let has_certificate = |address: &Address| {
            let tls = config.tls.as_ref().filter(|tls| tls.acceptor.asks_for_certificates());
            tls.is_some_and(|tls| !tls.plain.contains(address))
        };
        let of = |option, addresses| std::iter::repeat(option).zip(addresses);
        let addresses = of("--memcached", &config.memcached).chain(of("--resp", &config.resp));
        for (option, address) in addresses.filter(|(_, address)| !address.is_local()) {
            if !are_users && !has_certificate(address) {
                self.strangers_at(option, address, "--acl, or --tls-cert with --tls-client-ca")?;
            }
        }
        let native = config.native.as_ref().filter(|native| native.secrets.is_empty());
        if let Some(native) = native {
            let address = Address::Tcp(native.address);
            ensure!(
                config.access.is_none(),
                "--acl: clients of --native would pass the users by; it goes with --native-secret-file"
            );
            if !address.is_local() {
                self.strangers_at("--native", &address, "--native-secret-file")?;
            }
        }
        Ok(())
    }

    fn strangers_at(&self, option: &str, address: &Address, remedy: &str) -> anyhow::Result<()> {
        ensure!(
            self.allow_public == Switch::On,
            "{option} {address}: whoever can reach it could read and write. Use {remedy}, or --allow-public if the network \
             keeps strangers out"
        );
        tracing::warn!(%address, "{option}: whoever can reach it can read and write");
        Ok(())
    }

    /// What drops the privileges, if a user is named.
    ///
    /// # Errors
    /// Names the user who cannot be taken.
    pub(crate) fn after_bind(&self) -> anyhow::Result<Option<AfterBind>> {
        let Some(name) = &self.user else { return Ok(None) };
        let user = Unprivileged::named(name)?;
        Ok(Some(AfterBind(Arc::new(move || user.become_it()))))
    }

    /// Confines the process to the system calls of a server that has started, if that is asked for.
    ///
    /// # Errors
    /// The kernel has no seccomp.
    pub(crate) fn confine(&self, has_flash: bool) -> anyhow::Result<()> {
        if self.sandbox == Switch::On {
            confine::sandbox(has_flash)?;
            tracing::info!("the process is confined to the system calls that it needs");
        }
        Ok(())
    }

    /// True if the process becomes another user.
    pub(crate) fn changes_user(&self) -> bool {
        self.user.is_some()
    }

    /// True if the process gives up system calls.
    pub(crate) fn is_sandboxed(&self) -> bool {
        self.sandbox == Switch::On
    }

    /// What SIGHUP reads again; `None` if there is nothing.
    pub(crate) fn files(&self, config: &ServerConfig) -> Option<Reload> {
        let tls = config.tls.as_ref().map(|tls| Arc::clone(&tls.acceptor));
        let authority = config.access.as_ref().map(|access| Arc::clone(&access.authority));
        let acl = self.acl.clone().zip(authority);
        (tls.is_some() || acl.is_some()).then_some(Reload { tls, acl })
    }
}

/// The files that SIGHUP reads again.
pub(crate) struct Reload {
    tls: Option<Arc<Acceptor>>,
    acl: Option<(PathBuf, Arc<Authority>)>,
}

impl Reload {
    /// Reads them. What is of no use changes nothing.
    pub(crate) fn run(&self) {
        match self.tls.as_ref().map(|tls| tls.reload()) {
            Some(Ok(())) => tracing::info!("certificate, key and authorities are read again"),
            Some(Err(error)) => tracing::error!(%error, "the certificate in force stays"),
            None => {}
        }
        let Some((path, authority)) = &self.acl else { return };
        match read_acl(path) {
            Ok(acl) => {
                authority.replace(acl);
                tracing::info!("the users are read again");
            }
            Err(error) => tracing::error!("the users in force stay: {error:#}"),
        }
    }
}

fn read_acl(path: &Path) -> anyhow::Result<Acl> {
    read_users(path).map_err(|error| anyhow!("--acl {error}"))
}
