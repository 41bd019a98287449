//! The admin endpoint that a command asks, and how it is trusted.

use std::time::Duration;

use clap::Args;
use minos_net::Address;
use rustls::pki_types::ServerName;
use tokio_rustls::TlsConnector;

use super::http::{self, Answer, Question};
use crate::{admin::AdminAddress, trust::TrustArgs};

/// An admin endpoint.
#[derive(Args, Clone, Debug)]
pub(crate) struct AdminServer {
    /// Admin endpoint, as in the server's --admin: IP:PORT, tls:IP:PORT or unix:/PATH
    #[arg(long, global = true, value_name = "ADDR", default_value = "127.0.0.1:11212")]
    admin: AdminAddress,
    #[command(flatten)]
    trust: TrustArgs,
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
        let AdminAddress { address, is_tls } = &self.admin;
        self.trust.check(*is_tls, "--admin tls:IP:PORT")?;
        let Address::Tcp(address) = address else { return Ok(None) };
        if !is_tls {
            return Ok(None);
        }
        let name = self.trust.server_name(&address.ip().to_string())?;
        Ok(Some((TlsConnector::from(self.trust.config()?), name)))
    }
}
