//! The client for asynchronous programs: a task drives the socket; its handles can be cloned.
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

/// Calls queued for the driver. Further calls wait for room in the queue.
const ORDERS_MAX: usize = 1024;

/// A handle to a client that a task of the current tokio runtime drives.
///
/// Handles can be cloned and used concurrently; their simultaneous requests share datagrams. The task ends
/// when the last handle is dropped. A call whose future is dropped before completion may be executed or not,
/// as one that timed out.
#[derive(Clone, Debug)]
pub struct Client {
    orders: mpsc::Sender<Order>,
}

impl Client {
    /// Creates a client of the server at `address`, `minos://HOST:PORT` or `HOST:PORT`, and pings the server.
    /// Several addresses may be given as to the [blocking client](crate::blocking::Client::connect).
    ///
    /// Must be called within a tokio runtime that has I/O and time enabled.
    ///
    /// # Errors
    /// [`Error::Address`], [`Error::Option`], [`Error::Io`]; [`Error::TimedOut`], [`Error::Secret`] or
    /// [`Error::Version`] if the server does not answer as it should.
    pub async fn connect(address: &str, config: Config) -> Result<Self, Error> {
        let addresses = parse_all(address)?;
        // Resolving a host's name may take long.
        let opened = tokio::task::spawn_blocking(move || Wire::open(&addresses, config)).await;
        let wire = opened.map_err(|_| Error::Closed)??;
        let (orders, taken) = mpsc::channel(ORDERS_MAX);
        tokio::spawn(Driver::new(wire, taken)?.run());
        let client = Self { orders };
        client.ping().await?;
        Ok(client)
    }

    /// The round-trip time to the server.
    ///
    /// # Errors
    /// As every call.
    pub async fn ping(&self) -> Result<Duration, Error> {
        let begun = Instant::now();
        meaning::stored(self.call(Request::new(Verb::Ping, "")).await)?;
        Ok(begun.elapsed())
    }

    /// The current server, and the counters.
    ///
    /// # Errors
    /// [`Error::Closed`]: the client has ended.
    pub async fn state(&self) -> Result<(SocketAddr, Counters), Error> {
        let (answer, answered) = oneshot::channel();
        self.order(Order::State(answer)).await?;
        answered.await.map_err(|_| Error::Closed)
    }

    /// Executes any operation.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn call(&self, request: Request) -> Result<Outcome, Error> {
        let (answer, answered) = oneshot::channel();
        self.order(Order::One(request, Instant::now(), answer)).await?;
        answered.await.unwrap_or(Err(Error::Closed))
    }

    /// Executes many operations at once, in as few datagrams as possible: explicit vectors (vector interfaces
    /// §6.2). Results are in the order of the requests; the order of execution is unspecified.
    pub async fn call_many(
        &self,
        requests: impl IntoIterator<Item = Request>,
    ) -> Vec<Result<Outcome, Error>> {
        let requests: Vec<Request> = requests.into_iter().collect();
        let count = requests.len();
        let (answer, answered) = oneshot::channel();
        let sent = self.order(Order::Many(requests, Instant::now(), answer)).await;
        match sent {
            Ok(()) => answered.await.unwrap_or_else(|_| vec![Err(Error::Closed); count]),
            Err(error) => vec![Err(error); count],
        }
    }

    async fn order(&self, order: Order) -> Result<(), Error> {
        self.orders.send(order).await.map_err(|_| Error::Closed)
    }
}
