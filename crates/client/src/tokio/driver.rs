//! The task behind the handles.

use std::{
    collections::{HashMap, VecDeque},
    io,
    net::SocketAddr,
    os::fd::AsFd,
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

type Ended = Result<Outcome, Error>;

pub(super) enum Order {
    One(Request, oneshot::Sender<Ended>),
    Many(Vec<Request>, oneshot::Sender<Vec<Ended>>),
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
    /// Requests taken, but not submitted because the core has no room. No order is taken meanwhile.
    backlog: VecDeque<(Request, Waiter)>,
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
        let until_next = self.wire.until_next();
        tokio::select! {
            order = self.orders.recv(), if self.backlog.is_empty() => {
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
            Order::One(request, answer) => self.backlog.push_back((request, Waiter::One(answer))),
            Order::State(answer) => {
                let core = &self.wire.core;
                answer.send((core.server(), core.counters())).ok();
            }
            Order::Many(requests, answer) if requests.is_empty() => {
                answer.send(Vec::new()).ok();
            }
            Order::Many(requests, answer) => {
                let vector = self.vector_next;
                self.vector_next += 1;
                let left = requests.len();
                let results = std::iter::repeat_with(|| None).take(left).collect();
                self.vectors.insert(vector, Vector { results, left, answer });
                let parts = requests.into_iter().zip(0..);
                let parts = parts.map(|(request, index)| (request, Waiter::Part { vector, index }));
                self.backlog.extend(parts);
            }
        }
    }

    fn submit(&mut self) {
        let wire = &mut self.wire;
        let now_ns = wire.now_ns();
        while let Some((request, waiter)) = self.backlog.pop_front() {
            match wire.core.submit(request, now_ns) {
                Ok(id) => {
                    self.waiters.insert(id, waiter);
                }
                Err(Full(request)) => return self.backlog.push_front((request, waiter)),
            }
        }
    }

    fn complete(&mut self) {
        while let Some(Completion { id, result, .. }) = self.wire.core.poll_completion() {
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
        let backlog = std::mem::take(&mut self.backlog).into_iter().map(|(_, waiter)| waiter);
        for waiter in submitted.chain(backlog) {
            self.answer(waiter, Err(error.clone()));
        }
    }
}
