//! The client for asynchronous programs: a task drives the socket, handles to it can be cloned.
//!
//! ```no_run
//! use minos_client::{Config, tokio::Client};
//!
//! # async fn example() -> Result<(), minos_client::Error> {
//! let client = Client::connect("minos://127.0.0.1:11311", Config::new()).await?;
//! client.put("greeting", "hello").await?;
//! let value = client.get("greeting").await?;
//! # Ok(())
//! # }
//! ```

mod calls;
mod driver;
#[cfg(test)]
mod tests;

use std::{
    net::SocketAddr,
    time::{Duration, Instant},
};

use tokio::sync::{mpsc, oneshot};

use self::driver::{Driver, Order};
use crate::{Config, Error, Outcome, Request, Verb, address::parse_all, core::Counters, meaning, wire::Wire};

/// Calls that wait for the driver before further ones wait to be taken.
const ORDERS_MAX: usize = 1024;

/// A handle to a client that a task of the current tokio runtime drives.
///
/// Handles can be cloned and used side by side; what they ask for at the same time shares datagrams. The task ends
/// when the last handle is dropped. A call whose future is dropped before it is done may be executed or not, as
/// one that timed out.
#[derive(Clone, Debug)]
pub struct Client {
    orders: mpsc::Sender<Order>,
    timeout: Option<Duration>,
}

impl Client {
    /// A client of the server at `address`: `minos://HOST:PORT` or `HOST:PORT`. Asks the server for an answer. Several
    /// addresses may be given as to the [blocking client](crate::blocking::Client::connect).
    ///
    /// Must be called within a tokio runtime that has I/O and time enabled.
    ///
    /// # Errors
    /// [`Error::Address`], [`Error::Option`], [`Error::Io`]; [`Error::TimedOut`], [`Error::Secret`] or
    /// [`Error::Version`] if the server does not answer as it should.
    pub async fn connect(address: &str, config: Config) -> Result<Self, Error> {
        let addresses = parse_all(address)?;
        // A host's name may take long to find.
        let opened = tokio::task::spawn_blocking(move || Wire::open(&addresses, config)).await;
        let wire = opened.map_err(|_| Error::Closed)??;
        let (orders, taken) = mpsc::channel(ORDERS_MAX);
        tokio::spawn(Driver::new(wire, taken)?.run());
        let client = Self { orders, timeout: None };
        client.ping().await?;
        Ok(client)
    }

    /// How long the server takes to answer.
    ///
    /// # Errors
    /// As every call.
    pub async fn ping(&self) -> Result<Duration, Error> {
        let begun = Instant::now();
        meaning::stored(self.call(Request::new(Verb::Ping, "")).await)?;
        Ok(begun.elapsed())
    }

    /// A handle to the same client whose calls may take so long, unless their requests say another time.
    #[must_use]
    pub fn with_timeout(&self, timeout: Duration) -> Self {
        Self { timeout: Some(timeout), ..self.clone() }
    }

    /// The server that is used now, and what was counted so far.
    ///
    /// # Errors
    /// [`Error::Closed`]: the client has ended.
    pub async fn state(&self) -> Result<(SocketAddr, Counters), Error> {
        let (answer, answered) = oneshot::channel();
        self.order(Order::State(answer)).await?;
        answered.await.map_err(|_| Error::Closed)
    }

    /// Any operation.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn call(&self, request: Request) -> Result<Outcome, Error> {
        let (answer, answered) = oneshot::channel();
        let request = request.timeout_or(self.timeout);
        self.order(Order::One(request, answer)).await?;
        answered.await.unwrap_or(Err(Error::Closed))
    }

    /// Many operations at once, in as few datagrams as hold them: explicit vectors (vector interfaces §6.2). What
    /// comes of them stands in their order. In which order they are executed is not said.
    pub async fn call_many(
        &self,
        requests: impl IntoIterator<Item = Request>,
    ) -> Vec<Result<Outcome, Error>> {
        let requests = requests.into_iter().map(|request| request.timeout_or(self.timeout));
        let requests: Vec<Request> = requests.collect();
        let count = requests.len();
        let (answer, answered) = oneshot::channel();
        let sent = self.order(Order::Many(requests, answer)).await;
        match sent {
            Ok(()) => answered.await.unwrap_or_else(|_| vec![Err(Error::Closed); count]),
            Err(error) => vec![Err(error); count],
        }
    }

    async fn order(&self, order: Order) -> Result<(), Error> {
        self.orders.send(order).await.map_err(|_| Error::Closed)
    }
}
