//! The client for programs with threads: each call waits for its answer.

mod steps;
#[cfg(test)]
mod tests;

use std::{
    collections::{HashSet, VecDeque},
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

/// Longest wait without a look at the clock, and the time between two questions whether to go on.
const WAIT_MAX: Duration = Duration::from_millis(100);

/// An operation of a call.
enum Asked {
    Unfinished(OpId),
    Ended(Result<Outcome, Error>),
}

impl Asked {
    fn is(&self, id: OpId) -> bool {
        matches!(self, Self::Unfinished(own) if *own == id)
    }

    /// Its result; `error` if it has none.
    fn result(self, error: &Error) -> Result<Outcome, Error> {
        match self {
            Self::Unfinished(_) => Err(error.clone()),
            Self::Ended(result) => result,
        }
    }
}

/// A client whose calls wait for their answers.
///
/// It has one socket, which the calling thread drives: calls take `&mut self`, and there are no background
/// threads. It can be sent to another thread; threads that share one need a mutex, or better a client each.
/// Nothing is sent between calls. After a fork only one of the processes may use a client. An event loop starts operations and calls [`step`](Client::step) when the
/// socket ([`AsFd`]) is readable or [`until_next`](Client::until_next) is over; these calls never wait.
#[derive(Debug)]
pub struct Client {
    wire: Wire,
    timeout: Option<Duration>,
    /// Completions of started operations, until they are taken.
    ended: VecDeque<Completion>,
    /// Operations of calls that have ended before them.
    given_up: HashSet<OpId>,
    /// True if an operation was started that no step has sent yet.
    has_unsent: bool,
}

impl Client {
    /// Creates a client of the server at `address`, `minos://HOST:PORT` or `HOST:PORT`, and pings the server.
    ///
    /// Several addresses, separated by commas, name servers of the same items, or caches that replace each
    /// other: when a server stops or is silent, the client switches to the next. If the first one that answers is a node
    /// of a rack, the client uses all nodes of the rack. Names of hosts are resolved here and never again: make another
    /// client for a server that has another address. A name without one is left out while others have one.
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
            given_up: HashSet::new(),
            has_unsent: false,
        })
    }

    /// The round-trip time to the server.
    ///
    /// # Errors
    /// As every call.
    pub fn ping(&mut self) -> Result<Duration, Error> {
        let begun = Instant::now();
        meaning::stored(self.call(Request::new(Verb::Ping, "")))?;
        Ok(begun.elapsed())
    }

    /// Executes any operation.
    ///
    /// # Errors
    /// See [`Error`].
    pub fn call(&mut self, request: Request) -> Result<Outcome, Error> {
        self.call_many([request]).pop().unwrap_or(Err(Error::Closed))
    }

    /// Executes many operations at once, in as few datagrams as possible: explicit vectors (vector interfaces
    /// §6.2). Results are in the order of the requests; the order of execution is unspecified.
    pub fn call_many(&mut self, requests: impl IntoIterator<Item = Request>) -> Vec<Result<Outcome, Error>> {
        self.call_many_while(requests, || true)
    }

    /// As [`call_many`](Self::call_many), but asks ten times a second whether to go on. What has not ended when the answer
    /// is no fails with [`Error::TimedOut`].
    pub fn call_many_while(
        &mut self,
        requests: impl IntoIterator<Item = Request>,
        mut goes_on: impl FnMut() -> bool,
    ) -> Vec<Result<Outcome, Error>> {
        let mut asked = Vec::new();
        let mut left = 0;
        let timeout = self.timeout;
        let mut requests = requests.into_iter().map(|request| request.timeout_or(timeout));
        let mut next = requests.next();
        let since_ns = self.wire.now_ns();
        let mut looked = Instant::now();
        while next.is_some() || left > 0 {
            let before = asked.len();
            next = self.submit_all(next, &mut requests, &mut asked, since_ns);
            left += asked[before..].iter().filter(|asked| matches!(asked, Asked::Unfinished(_))).count();
            let mut fault = self.advance().err();
            if looked.elapsed() >= WAIT_MAX {
                looked = Instant::now();
                fault = fault.or_else(|| (!goes_on()).then_some(Error::TimedOut { was_sent: true }));
            }
            left -= self.take_completions(&mut asked);
            if let Some(error) = fault {
                let unsent = next.into_iter().chain(requests).map(|_| Err(error.clone()));
                return self.give_up(asked, &error).into_iter().chain(unsent).collect();
            }
        }
        self.give_up(asked, &Error::Closed)
    }

    /// The results of a call that ends; `error` for what has not ended, of which nobody will hear.
    fn give_up(&mut self, asked: Vec<Asked>, error: &Error) -> Vec<Result<Outcome, Error>> {
        let unfinished = |asked: &Asked| match asked {
            Asked::Unfinished(id) => Some(*id),
            Asked::Ended(_) => None,
        };
        self.given_up.extend(asked.iter().filter_map(unfinished));
        asked.into_iter().map(|asked| asked.result(error)).collect()
    }

    /// Takes all completions. Returns the number of those that belong to a call.
    fn take_completions(&mut self, asked: &mut [Asked]) -> usize {
        let mut count = 0;
        while let Some(completion) = self.wire.poll_completion() {
            // A started operation may have any tag.
            match usize::try_from(completion.tag).ok().and_then(|index| asked.get_mut(index)) {
                Some(asked) if asked.is(completion.id) => {
                    *asked = Asked::Ended(completion.result);
                    count += 1;
                }
                _ => self.keep(completion),
            }
        }
        count
    }

    /// Keeps the completion of a started operation until it is taken.
    fn keep(&mut self, completion: Completion) {
        if !self.given_up.remove(&completion.id) {
            self.ended.push_back(completion);
        }
    }

    /// Sets the time-out of further calls, for requests without one of their own; `None` stands for
    /// [`Config::timeout`].
    pub fn set_timeout(&mut self, timeout: Option<Duration>) {
        self.timeout = timeout;
    }

    /// The current server; in a rack the one that was asked first.
    pub fn server(&self) -> SocketAddr {
        self.wire.core.server()
    }

    /// The epoch of the rack's directory at hand, and the number of its nodes; `None` as long as there is none.
    pub fn rack(&self) -> Option<(u32, usize)> {
        self.wire.core.rack()
    }

    /// The number of the node of the rack that owns `key`, as the directory at hand says; `None` as long as there is none.
    pub fn owner(&self, key: impl AsRef<[u8]>) -> Option<u32> {
        self.wire.core.owner(key.as_ref())
    }

    /// The version of the weights by which nodes of the rack are drawn for reads; 0 without weights.
    pub fn weights(&self) -> u32 {
        self.wire.core.weights()
    }

    /// The counters.
    pub fn counters(&self) -> Counters {
        self.wire.core.counters()
    }

    /// Submits requests of a call while there is room, with their index as tag, and ends those that have waited for it in
    /// vain. Returns the first one without room.
    fn submit_all(
        &mut self,
        mut next: Option<Request>,
        requests: &mut impl Iterator<Item = Request>,
        asked: &mut Vec<Asked>,
        since_ns: u64,
    ) -> Option<Request> {
        let now_ns = self.wire.now_ns();
        while let Some(request) = next {
            let asked_for = match self.wire.core.submit(request.tag(asked.len() as u64), now_ns) {
                Ok(id) => Asked::Unfinished(id),
                Err(Full(request)) => match self.wire.overdue(&request, since_ns, now_ns) {
                    Some(error) => Asked::Ended(Err(error)),
                    None => return Some(request),
                },
            };
            asked.push(asked_for);
            next = requests.next();
        }
        // No other requests will join their datagrams.
        self.wire.core.flush();
        None
    }

    /// Sends pending datagrams, waits for input or a timer, and receives.
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
