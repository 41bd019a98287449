//! The admin endpoint that a command asks, and how it is trusted.

use std::{path::PathBuf, sync::Arc, time::Duration};

use anyhow::{Context, ensure};
use clap::Args;
use minos_net::Address;
use rustls::{
    ClientConfig, RootCertStore,
    crypto::ring,
    pki_types::{CertificateDer, PrivateKeyDer, ServerName, pem::PemObject},
};
use tokio_rustls::TlsConnector;

use super::http::{self, Answer, Question};
use crate::admin::AdminAddress;

/// An admin endpoint.
#[derive(Args, Clone, Debug)]
pub(crate) struct AdminServer {
    /// Admin endpoint, as in the server's --admin: IP:PORT, tls:IP:PORT or unix:/PATH
    #[arg(long, global = true, value_name = "ADDR", default_value = "127.0.0.1:11212")]
    admin: AdminAddress,
    /// With tls:, authorities in PEM, one of which must have signed the server's certificate
    #[arg(long, global = true, value_name = "FILE")]
    tls_ca: Option<PathBuf>,
    /// With tls:, the name that the server's certificate must have [default: the address]
    #[arg(long, global = true, value_name = "NAME")]
    tls_name: Option<String>,
    /// With tls:, the own certificate, in PEM, if the server asks for one
    #[arg(long, global = true, value_name = "FILE", requires = "tls_key")]
    tls_cert: Option<PathBuf>,
    /// Key of that certificate, in PEM
    #[arg(long, global = true, value_name = "FILE", requires = "tls_cert")]
    tls_key: Option<PathBuf>,
}

/// How a server proves who it is.
pub(crate) type Trust = (TlsConnector, ServerName<'static>);

impl AdminServer {
    pub(crate) fn address(&self) -> &AdminAddress {
        &self.admin
    }

    /// Sends a request, with the token if there is one, and waits at most `limit` for the answer.
    ///
    /// # Errors
    /// A file is of no use, nothing listens there, the server is not the one that it should be or does not speak HTTP, or
    /// the answer is late.
    pub(crate) fn ask(
        &self,
        token: Option<&str>,
        limit: Duration,
        question: Question,
    ) -> anyhow::Result<Answer> {
        http::ask((&self.admin, self.trust()?, token), limit, question)
    }

    fn trust(&self) -> anyhow::Result<Option<Trust>> {
        let Address::Tcp(address) = &self.admin.address else { return Ok(None) };
        if !self.admin.is_tls {
            ensure!(
                self.tls_ca.is_none(),
                "--tls-ca: write --admin tls:{address}, or the server is not asked over TLS"
            );
            return Ok(None);
        }
        let path = self.tls_ca.as_deref();
        let path = path.with_context(|| format!("--admin {}: it needs --tls-ca", self.admin))?;
        let mut roots = RootCertStore::empty();
        for authority in certificates("--tls-ca", path)? {
            roots.add(authority).with_context(|| format!("--tls-ca {}", path.display()))?;
        }
        let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()?
            .with_root_certificates(roots);
        let config = match (&self.tls_cert, &self.tls_key) {
            (Some(cert), Some(key)) => {
                let name = || format!("--tls-key {}", key.display());
                let chain = certificates("--tls-cert", cert)?;
                let key = PrivateKeyDer::from_pem_file(key).with_context(name)?;
                builder.with_client_auth_cert(chain, key).with_context(name)?
            }
            _ => builder.with_no_client_auth(),
        };
        let name = match &self.tls_name {
            Some(name) => ServerName::try_from(name.clone()).with_context(|| format!("--tls-name {name}"))?,
            None => ServerName::from(address.ip()),
        };
        Ok(Some((TlsConnector::from(Arc::new(config)), name)))
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
