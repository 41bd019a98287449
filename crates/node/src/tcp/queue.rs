//! An RX queue: the connections dealt to one worker, and the lock that lets others poll them.

use std::{
    collections::VecDeque,
    os::fd::{AsFd, OwnedFd},
    sync::atomic::{AtomicBool, Ordering},
};

use minos_base::limits::BURST_MAX;
use minos_net::{Interest, Io, Poller, Ready, Token, Wait};
use minos_sync::{Ring, SpinLock};
use parking_lot::Mutex;

use super::{connection::Connection, session::Session};
use crate::tracking::Seat;

/// Requests of one connection served in one visit, so that a pipelining client does not delay the others.
pub(crate) const VISIT_REQUESTS_MAX: usize = 4 * BURST_MAX;

/// Queue i, owned by worker i (Minos §3.1).
///
/// The owner's lock is uncontended; when the owner is a large worker, the small ones try it in turn. Other
/// threads push into `arrivals`, which takes no lock.
pub(crate) struct RxQueue<I: Io> {
    pub(crate) state: SpinLock<QueueState<I>>,
    pub(crate) arrivals: Ring<Arrival>,
    /// Connections that have something to send, which no event reports.
    pub(crate) calls: Calls,
    /// Readable while the poller has events; workers that poll the queue sleep on it.
    pub(crate) descriptor: OwnedFd,
    /// True if `state` holds work that `descriptor` does not report.
    left_over: AtomicBool,
}

/// A connection that another thread sends to a queue.
pub(crate) enum Arrival {
    /// A connection that was just accepted.
    New(Box<Connection>),
    /// A connection that a worker has served.
    Back {
        connection: Box<Connection>,
        /// True if it has more to do, after the queue's other connections.
        has_more: bool,
    },
    /// A connection to be closed.
    Ended(Box<Connection>),
}

/// The state that the queue's lock guards.
pub(crate) struct QueueState<I: Io> {
    pub(crate) poller: I::Poller,
    pub(crate) connections: Slab,
    /// Connections that just came back or have more to do than one visit allows. Each is listed once.
    pub(crate) backlog: VecDeque<Token>,
    pub(crate) ready: Vec<Ready>,
}

impl<I: Io> RxQueue<I> {
    /// An empty queue of a server with at most `connections_max` connections, which `poller` watches.
    pub(crate) fn open(poller: I::Poller, connections_max: usize) -> std::io::Result<Self> {
        let descriptor = poller.descriptor().try_clone_to_owned()?;
        let state =
            QueueState { poller, connections: Slab::default(), backlog: VecDeque::new(), ready: Vec::new() };
        // Each connection has at most one arrival in flight, so a push never finds the ring full.
        let arrivals = Ring::new((connections_max + 1).next_power_of_two());
        Ok(Self {
            state: SpinLock::new(state),
            arrivals,
            calls: Calls::default(),
            descriptor,
            left_over: AtomicBool::new(false),
        })
    }

    /// True if there is work that `descriptor` does not report.
    pub(crate) fn has_silent_work(&self) -> bool {
        // Relaxed: a worker passes a fence before it sleeps or wakes another.
        self.left_over.load(Ordering::Relaxed) || !self.arrivals.is_empty() || self.calls.are_there()
    }

    /// Notes whether `state` still holds work; called before the lock is released.
    pub(crate) fn note_left_over(&self, state: &mut QueueState<I>) {
        let left_over = !state.backlog.is_empty();
        // The usual case does not write, so that the line stays in other workers' caches.
        if self.left_over.load(Ordering::Relaxed) != left_over {
            self.left_over.store(left_over, Ordering::Relaxed);
        }
    }
}

/// Connections to be visited because of what others do. Each is listed once, and again for each time that it was emptied
/// before the queue was polled.
#[derive(Default)]
pub(crate) struct Calls {
    are_there: AtomicBool,
    called: Mutex<Called>,
}

/// The connections that are called.
#[derive(Default)]
struct Called {
    tokens: Vec<Token>,
    /// Those too that have waited for the end of CLIENT PAUSE.
    are_paused: bool,
}

impl Calls {
    /// Lets the connection of `token` be visited.
    pub(crate) fn put(&self, token: Token) {
        let mut called = self.called.lock();
        called.tokens.push(token);
        self.are_there.store(true, Ordering::Relaxed);
    }

    /// Lets the connections be visited that have waited for the end of CLIENT PAUSE.
    pub(crate) fn put_paused(&self) {
        let mut called = self.called.lock();
        called.are_paused = true;
        self.are_there.store(true, Ordering::Relaxed);
    }

    #[inline]
    fn are_there(&self) -> bool {
        // Relaxed: whoever puts one wakes a worker, which passes a fence.
        self.are_there.load(Ordering::Relaxed)
    }

    fn take(&self) -> Called {
        let mut called = self.called.lock();
        self.are_there.store(false, Ordering::Relaxed);
        std::mem::take(&mut called)
    }
}

impl<I: Io> QueueState<I> {
    /// Puts the connections that are called into the backlog.
    pub(crate) fn answer(&mut self, calls: &Calls) {
        if calls.are_there() {
            let called = calls.take();
            called.tokens.into_iter().for_each(|token| self.visit_again(token));
            if called.are_paused {
                let paused: Vec<_> = self.connections.paused().collect();
                paused.into_iter().for_each(|token| self.visit_again(token));
            }
        }
    }

    /// Takes in at most `max` arrivals; true if there were any.
    pub(crate) fn admit(&mut self, arrivals: &Ring<Arrival>, max: usize) -> bool {
        for admitted in 0..max {
            match arrivals.pop() {
                None => return admitted > 0,
                Some(arrival) => self.take_in(arrival),
            }
        }
        true
    }

    pub(crate) fn take_in(&mut self, arrival: Arrival) {
        match arrival {
            Arrival::New(connection) => self.add(connection),
            Arrival::Back { connection, has_more } => {
                let token = connection.token;
                let has_missed = self.connections.take_back(connection);
                self.watch_as_needed(token);
                if has_more || has_missed {
                    self.visit_again(token);
                }
            }
            Arrival::Ended(connection) => {
                self.poller.remove(connection.token, connection.stream.as_fd());
                self.connections.remove(connection.token);
            }
        }
    }

    /// Fills `ready` with at most `max` connections that have something to do: first the backlog, then those
    /// that the poller reports.
    pub(crate) fn gather(&mut self, max: usize) -> std::io::Result<()> {
        self.ready.clear();
        // The backlog gets at most half of a burst, so that neither side starves the other.
        let left_over = self.backlog.len().min(max.div_ceil(2));
        // With datagrams only, the poller is not worth a system call.
        if left_over < max && !self.connections.is_empty() {
            self.poller.poll(&mut self.ready, max - left_over, Wait::No)?;
        }
        for token in self.backlog.drain(..left_over) {
            self.connections.mark_left_over(token, false);
            if !self.ready.iter().any(|ready| ready.token == token) {
                // The end of the stream may have been reported in an earlier visit, or while the connection
                // was away.
                self.ready.push(Ready { token, readable: true, writable: true, hangup: true });
            }
        }
        Ok(())
    }

    /// Takes back a connection for which there was no room in a ring.
    pub(crate) fn take_back(&mut self, connection: Box<Connection>) {
        let token = connection.token;
        self.connections.take_back(connection);
        self.visit_again(token);
    }

    /// Watches the socket of a connection for room to send exactly while it has replies left.
    fn watch_as_needed(&mut self, token: Token) {
        let Some(connection) = self.connections.here(token) else { return };
        let is_blocked = !connection.output.is_empty();
        if connection.watches_writable == is_blocked {
            return;
        }
        connection.watches_writable = is_blocked;
        let interest = if is_blocked { Interest::ReadWrite } else { Interest::Read };
        if self.poller.change(token, connection.stream.as_fd(), interest).is_err() {
            self.close(token);
        }
    }

    /// Puts a connection into the backlog, so that it is visited again even without an event.
    fn visit_again(&mut self, token: Token) {
        if self.connections.mark_left_over(token, true) {
            self.backlog.push_back(token);
        }
    }

    /// Closes a connection that is here.
    pub(crate) fn close(&mut self, token: Token) {
        if let Some(connection) = self.connections.remove(token) {
            self.poller.remove(token, connection.stream.as_fd());
        }
    }

    /// Adds a new connection; one that cannot be watched is closed.
    fn add(&mut self, connection: Box<Connection>) {
        let connection = self.connections.insert(connection);
        let token = connection.token;
        match &mut connection.session {
            Session::Resp(_) => connection.registration.seat(token),
            Session::Memcache(session) if session.awaits_hello || session.is_peer => {
                session.seat = Some(Seat { queue: connection.home, token });
            }
            Session::Memcache(_) => {}
        }
        let has_received = connection.stream.has_received();
        if let Err(error) = self.poller.add(token, connection.stream.as_fd(), Interest::Read) {
            tracing::warn!(%error, "cannot watch a new connection; it is closed");
            self.connections.remove(token);
        } else if has_received {
            self.visit_again(token);
        }
    }
}

/// Connections by token. A token is an index and a generation, so that a late event matches no connection
/// instead of the wrong one.
#[derive(Default)]
pub(crate) struct Slab {
    slots: Vec<Slot>,
    free: Vec<u32>,
}

struct Slot {
    generation: u32,
    state: State,
    /// True if it is in the backlog of its queue.
    is_left_over: bool,
    /// True if the poller reported an event while it was away.
    has_missed: bool,
}

enum State {
    Free,
    Here(Box<Connection>),
    /// Handed to another worker.
    Away,
}

impl Slab {
    /// Adds a connection and gives it a token.
    pub(crate) fn insert(&mut self, mut connection: Box<Connection>) -> &mut Connection {
        let index = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Slot {
                generation: 0,
                state: State::Free,
                is_left_over: false,
                has_missed: false,
            });
            (self.slots.len() - 1) as u32
        });
        let slot = &mut self.slots[index as usize];
        connection.token = Token(u64::from(slot.generation) << 32 | u64::from(index));
        slot.state = State::Here(connection);
        match &mut slot.state {
            State::Here(connection) => connection,
            State::Free | State::Away => unreachable!("it was put here one line above"),
        }
    }

    /// True if there are no connections, here or away.
    pub(crate) fn is_empty(&self) -> bool {
        self.free.len() == self.slots.len()
    }

    /// The connection of `token`, unless it is closed or away.
    pub(crate) fn here(&mut self, token: Token) -> Option<&mut Connection> {
        match &mut self.slot(token)?.state {
            State::Here(connection) => Some(connection),
            State::Free | State::Away => None,
        }
    }

    /// Takes out a connection for a worker; its token stays valid. One that is away has missed an event.
    pub(crate) fn lend(&mut self, token: Token) -> Option<Box<Connection>> {
        let slot = self.slot(token)?;
        match std::mem::replace(&mut slot.state, State::Away) {
            State::Here(connection) => Some(connection),
            State::Free | State::Away => {
                slot.has_missed = true;
                None
            }
        }
    }

    /// Puts a lent connection back; true if an event was missed meanwhile.
    pub(crate) fn take_back(&mut self, connection: Box<Connection>) -> bool {
        let Some(slot) = self.slot(connection.token) else { return false };
        debug_assert!(matches!(slot.state, State::Away));
        slot.state = State::Here(connection);
        std::mem::take(&mut slot.has_missed)
    }

    /// Frees a token, whether its connection is here or away, and returns the connection if it is here.
    pub(crate) fn remove(&mut self, token: Token) -> Option<Box<Connection>> {
        let slot = self.slot(token)?;
        slot.generation = slot.generation.wrapping_add(1);
        (slot.is_left_over, slot.has_missed) = (false, false);
        let state = std::mem::replace(&mut slot.state, State::Free);
        self.free.push(token.0 as u32);
        match state {
            State::Here(connection) => Some(connection),
            State::Free | State::Away => None,
        }
    }

    /// Notes whether a connection, here or away, is in the backlog; true if that changed.
    pub(crate) fn mark_left_over(&mut self, token: Token, is_left_over: bool) -> bool {
        self.slot(token)
            .is_some_and(|slot| std::mem::replace(&mut slot.is_left_over, is_left_over) != is_left_over)
    }

    pub(crate) fn all_here(&self) -> impl Iterator<Item = &Connection> {
        self.slots.iter().filter_map(|slot| match &slot.state {
            State::Here(connection) => Some(&**connection),
            State::Free | State::Away => None,
        })
    }

    /// Those that wait for the end of CLIENT PAUSE, and those away, which may.
    fn paused(&self) -> impl Iterator<Item = Token> {
        self.slots.iter().enumerate().filter_map(|(index, slot)| {
            let is_paused = match &slot.state {
                State::Free => false,
                State::Here(connection) => connection.session.is_paused(),
                State::Away => true,
            };
            is_paused.then(|| Token(u64::from(slot.generation) << 32 | index as u64))
        })
    }

    fn slot(&mut self, token: Token) -> Option<&mut Slot> {
        let slot = self.slots.get_mut(token.0 as u32 as usize)?;
        (slot.generation == (token.0 >> 32) as u32 && !matches!(slot.state, State::Free)).then_some(slot)
    }
}
