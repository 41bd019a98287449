//! The admin endpoint: statistics, metrics and the design over HTTP/1.1, for people and for those who scrape.
//!
//! It has one thread of its own and asks the server what clients may ask as well, so that no worker waits for it. A
//! connection carries one request, and everything about it is bounded: how many there are, the bytes of head and body,
//! the time to send one and to take the answer. Whoever exceeds a bound is told by an HTTP status, and counted.

mod connection;
mod counters;
mod dispatch;
mod listen;
mod metrics;
mod options;
mod origin;
mod reply;
mod routes;
mod statistics;

use std::{io, thread, time::Duration};

use anyhow::Context;
use minos_net::{Address, Listener};
use minos_node::Operator;
use tokio::{runtime, sync::oneshot};

pub(crate) use options::AdminOptions;

use counters::Counters;

/// Time that requests under way get when the endpoint is stopped.
const FAREWELL: Duration = Duration::from_secs(1);

/// The endpoint before the server runs that it is for: its address is taken, and nobody is served yet.
#[derive(Debug)]
pub(crate) struct Reserved {
    listener: Listener,
    options: AdminOptions,
}

/// What the tasks of the endpoint share.
struct Endpoint {
    operator: Operator,
    address: Address,
    options: AdminOptions,
    counters: Counters,
}

/// The endpoint at work. Dropping it ends it.
#[derive(Debug)]
pub(crate) struct Admin {
    /// Dropped, it tells the thread to end.
    stop: Option<oneshot::Sender<()>>,
    thread: Option<thread::JoinHandle<()>>,
}

impl Reserved {
    /// Takes the address that `options` name, if they name one.
    ///
    /// # Errors
    /// A value is out of its bounds, or the address cannot be had.
    pub(crate) fn take(options: &AdminOptions) -> anyhow::Result<Option<Self>> {
        options.check()?;
        let Some(address) = &options.admin else { return Ok(None) };
        let listener = Listener::bind_private(address)
            .with_context(|| format!("--admin: cannot listen on {address}"))?;
        if !address.is_local() {
            tracing::warn!(%address, "--admin: whoever can reach it can read statistics and switch the design");
        }
        Ok(Some(Self { listener, options: options.clone() }))
    }

    /// The address, with the port that was taken.
    pub(crate) fn address(&self) -> &Address {
        self.listener.address()
    }

    /// Serves what `operator` can tell and do.
    ///
    /// # Errors
    /// No descriptor or no thread is left.
    pub(crate) fn serve(self, operator: Operator) -> io::Result<Admin> {
        let Self { listener, options } = self;
        let endpoint = Endpoint {
            operator,
            address: listener.address().clone(),
            options,
            counters: Counters::default(),
        };
        // One thread beside this one, for a switch: those who ask for more wait for their turn.
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
