//! The loop of one driver thread.

use std::{
    io,
    mem::MaybeUninit,
    os::fd::{AsFd, OwnedFd},
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use minos_net::{Wait, wait_readable};
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};

use super::{
    clock::RunClock,
    connection::{Awaited, Connection, InFlight},
    recorder::{ErrorKind, Recorder},
};
use crate::{
    Class, Op, OpKind,
    model::{Dataset, OpSource},
};

/// Requests sent before replies are looked at again, when the driver is behind.
pub(super) const SENDS_PER_TURN_MAX: usize = 16;

/// Events taken from the kernel at once.
pub(super) const EVENTS_MAX: usize = 64;

/// Most bytes received in one call: 256 KiB are dropped in a few microseconds, and due requests wait
/// no longer for a large value.
const ROOM_BYTES: usize = 256 * 1024;

/// Bytes on a connection from which on no further request joins a closed-loop batch.
const BATCH_BYTES_MAX: u64 = 1 << 20;

/// In closed loop, how long a server may answer nothing at all.
pub(super) const SILENCE_NS_MAX: u64 = 30_000_000_000;

/// Time between two looks at whether the run is over, and two comparisons of the clocks.
pub(super) const CHORES_INTERVAL_NS: u64 = 2_000_000;

/// How long a sleeping driver sleeps at most.
pub(super) const SLEEP_MAX: Duration = Duration::from_millis(10);

/// How requests are timed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Timing {
    /// When they are meant to be sent.
    Open,
    /// So many at once on each connection, as soon as the last ones are answered.
    Closed { batch: usize },
}

/// What a thread is told.
#[derive(Clone, Copy, Debug)]
pub(super) struct Orders {
    pub(super) timing: Timing,
    /// Whether to spin instead of sleeping.
    pub(super) is_spinning: bool,
    /// Keys of a GET; operations of a vector.
    pub(super) keys_per_get: u32,
    /// No request is meant to be sent after this, in nanoseconds since the start.
    pub(super) end_ns: u64,
    /// No answer is waited for after this.
    pub(super) drain_end_ns: u64,
    /// How often a datagram that is not answered is sent again.
    pub(super) repeats: u32,
}

/// A stream's requests and the connections or sockets they go to.
pub(super) struct Feed<'a> {
    pub(super) source: OpSource<'a>,
    pub(super) connections: Vec<usize>,
}

/// One driver thread's state.
pub(super) struct DriverThread<'a> {
    orders: Orders,
    dataset: &'a Dataset,
    clock: RunClock,
    epoll: OwnedFd,
    feeds: Vec<Feed<'a>>,
    connections: Vec<Connection<'a>>,
    recorder: Recorder,
    room: Box<[u8]>,
    items: Vec<u64>,
    /// When to look next at what need not be looked at in every turn.
    chores_due_ns: u64,
    heard_ns: u64,
}

impl<'a> DriverThread<'a> {
    pub(super) fn new(
        orders: Orders,
        dataset: &'a Dataset,
        clock: RunClock,
        feeds: Vec<Feed<'a>>,
        connections: Vec<Connection<'a>>,
        recorder: Recorder,
    ) -> io::Result<Self> {
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        for (number, connection) in connections.iter().enumerate() {
            if let Some(socket) = connection.socket() {
                epoll::add(&epoll, socket, EventData::new_u64(number as u64), EventFlags::IN)?;
            }
        }
        Ok(Self {
            orders,
            dataset,
            clock,
            epoll,
            feeds,
            connections,
            recorder,
            room: vec![0; ROOM_BYTES].into_boxed_slice(),
            items: Vec::new(),
            chores_due_ns: 0,
            heard_ns: 0,
        })
    }

    /// Drives until time is up and returns what was measured. `progress` is told of answers.
    pub(super) fn drive(mut self, progress: &AtomicU64) -> io::Result<Recorder> {
        while self.clock.now_ns() == 0 {
            std::hint::spin_loop();
        }
        let mut counted = 0;
        loop {
            match self.orders.timing {
                Timing::Open => self.send_due(),
                Timing::Closed { batch } => self.send_batches(batch),
            }
            self.receive_ready()?;
            let now_ns = self.clock.now_ns();
            if now_ns < self.chores_due_ns {
                continue;
            }
            self.chores_due_ns = now_ns + CHORES_INTERVAL_NS;
            self.clock.renew_offset();
            let answered = self.recorder.completed_in_window;
            progress.fetch_add(answered - counted, Ordering::Relaxed);
            counted = answered;
            if self.is_over(now_ns) {
                self.count_lost();
                return Ok(self.recorder);
            }
        }
    }

    /// Sends requests whose time has come.
    fn send_due(&mut self) {
        for _ in 0..SENDS_PER_TURN_MAX {
            let now_ns = self.clock.now_ns();
            let Some((feed, intended_ns)) = self.next_due() else { return };
            if intended_ns > now_ns || intended_ns >= self.orders.end_ns {
                return;
            }
            let Some(op) = self.feeds[feed].source.take() else { return };
            let Some(number) = self.choose_connection(feed) else {
                self.recorder.failed(ErrorKind::Closed, intended_ns);
                continue;
            };
            if self.connections[number].is_full() {
                self.recorder.lost(intended_ns);
                continue;
            }
            self.compose(feed, number, op, intended_ns);
            self.recorder.sent(intended_ns, now_ns);
            self.flush(number);
        }
    }

    /// The stream whose next request comes first, and when.
    fn next_due(&self) -> Option<(usize, u64)> {
        let nexts = self.feeds.iter().enumerate();
        nexts.filter_map(|(feed, state)| Some((feed, state.source.next_ns()?))).min_by_key(|next| next.1)
    }

    /// An open connection of the feed.
    fn choose_connection(&mut self, feed: usize) -> Option<usize> {
        let Feed { source, connections } = &mut self.feeds[feed];
        let count = connections.len();
        let first = source.choose(count);
        let mut candidates = (0..count).map(|step| connections[(first + step) % count]);
        candidates.find(|&number| self.connections[number].socket().is_some())
    }

    /// Gives every connection that waits for nothing its next batch.
    fn send_batches(&mut self, batch: usize) {
        let now_ns = self.clock.now_ns();
        if now_ns >= self.orders.end_ns {
            return;
        }
        for feed in 0..self.feeds.len() {
            for index in 0..self.feeds[feed].connections.len() {
                let number = self.feeds[feed].connections[index];
                let connection = &self.connections[number];
                if connection.socket().is_some() && connection.in_flight().len() == 0 {
                    self.send_batch(feed, number, batch, now_ns);
                }
            }
        }
    }

    fn send_batch(&mut self, feed: usize, number: usize, batch: usize, now_ns: u64) {
        for _ in 0..batch {
            if self.connections[number].unsent_bytes() >= BATCH_BYTES_MAX {
                break;
            }
            let Some(op) = self.feeds[feed].source.take() else { break };
            self.compose(feed, number, op, now_ns);
        }
        self.flush(number);
    }

    fn compose(&mut self, feed: usize, number: usize, op: Op, intended_ns: u64) {
        let connection = &mut self.connections[number];
        let awaited = match op.kind {
            OpKind::Get => Awaited::Values,
            OpKind::Set => Awaited::Stored,
            OpKind::Insert => Awaited::Inserted,
            OpKind::ReadModifyWrite => Awaited::ValuesToChange,
        };
        let class = match op.value_bytes {
            Some(value_bytes) => self.dataset.class_of_bytes(value_bytes),
            None => self.dataset.class(op.item),
        };
        let flight = InFlight { awaited, class, intended_ns, item: op.item, keys: 1 };
        match op.kind {
            OpKind::Get if self.orders.keys_per_get > 1 => {
                let source = &mut self.feeds[feed].source;
                self.items.clear();
                self.items.push(op.item);
                self.items.extend((1..self.orders.keys_per_get).map(|_| source.companion(op.item)));
                let is_large = self.items.iter().any(|&item| self.dataset.class(item) == Class::Large);
                let class = if is_large { Class::Large } else { Class::Small };
                connection
                    .compose_get(InFlight { class, keys: self.orders.keys_per_get, ..flight }, &self.items);
            }
            OpKind::Get | OpKind::ReadModifyWrite => connection.compose_get(flight, &[op.item]),
            OpKind::Set | OpKind::Insert => {
                let body = match op.value_bytes {
                    Some(value_bytes) => Ok(self.dataset.body_of_bytes(op.item, value_bytes)),
                    None => self.dataset.body(op.item),
                };
                match body {
                    Ok(body) => connection.compose_set(flight, body),
                    Err(_) => self.recorder.failed(ErrorKind::File, intended_ns),
                }
            }
        }
    }

    /// Sends what the socket takes, and asks to be told when it takes more.
    fn flush(&mut self, number: usize) {
        let connection = &mut self.connections[number];
        let was_blocked = connection.is_blocked;
        connection.flush(&mut self.recorder);
        self.watch(number, was_blocked);
    }

    /// Brings what is watched in line with whether the connection is blocked.
    fn watch(&self, number: usize, was_blocked: bool) {
        let connection = &self.connections[number];
        let Some(socket) = connection.socket() else { return };
        if connection.is_blocked != was_blocked {
            let flags = if connection.is_blocked { EventFlags::IN | EventFlags::OUT } else { EventFlags::IN };
            // It cannot fail for an open socket that is in the set.
            let _ = epoll::modify(&self.epoll, socket, EventData::new_u64(number as u64), flags);
        }
    }

    fn receive_ready(&mut self) -> io::Result<()> {
        self.sleep()?;
        let mut events = [MaybeUninit::<Event>::uninit(); EVENTS_MAX];
        let zero = rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 };
        let events = match epoll::wait(&self.epoll, &mut events[..], Some(&zero)) {
            Ok((events, _)) => events,
            Err(rustix::io::Errno::INTR) => return Ok(()),
            Err(error) => return Err(error.into()),
        };
        for event in &*events {
            let (flags, data) = (event.flags, event.data);
            let number = data.u64() as usize;
            if flags.contains(EventFlags::OUT) {
                self.flush(number);
            }
            if flags.intersects(EventFlags::IN | EventFlags::HUP | EventFlags::ERR) {
                self.receive(number);
            }
        }
        Ok(())
    }

    fn receive(&mut self, number: usize) {
        let connection = &mut self.connections[number];
        let was_blocked = connection.is_blocked;
        let bytes = connection.receive(&mut self.room, &self.clock, &mut self.recorder);
        let source = &mut self.feeds[connection.stream].source;
        connection.inserts_answered.drain(..).for_each(|item| source.insert_answered(item));
        self.watch(number, was_blocked);
        if bytes > 0 {
            self.heard_ns = self.clock.now_ns();
        }
        // Part of a large value: requests may have come due meanwhile.
        if bytes >= ROOM_BYTES / 8 && self.orders.timing == Timing::Open {
            self.send_due();
        }
    }

    /// Sleeps until something arrives or is due, if that is wanted.
    fn sleep(&self) -> io::Result<()> {
        if self.orders.is_spinning {
            return Ok(());
        }
        let until_due = match self.orders.timing {
            Timing::Open => self.next_due().map(|(_, due_ns)| due_ns.saturating_sub(self.clock.now_ns())),
            Timing::Closed { .. } => None,
        };
        let sleep = until_due.map_or(SLEEP_MAX, Duration::from_nanos).min(SLEEP_MAX);
        if !sleep.is_zero() {
            wait_readable(&[self.epoll.as_fd()], Wait::For(sleep))?;
        }
        Ok(())
    }

    /// Time is up, or there is nothing left to send and to wait for.
    fn is_over(&self, now_ns: u64) -> bool {
        let is_silent = self.orders.timing != Timing::Open && now_ns > self.heard_ns + SILENCE_NS_MAX;
        if now_ns >= self.orders.drain_end_ns || is_silent {
            return true;
        }
        let is_waiting = self.connections.iter().any(|connection| connection.in_flight().len() > 0);
        if is_waiting {
            return false;
        }
        let is_open = self.connections.iter().any(|connection| connection.socket().is_some());
        let has_more = match self.orders.timing {
            Timing::Open => self.next_due().is_some_and(|(_, due_ns)| due_ns < self.orders.end_ns),
            Timing::Closed { .. } => self.next_due().is_some() && now_ns < self.orders.end_ns,
        };
        !(is_open && has_more)
    }

    /// What was not answered is lost, and so is what was not even sent.
    fn count_lost(&mut self) {
        for connection in &self.connections {
            connection.in_flight().for_each(|flight| self.recorder.lost(flight.intended_ns));
        }
        if self.orders.timing != Timing::Open {
            return;
        }
        for feed in &mut self.feeds {
            while let Some(due_ns) = feed.source.next_ns().filter(|&due_ns| due_ns < self.orders.end_ns) {
                self.recorder.lost(due_ns);
                feed.source.take();
            }
        }
    }
}
