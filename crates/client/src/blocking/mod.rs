//! The client for programs with threads: each call waits for its answer.

mod calls;
mod steps;
#[cfg(test)]
mod tests;

use std::{
    collections::{HashMap, VecDeque},
    net::SocketAddr,
    os::fd::AsFd,
    time::{Duration, Instant},
};

use minos_net::{Wait, wait_readable};

use crate::{
    Config, Error, Outcome, Request, Verb,
    address::parse_all,
    core::{Completion, Counters, Full, OpId},
    meaning,
    wire::Wire,
};

/// Longest wait without a look at the clock.
const WAIT_MAX: Duration = Duration::from_secs(1);

/// A client whose calls wait for their answers.
///
/// It is one socket, which the calling thread drives: calls take `&mut self`, and there are no threads behind it.
/// It can be sent to another thread; threads that share one need a mutex, or better a client each. Nothing is
/// sent between calls. An event loop starts operations and lets the client [`step`](Client::step) when its socket, the
/// [`AsFd`], is readable or [`until_next`](Client::until_next) is over, and no call of it waits.
#[derive(Debug)]
pub struct Client {
    wire: Wire,
    timeout: Option<Duration>,
    /// Operations that were started and have ended, until they are taken.
    ended: VecDeque<Completion>,
    /// Something was started that no step has sent yet.
    has_unsent: bool,
}

impl Client {
    /// A client of the server at `address`: `minos://HOST:PORT` or `HOST:PORT`. Asks the server for an answer.
    ///
    /// Several addresses, with commas between them, name servers of the same items, or caches that stand in for each
    /// other: when one is stopping or silent, the client goes to the next.
    ///
    /// # Errors
    /// [`Error::Address`], [`Error::Option`], [`Error::Io`]; [`Error::TimedOut`], [`Error::Secret`] or
    /// [`Error::Version`] if the server does not answer as it should.
    pub fn connect(address: &str, config: Config) -> Result<Self, Error> {
        let mut client = Self::open(address, config)?;
        client.ping()?;
        Ok(client)
    }

    /// As [`connect`](Self::connect), but nothing is sent before the first call.
    ///
    /// # Errors
    /// [`Error::Address`], [`Error::Option`], [`Error::Io`].
    pub fn open(address: &str, config: Config) -> Result<Self, Error> {
        Ok(Self {
            wire: Wire::open(&parse_all(address)?, config)?,
            timeout: None,
            ended: VecDeque::new(),
            has_unsent: false,
        })
    }

    /// How long the server takes to answer.
    ///
    /// # Errors
    /// As every call.
    pub fn ping(&mut self) -> Result<Duration, Error> {
        let begun = Instant::now();
        meaning::stored(self.call(Request::new(Verb::Ping, "")))?;
        Ok(begun.elapsed())
    }

    /// Any operation.
    ///
    /// # Errors
    /// See [`Error`].
    pub fn call(&mut self, request: Request) -> Result<Outcome, Error> {
        self.call_many([request]).pop().unwrap_or(Err(Error::Closed))
    }

    /// Many operations at once, in as few datagrams as hold them: explicit vectors (vector interfaces §6.2). What
    /// comes of them stands in their order. In which order they are executed is not said.
    pub fn call_many(&mut self, requests: impl IntoIterator<Item = Request>) -> Vec<Result<Outcome, Error>> {
        let mut results = Vec::new();
        let mut unfinished = HashMap::new();
        let timeout = self.timeout;
        let mut requests = requests.into_iter().map(|request| request.timeout_or(timeout));
        let mut next = requests.next();
        while next.is_some() || !unfinished.is_empty() {
            next = self.submit_all(next, &mut requests, &mut results, &mut unfinished);
            if let Err(error) = self.advance() {
                results.iter_mut().for_each(|result| {
                    result.get_or_insert(Err(error.clone()));
                });
                results.extend(next.into_iter().chain(requests).map(|_| Some(Err(error.clone()))));
                break;
            }
            while let Some(Completion { id, result }) = self.wire.core.poll_completion() {
                match unfinished.remove(&id) {
                    Some(index) => results[index] = Some(result),
                    None => self.ended.push_back(Completion { id, result }),
                }
            }
        }
        results.into_iter().map(|result| result.unwrap_or(Err(Error::Closed))).collect()
    }

    /// How long each call may take from now on, unless its request says another time; `None` is what
    /// [`Config::timeout`] says.
    pub fn set_timeout(&mut self, timeout: Option<Duration>) {
        self.timeout = timeout;
    }

    /// The server that is used now.
    pub fn server(&self) -> SocketAddr {
        self.wire.core.server()
    }

    /// What was counted so far.
    pub fn counters(&self) -> &Counters {
        self.wire.core.counters()
    }

    /// Submits as many requests as there is room for. Says which is the first that found none.
    fn submit_all(
        &mut self,
        mut next: Option<Request>,
        requests: &mut impl Iterator<Item = Request>,
        results: &mut Vec<Option<Result<Outcome, Error>>>,
        unfinished: &mut HashMap<OpId, usize>,
    ) -> Option<Request> {
        let now_ns = self.wire.now_ns();
        while let Some(request) = next {
            match self.wire.core.submit(request, now_ns) {
                Ok(id) => {
                    unfinished.insert(id, results.len());
                    results.push(None);
                    next = requests.next();
                }
                Err(Full(request)) => return Some(request),
            }
        }
        // Nobody else will join them.
        self.wire.core.flush();
        None
    }

    /// Sends what there is to send, waits for something to arrive or to be due, and takes it in.
    fn advance(&mut self) -> Result<(), Error> {
        self.wire.flush();
        if self.wire.core.unfinished() == 0 {
            return Ok(());
        }
        if !self.wire.drain()? {
            let wait = self.wire.until_next().unwrap_or(WAIT_MAX).min(WAIT_MAX);
            wait_readable(&[self.wire.as_fd()], Wait::For(wait))?;
            self.wire.drain()?;
        }
        Ok(())
    }
}
