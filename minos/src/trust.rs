//! TLS of the commands that ask a server: whom they trust, and who they are.

use std::{net::TcpStream, path::PathBuf, sync::Arc};

use anyhow::{Context, ensure};
use clap::Args;
use rustls::{
    ClientConfig, ClientConnection, RootCertStore, StreamOwned,
    crypto::ring,
    pki_types::{CertificateDer, PrivateKeyDer, ServerName, pem::PemObject},
};

/// A stream over TLS.
pub(crate) type Secured = StreamOwned<ClientConnection, TcpStream>;

/// How a server over TLS is trusted.
#[derive(Args, Clone, Debug)]
pub(crate) struct TrustArgs {
    /// Over TLS, authorities in PEM, one of which must have signed the server's certificate [default: the system's]
    #[arg(long, global = true, value_name = "FILE")]
    tls_ca: Option<PathBuf>,
    /// Over TLS, the name that the server's certificate must have [default: the host of the address]
    #[arg(long, global = true, value_name = "NAME")]
    tls_name: Option<String>,
    /// Over TLS, the own certificate, in PEM, if the server asks for one
    #[arg(long, global = true, value_name = "FILE", requires = "tls_key")]
    tls_cert: Option<PathBuf>,
    /// Key of that certificate, in PEM
    #[arg(long, global = true, value_name = "FILE", requires = "tls_cert")]
    tls_key: Option<PathBuf>,
}

impl TrustArgs {
    /// Looks whether options are given that mean nothing because no server is asked over TLS, which is written `tls`.
    ///
    /// # Errors
    /// There is one.
    pub(crate) fn check(&self, is_tls: bool, tls: &str) -> anyhow::Result<()> {
        let options = [
            ("--tls-ca", self.tls_ca.is_some()),
            ("--tls-name", self.tls_name.is_some()),
            ("--tls-cert", self.tls_cert.is_some()),
        ];
        let given = options.iter().find(|(_, is_given)| *is_given && !is_tls);
        ensure!(
            given.is_none(),
            "{}: write {tls}, or the server is not asked over TLS",
            given.map_or("", |it| it.0)
        );
        Ok(())
    }

    /// The configuration to speak TLS with.
    ///
    /// # Errors
    /// A file is of no use.
    pub(crate) fn config(&self) -> anyhow::Result<Arc<ClientConfig>> {
        let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()?
            .with_root_certificates(self.authorities()?);
        let config = match (&self.tls_cert, &self.tls_key) {
            (Some(cert), Some(key)) => {
                let name = || format!("--tls-key {}", key.display());
                let chain = certificates("--tls-cert", cert)?;
                let key = PrivateKeyDer::from_pem_file(key).with_context(name)?;
                builder.with_client_auth_cert(chain, key).with_context(name)?
            }
            _ => builder.with_no_client_auth(),
        };
        Ok(Arc::new(config))
    }

    fn authorities(&self) -> anyhow::Result<RootCertStore> {
        let mut roots = RootCertStore::empty();
        if let Some(path) = &self.tls_ca {
            for authority in certificates("--tls-ca", path)? {
                roots.add(authority).with_context(|| format!("--tls-ca {}", path.display()))?;
            }
        } else {
            // Some of a system's may be of no use; what they have signed is not trusted.
            let of_system = rustls_native_certs::load_native_certs();
            roots.add_parsable_certificates(of_system.certs);
            let why = of_system.errors.first().map(|error| format!(" ({error})")).unwrap_or_default();
            ensure!(!roots.is_empty(), "the system has no authorities{why}: say --tls-ca");
        }
        Ok(roots)
    }

    /// The name that the certificate of the server at a host must have.
    ///
    /// # Errors
    /// It is no name.
    pub(crate) fn server_name(&self, host: &str) -> anyhow::Result<ServerName<'static>> {
        let host = host.trim_start_matches('[').trim_end_matches(']');
        let (option, name) = self.tls_name.as_deref().map_or(("the host", host), |name| ("--tls-name", name));
        ServerName::try_from(name.to_owned()).with_context(|| format!("{option} {name}"))
    }

    /// Speaks TLS with the server at a host.
    ///
    /// # Errors
    /// A file or the name is of no use. Whether the server can be trusted shows with the first bytes.
    pub(crate) fn secure(&self, host: &str, stream: TcpStream) -> anyhow::Result<Secured> {
        let connection = ClientConnection::new(self.config()?, self.server_name(host)?)?;
        Ok(StreamOwned::new(connection, stream))
    }

    /// The same for the client of Redis' protocol, which takes the name from the URL.
    ///
    /// # Errors
    /// A file is of no use.
    pub(crate) fn of_redis(&self) -> anyhow::Result<redis::TlsCertificates> {
        ensure!(
            self.tls_name.is_none(),
            "--tls-name: with rediss:// the certificate must have the URL's host"
        );
        // It refuses what is of no use here as well, and names it.
        self.config()?;
        // The client takes the provider of the process.
        let _ = ring::default_provider().install_default();
        let read = |option: &str, path: &PathBuf| {
            std::fs::read(path).with_context(|| format!("{option} {}", path.display()))
        };
        let root_cert = self.tls_ca.as_ref().map(|path| read("--tls-ca", path)).transpose()?;
        let client_tls = match (&self.tls_cert, &self.tls_key) {
            (Some(cert), Some(key)) => Some(redis::ClientTlsConfig {
                client_cert: read("--tls-cert", cert)?,
                client_key: read("--tls-key", key)?,
            }),
            _ => None,
        };
        Ok(redis::TlsCertificates { client_tls, root_cert })
    }
}

/// The certificates in a file, at least one.
fn certificates(option: &str, path: &std::path::Path) -> anyhow::Result<Vec<CertificateDer<'static>>> {
    let name = || format!("{option} {}", path.display());
    let all = CertificateDer::pem_file_iter(path).with_context(name)?;
    let all = all.collect::<Result<Vec<_>, _>>().with_context(name)?;
    ensure!(!all.is_empty(), "{}: it has no certificate", name());
    Ok(all)
}
