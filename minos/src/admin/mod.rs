//! The admin endpoint: statistics, metrics and the design over HTTP/1.1, for people and for scrapers.
//!
//! It runs on its own thread and uses the same requests as clients do, so that no worker waits for it. A
//! connection carries one request. Everything is bounded: the number of connections, the bytes of head and
//! body, the time to send a request and to take the answer. A client that exceeds a bound gets an HTTP
//! status, and is counted.

mod connection;
mod counters;
mod dispatch;
mod flash;
mod listen;
mod metrics;
mod options;
mod origin;
mod page;
mod reply;
mod routes;
mod settings;
mod snapshot;
mod statistics;
pub(crate) mod token;
mod watch;

use std::{io, sync::Arc, thread, time::Duration};

use anyhow::{Context, bail};
use minos_net::{Address, Listener};
use minos_node::{Operator, config::Acceptor};
use tokio::{runtime, sync::oneshot};

pub(crate) use options::{AdminAddress, AdminOptions};

use counters::Counters;
use token::Token;

/// Time for open requests to finish after a stop.
const FAREWELL: Duration = Duration::from_secs(1);

/// The endpoint before its server runs: its address is bound, but no connection is accepted yet.
#[derive(Debug)]
pub(crate) struct Reserved {
    listener: Listener,
    options: AdminOptions,
    token: Option<Token>,
    /// The certificate, if the endpoint speaks TLS.
    acceptor: Option<Arc<Acceptor>>,
}

/// Checks the values of options; returns the certificate and the token of the endpoint, if it has them. Clients speak TLS
/// there, if they do, by `acceptor`.
///
/// # Errors
/// Names the option that is of no use.
pub(crate) fn keys(
    options: &AdminOptions,
    acceptor: Option<&Arc<Acceptor>>,
) -> anyhow::Result<(Option<Arc<Acceptor>>, Option<Token>)> {
    options.check()?;
    let secured = options.admin.as_ref().filter(|admin| admin.is_tls);
    let acceptor = acceptor.filter(|_| secured.is_some()).cloned();
    if let (Some(admin), None) = (secured, &acceptor) {
        bail!("--admin {admin}: it needs --tls-cert and --tls-key");
    }
    let token = options.admin_token_file.as_deref().map(Token::read).transpose()?;
    Ok((acceptor, token))
}

/// The state that the tasks of the endpoint share.
struct Endpoint {
    operator: Operator,
    address: Address,
    options: AdminOptions,
    /// What changes need, if they need anything.
    token: Option<Token>,
    /// The certificate, if the endpoint speaks TLS.
    acceptor: Option<Arc<Acceptor>>,
    counters: Counters,
}

/// The running endpoint. Dropping it stops it.
#[derive(Debug)]
pub(crate) struct Admin {
    /// Dropping this stops the thread.
    stop: Option<oneshot::Sender<()>>,
    thread: Option<thread::JoinHandle<()>>,
}

impl Reserved {
    /// Binds the address in `options`, if there is one. If clients speak TLS there, they do so by `acceptor`.
    pub(crate) fn take(
        options: &AdminOptions,
        acceptor: Option<&Arc<Acceptor>>,
    ) -> anyhow::Result<Option<Self>> {
        let (acceptor, token) = keys(options, acceptor)?;
        let Some(AdminAddress { address, .. }) = &options.admin else { return Ok(None) };
        let listener = Listener::bind_private(address)
            .with_context(|| format!("--admin: cannot listen on {address}"))?;
        if !address.is_local() {
            tracing::warn!(%address, "--admin: whoever can reach it can read statistics");
        }
        options.snapshot_folder.iter().for_each(|folder| minos_tier::remove_stale_snapshots(folder));
        Ok(Some(Self { listener, options: options.clone(), token, acceptor }))
    }

    /// The address, with the port that was bound.
    pub(crate) fn address(&self) -> AdminAddress {
        AdminAddress { address: self.listener.address().clone(), is_tls: self.acceptor.is_some() }
    }

    /// Serves the statistics and switches of `operator`.
    pub(crate) fn serve(self, operator: Operator) -> io::Result<Admin> {
        let Self { listener, options, token, acceptor } = self;
        let endpoint = Endpoint {
            operator,
            address: listener.address().clone(),
            options,
            token,
            acceptor,
            counters: Counters::default(),
        };
        // One more thread executes switches; further requests for a switch wait for it.
        let runtime = runtime::Builder::new_current_thread().enable_all().max_blocking_threads(1).build()?;
        let (stop, stopped) = oneshot::channel();
        let thread = thread::Builder::new().name("minos-admin".to_owned()).spawn(move || {
            runtime.block_on(listen::serve_until(stopped, listener, endpoint));
            runtime.shutdown_timeout(FAREWELL);
        })?;
        Ok(Admin { stop: Some(stop), thread: Some(thread) })
    }
}

impl Drop for Admin {
    fn drop(&mut self) {
        drop(self.stop.take());
        if self.thread.take().is_some_and(|thread| thread.join().is_err()) {
            tracing::error!("the thread of the admin endpoint panicked");
        }
    }
}
