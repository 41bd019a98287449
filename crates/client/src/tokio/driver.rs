//! The task behind the handles.

use std::{
    collections::{HashMap, VecDeque},
    io,
    net::SocketAddr,
    os::fd::AsFd,
    time::{Duration, Instant},
};

use tokio::{
    io::Interest,
    net::UdpSocket,
    sync::{mpsc, oneshot},
    time::sleep,
};

use crate::{
    Error, Outcome, Request,
    core::{Completion, Counters, Full, OpId},
    wire::Wire,
};

/// Most orders that are taken before something is sent.
const ORDERS_AT_ONCE_MAX: usize = 64;
/// Requests that wait for room, from which on no order is taken.
const BACKLOG_MAX: usize = 1024;

type Ended = Result<Outcome, Error>;

/// What a handle asks for, and since when.
pub(super) enum Order {
    One(Request, Instant, oneshot::Sender<Ended>),
    Many(Vec<Request>, Instant, oneshot::Sender<Vec<Ended>>),
    /// Asks for the current server and the counters.
    State(oneshot::Sender<(SocketAddr, Counters)>),
}

/// The receiver of an operation's result. A receiver that was dropped is ignored.
enum Waiter {
    One(oneshot::Sender<Ended>),
    /// The operation at `index` of a vector.
    Part {
        vector: u64,
        index: usize,
    },
}

/// A vector with unfinished operations.
struct Vector {
    results: Vec<Option<Ended>>,
    left: usize,
    answer: oneshot::Sender<Vec<Ended>>,
}

/// Drives a core until no handle is left.
pub(super) struct Driver {
    wire: Wire,
    /// A duplicate of the wire's socket: the runtime watches it for input.
    readiness: UdpSocket,
    orders: mpsc::Receiver<Order>,
    /// Requests taken, but not submitted because the core has no room, and since when they wait.
    backlog: VecDeque<(Request, u64, Waiter)>,
    /// The shortest time-out of those.
    patience: Duration,
    waiters: HashMap<OpId, Waiter>,
    vectors: HashMap<u64, Vector>,
    vector_next: u64,
}

impl Driver {
    pub(super) fn new(wire: Wire, orders: mpsc::Receiver<Order>) -> io::Result<Self> {
        let socket = std::net::UdpSocket::from(wire.as_fd().try_clone_to_owned()?);
        Ok(Self {
            wire,
            readiness: UdpSocket::from_std(socket)?,
            orders,
            backlog: VecDeque::new(),
            patience: Duration::MAX,
            waiters: HashMap::new(),
            vectors: HashMap::new(),
            vector_next: 0,
        })
    }

    /// Runs until the last handle is dropped or the socket fails.
    pub(super) async fn run(mut self) {
        loop {
            self.submit();
            self.wire.flush();
            self.complete();
            if !self.backlog.is_empty() && self.wire.core.room() > 0 {
                continue;
            }
            match self.wait().await {
                Ok(true) => self.complete(),
                Ok(false) => return,
                Err(error) => return self.fail(&error),
            }
        }
    }

    /// Waits for an order, input or a timer. Returns false if no handle is left.
    async fn wait(&mut self) -> Result<bool, Error> {
        let patience = (!self.backlog.is_empty()).then_some(self.patience);
        let until_next = self.wire.until_next().into_iter().chain(patience).min();
        tokio::select! {
            order = self.orders.recv(), if self.backlog.len() < BACKLOG_MAX => {
                let Some(order) = order else { return Ok(false) };
                self.take(order);
                for _ in 1..ORDERS_AT_ONCE_MAX {
                    let Ok(order) = self.orders.try_recv() else { break };
                    self.take(order);
                }
            }
            ready = self.readiness.readable() => {
                ready?;
                self.receive()?;
            }
            () = sleep(until_next.unwrap_or_default()), if until_next.is_some() => {}
        }
        Ok(true)
    }

    /// Receives all datagrams that have arrived.
    fn receive(&mut self) -> Result<(), Error> {
        let Self { wire, readiness, .. } = self;
        let mut result = Ok(());
        let emptied = readiness.try_io(Interest::READABLE, || -> io::Result<()> {
            result = wire.drain().map(drop);
            // The socket is empty: makes the runtime report the next input.
            Err(io::ErrorKind::WouldBlock.into())
        });
        debug_assert!(emptied.is_err());
        result
    }

    fn take(&mut self, order: Order) {
        match order {
            Order::One(request, since, answer) => self.wait_for_room(request, since, Waiter::One(answer)),
            Order::State(answer) => {
                let core = &self.wire.core;
                answer.send((core.server(), core.counters())).ok();
            }
            Order::Many(requests, _, answer) if requests.is_empty() => {
                answer.send(Vec::new()).ok();
            }
            Order::Many(requests, since, answer) => {
                let vector = self.vector_next;
                self.vector_next += 1;
                let left = requests.len();
                let results = std::iter::repeat_with(|| None).take(left).collect();
                self.vectors.insert(vector, Vector { results, left, answer });
                for (request, index) in requests.into_iter().zip(0..) {
                    self.wait_for_room(request, since, Waiter::Part { vector, index });
                }
            }
        }
    }

    fn wait_for_room(&mut self, request: Request, since: Instant, waiter: Waiter) {
        let timeout = self.wire.timeout_of(&request);
        // The core names a time-out of zero.
        self.patience = if timeout.is_zero() { self.patience } else { self.patience.min(timeout) };
        self.backlog.push_back((request, self.wire.ns_of(since), waiter));
    }

    fn submit(&mut self) {
        let now_ns = self.wire.now_ns();
        while let Some((request, since_ns, waiter)) = self.backlog.pop_front() {
            match self.wire.core.submit(request, now_ns) {
                Ok(id) => drop(self.waiters.insert(id, waiter)),
                Err(Full(request)) => {
                    self.backlog.push_front((request, since_ns, waiter));
                    return self.end_overdue(now_ns);
                }
            }
        }
        self.patience = Duration::MAX;
    }

    /// Ends the requests that have waited for room in vain. As long as there are answers, none has.
    fn end_overdue(&mut self, now_ns: u64) {
        if self.wire.silence(now_ns) < self.patience {
            return;
        }
        for (request, since_ns, waiter) in std::mem::take(&mut self.backlog) {
            match self.wire.overdue(&request, since_ns, now_ns) {
                Some(error) => self.answer(waiter, Err(error)),
                None => self.backlog.push_back((request, since_ns, waiter)),
            }
        }
    }

    fn complete(&mut self) {
        while let Some(Completion { id, result, .. }) = self.wire.poll_completion() {
            if let Some(waiter) = self.waiters.remove(&id) {
                self.answer(waiter, result);
            }
        }
    }

    fn answer(&mut self, waiter: Waiter, result: Ended) {
        let (vector, index) = match waiter {
            Waiter::One(answer) => return drop(answer.send(result)),
            Waiter::Part { vector, index } => (vector, index),
        };
        let Some(found) = self.vectors.get_mut(&vector) else { return };
        found.results[index] = Some(result);
        found.left -= 1;
        if found.left == 0
            && let Some(whole) = self.vectors.remove(&vector)
        {
            let results = whole.results.into_iter().flatten().collect();
            whole.answer.send(results).ok();
        }
    }

    /// The socket has failed: ends all operations.
    fn fail(mut self, error: &Error) {
        let submitted = std::mem::take(&mut self.waiters).into_values();
        let backlog = std::mem::take(&mut self.backlog).into_iter().map(|(.., waiter)| waiter);
        for waiter in submitted.chain(backlog) {
            self.answer(waiter, Err(error.clone()));
        }
    }
}
