//! The loop of one driver thread.

use std::{
    io,
    sync::atomic::{AtomicU64, Ordering},
};

use rustix::event::epoll::EventFlags;

use super::{
    clock::RunClock,
    connection::{Awaited, Connection, InFlight},
    recorder::{ErrorKind, Recorder},
    schedule::{Feed, NO_EVENTS, Schedule, Timing},
};
use crate::{Class, Op, OpKind, model::Dataset};

/// Requests sent before replies are looked at again, when the driver is behind.
pub(super) const SENDS_PER_TURN_MAX: usize = 16;

/// Most bytes received in one call: 256 KiB are dropped in a few microseconds, and due requests wait
/// no longer for a large value.
const ROOM_BYTES: usize = 256 * 1024;

/// Bytes on a connection from which on no further request joins a closed-loop batch.
const BATCH_BYTES_MAX: u64 = 1 << 20;

/// One driver thread's state.
pub(super) struct DriverThread<'a> {
    schedule: Schedule<'a>,
    dataset: &'a Dataset,
    connections: Vec<Connection<'a>>,
    recorder: Recorder,
    room: Box<[u8]>,
    items: Vec<u64>,
}

impl<'a> DriverThread<'a> {
    pub(super) fn new(
        schedule: Schedule<'a>,
        dataset: &'a Dataset,
        connections: Vec<Connection<'a>>,
        recorder: Recorder,
    ) -> io::Result<Self> {
        for (number, connection) in connections.iter().enumerate() {
            if let Some(socket) = connection.socket() {
                schedule.watch(socket, number)?;
            }
        }
        let (room, items) = (vec![0; ROOM_BYTES].into_boxed_slice(), Vec::new());
        Ok(Self { schedule, dataset, connections, recorder, room, items })
    }

    /// Drives until time is up and returns the measurements. Adds answers to `progress`.
    pub(super) fn drive(mut self, clock: RunClock, progress: &AtomicU64) -> io::Result<Recorder> {
        self.schedule.begin(clock);
        let mut counted = 0;
        loop {
            match self.schedule.orders.timing {
                Timing::Open => self.send_due(),
                Timing::Closed { batch } => self.send_batches(batch),
            }
            self.receive_ready()?;
            let now_ns = self.schedule.clock.now_ns();
            self.schedule.end_turn(now_ns, &mut self.recorder);
            if !self.schedule.chores_are_due(now_ns) {
                continue;
            }
            self.schedule.clock.renew_offset();
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
        let mut since_ns = None;
        for _ in 0..SENDS_PER_TURN_MAX {
            let now_ns = self.schedule.clock.now_ns();
            let Some((feed, intended_ns)) = self.schedule.next_due() else { break };
            if intended_ns > now_ns || intended_ns >= self.schedule.orders.end_ns {
                break;
            }
            let Some(op) = self.schedule.feeds[feed].source.take() else { break };
            since_ns.get_or_insert(now_ns);
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
        if let Some(since_ns) = since_ns {
            self.schedule.sent(since_ns, &mut self.recorder);
        }
    }

    /// An open connection of the feed.
    fn choose_connection(&mut self, feed: usize) -> Option<usize> {
        let Feed { source, connections } = &mut self.schedule.feeds[feed];
        let count = connections.len();
        let first = source.choose(count);
        let mut candidates = (0..count).map(|step| connections[(first + step) % count]);
        candidates.find(|&number| self.connections[number].socket().is_some())
    }

    /// Sends the next batch on every connection without requests in flight.
    fn send_batches(&mut self, batch: usize) {
        let now_ns = self.schedule.clock.now_ns();
        if now_ns >= self.schedule.orders.end_ns {
            return;
        }
        let mut has_sent = false;
        for feed in 0..self.schedule.feeds.len() {
            for index in 0..self.schedule.feeds[feed].connections.len() {
                let number = self.schedule.feeds[feed].connections[index];
                let connection = &self.connections[number];
                if connection.socket().is_some() && connection.in_flight().len() == 0 {
                    self.send_batch(feed, number, batch, now_ns);
                    has_sent = true;
                }
            }
        }
        if has_sent {
            self.schedule.sent(now_ns, &mut self.recorder);
        }
    }

    fn send_batch(&mut self, feed: usize, number: usize, batch: usize, now_ns: u64) {
        for _ in 0..batch {
            if self.connections[number].unsent_bytes() >= BATCH_BYTES_MAX {
                break;
            }
            let Some(op) = self.schedule.feeds[feed].source.take() else { break };
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
        let class = self.dataset.class_of(&op);
        let flight = InFlight { awaited, class, intended_ns, item: op.item, keys: 1 };
        match op.kind {
            OpKind::Get if self.schedule.orders.keys_per_get > 1 => {
                let source = &mut self.schedule.feeds[feed].source;
                self.items.clear();
                self.items.push(op.item);
                self.items.extend((1..self.schedule.orders.keys_per_get).map(|_| source.companion(op.item)));
                let is_large = self.items.iter().any(|&item| self.dataset.class(item) == Class::Large);
                let class = if is_large { Class::Large } else { Class::Small };
                connection.compose_get(
                    InFlight { class, keys: self.schedule.orders.keys_per_get, ..flight },
                    &self.items,
                );
            }
            OpKind::Get | OpKind::ReadModifyWrite => connection.compose_get(flight, &[op.item]),
            OpKind::Set | OpKind::Insert => match self.dataset.body_of(&op) {
                Ok(body) => connection.compose_set(flight, body),
                Err(_) => self.recorder.failed(ErrorKind::File, intended_ns),
            },
        }
    }

    /// Sends as much as the socket takes, and watches it for room if some is left.
    fn flush(&mut self, number: usize) {
        let connection = &mut self.connections[number];
        let was_blocked = connection.is_blocked;
        connection.flush(&mut self.recorder);
        self.watch(number, was_blocked);
    }

    /// Watches the socket for room to send while the connection is blocked.
    fn watch(&self, number: usize, was_blocked: bool) {
        let connection = &self.connections[number];
        let Some(socket) = connection.socket() else { return };
        if connection.is_blocked != was_blocked {
            self.schedule.watch_room(socket, number, connection.is_blocked);
        }
    }

    fn receive_ready(&mut self) -> io::Result<()> {
        let mut events = NO_EVENTS;
        for event in self.schedule.ready(&mut events)? {
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
        let bytes = connection.receive(&mut self.room, &self.schedule.clock, &mut self.recorder);
        let source = &mut self.schedule.feeds[connection.stream].source;
        connection.inserts_answered.drain(..).for_each(|item| source.insert_answered(item));
        self.watch(number, was_blocked);
        if bytes > 0 {
            self.schedule.heard();
        }
        // Part of a large value: requests may have come due meanwhile.
        if bytes >= ROOM_BYTES / 8 && self.schedule.orders.timing == Timing::Open {
            self.send_due();
        }
    }

    /// Time is up, or there is nothing left to send and to wait for.
    fn is_over(&self, now_ns: u64) -> bool {
        if self.schedule.is_time_up(now_ns) {
            return true;
        }
        let is_waiting = self.connections.iter().any(|connection| connection.in_flight().len() > 0);
        if is_waiting {
            return false;
        }
        let is_open = self.connections.iter().any(|connection| connection.socket().is_some());
        !(is_open && self.schedule.has_more(now_ns))
    }

    /// Counts requests without an answer, and requests that were due and not sent, as lost.
    fn count_lost(&mut self) {
        for connection in &self.connections {
            connection.in_flight().for_each(|flight| self.recorder.lost(flight.intended_ns));
        }
        self.schedule.count_unsent(&mut self.recorder);
    }
}
