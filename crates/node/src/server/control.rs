//! The control thread: accepts connections, ends epochs, and notices a request to stop.
//!
//! In the paper core 0 aggregates the histograms (Minos §3.1). Here a separate thread does it: it sleeps
//! nearly always, and no request of worker 0 waits for it.

use std::{
    io,
    os::fd::AsFd,
    sync::Arc,
    time::{Duration, Instant},
};

use arrayvec::ArrayVec;
use minos_engine::Mode;
use minos_net::{Accepted, Io, WAIT_MAX, Wait, wait_readable};
use minos_sched::{EpochCounts, Policy};

use super::{
    config::DispatchChoice,
    mailbox::Switch,
    shared::{InForce, Shared},
};
use crate::{
    ops::flush_if_due,
    tcp::{
        connection::{Connection, Stream},
        queue::Arrival,
        registry::Entry,
        session::StreamListener,
    },
};

/// Listening sockets one server may have.
pub const LISTENERS_MAX: usize = 16;
/// Longest sleep, so that a stop that no signal announced is noticed.
const SLEEP_MAX: Duration = Duration::from_millis(200);
/// Connections accepted from one listener before the next listener is served.
const ACCEPT_BURST: usize = 64;
/// Pause after a connection could not be accepted.
const ACCEPT_REST: Duration = Duration::from_millis(10);

/// The control thread's state.
pub(crate) struct Control<M: Mode, I: Io> {
    pub(crate) shared: Arc<Shared<M, I>>,
    /// The design in force, and its policy.
    pub(crate) choice: DispatchChoice,
    pub(crate) policy: Policy,
    pub(crate) listeners: Vec<StreamListener>,
    pub(crate) counts: EpochCounts,
    /// The queue that gets the next connection.
    pub(crate) next_queue: usize,
    pub(crate) epoch_end: Instant,
    /// Limits the log lines about connections that cannot be accepted.
    pub(crate) accept_log: Seldom,
}

impl<M: Mode, I: Io> Control<M, I> {
    /// Runs until the server is to stop.
    pub(crate) fn run(mut self) {
        while !self.shared.stop.is_requested() {
            self.accept_all();
            if let Some(switch) = self.shared.mailbox.take() {
                self.switch(switch);
            }
            let now = Instant::now();
            if now >= self.epoch_end {
                self.end_epoch();
                self.epoch_end = now + self.shared.config.epoch;
            }
            let shared = &*self.shared;
            flush_if_due(&shared.flush_due_s, (&shared.store, shared), shared.clock.seconds());
            self.sleep(now);
        }
        self.listeners.clear();
        if let Some(native) = &self.shared.native {
            native.core.drain();
        }
        self.shared.mailbox.close();
        self.shared.wake_all();
    }

    fn sleep(&self, now: Instant) {
        let mut descriptors: ArrayVec<_, WAIT_MAX> = ArrayVec::new();
        descriptors.extend(self.listeners.iter().map(|each| each.listener.as_fd()));
        descriptors.push(self.shared.stop.descriptor());
        descriptors.push(self.shared.mailbox.descriptor());
        let until_epoch = self.epoch_end.saturating_duration_since(now);
        if let Err(error) = wait_readable(&descriptors, Wait::For(until_epoch.min(SLEEP_MAX))) {
            tracing::error!(%error, "cannot wait for connections");
            self.shared.stop.request();
        }
    }

    fn accept_all(&mut self) {
        for index in 0..self.listeners.len() {
            for _ in 0..ACCEPT_BURST {
                match self.listeners[index].listener.accept() {
                    Ok(Accepted::Connection(socket)) => self.deal(index, Stream::Plain(socket)),
                    Ok(Accepted::Nobody) => break,
                    Ok(Accepted::Later(error)) => {
                        self.rest(&error);
                        break;
                    }
                    Err(error) => {
                        tracing::error!(%error, "cannot accept connections");
                        return self.shared.stop.request();
                    }
                }
            }
        }
    }

    /// Pauses, because no connection can be accepted now.
    fn rest(&mut self, error: &io::Error) {
        self.shared.connections.failed.count();
        if let Some(times) = self.accept_log.happened(Instant::now()) {
            tracing::warn!(%error, times, "a new connection cannot be accepted now");
        }
        std::thread::sleep(ACCEPT_REST);
    }

    /// Deals connections to the RX queues in turn: a hash of the address would spread few connections
    /// unevenly.
    fn deal(&mut self, index: usize, stream: Stream) {
        let shared = &self.shared;
        let StreamListener { listener, protocol } = &self.listeners[index];
        let home = self.next_queue;
        let entry = || {
            let listen_address = listener.address().to_string();
            Entry::new(stream.number(), home, listen_address, stream.peer_text(), shared.clock.seconds())
        };
        let Some(registration) = shared.connections.register(shared.config.connections_max, entry) else {
            // A client that does not take these few bytes still sees the connection closed.
            let _ = stream.send(protocol.too_many_connections());
            return stream.finish_sending();
        };
        self.next_queue = (home + 1) % shared.queues.len();
        let connection =
            Box::new(Connection::new(stream, protocol.session(&shared.config), home, registration));
        if shared.queues[home].arrivals.push(Arrival::New(connection)).is_err() {
            // Cannot happen: the ring has room for every connection allowed. The client sees its connection
            // closed.
            tracing::error!(home, "an RX queue has no place for a connection that was permitted");
            return;
        }
        shared.wake_server(&shared.plan.in_force().assignment, home);
    }

    /// Makes the plan for the next epoch from the sizes that the workers counted (Minos §3.1).
    fn end_epoch(&mut self) {
        let seen = self.counts.next(self.shared.workers.iter().map(|worker| &*worker.histogram));
        self.policy.epoch(&seen);
        tracing::debug!(target: "minos::plan", "{}", self.policy.decision());
        let changed = self.shared.plan.in_force().plan != *self.policy.plan();
        self.publish();
        if changed {
            // Workers asleep in an old role must see the plan.
            self.shared.wake_all();
        }
    }

    /// Puts another design in force. Sizes counted before do not enter its plans.
    fn switch(&mut self, switch: Switch) {
        let Switch { choice, policy, published } = switch;
        self.counts.next(self.shared.workers.iter().map(|worker| &*worker.histogram));
        (self.choice, self.policy) = (choice, policy);
        tracing::info!(dispatch = %choice.dispatch, "another design");
        let version = self.publish();
        self.shared.wake_all();
        self.epoch_end = Instant::now() + self.shared.config.epoch;
        // The caller may have given up waiting.
        let _ = published.send(version);
    }

    fn publish(&self) -> u64 {
        self.shared.plan.publish(InForce::of(self.choice, &self.policy))
    }
}

/// Time between two lines.
const LINE_EVERY: Duration = Duration::from_secs(1);

/// Limits a repeated event to one log line a second; the first is logged at once.
#[derive(Debug, Default)]
pub(crate) struct Seldom {
    last: Option<Instant>,
    unsaid: u64,
}

impl Seldom {
    /// Counts the event; returns the count since the last line if a line is due.
    pub(crate) fn happened(&mut self, now: Instant) -> Option<u64> {
        self.unsaid += 1;
        if self.last.is_some_and(|last| now.saturating_duration_since(last) < LINE_EVERY) {
            return None;
        }
        self.last = Some(now);
        Some(std::mem::take(&mut self.unsaid))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_a_second_tells_of_all() {
        let start = Instant::now();
        let mut seldom = Seldom::default();
        // A hundred events a second, for a little over three seconds.
        let due =
            (0..=300).filter_map(|n| Some((n, seldom.happened(start + n * Duration::from_millis(10))?)));
        assert_eq!(due.collect::<Vec<_>>(), [(0, 1), (100, 100), (200, 100), (300, 100)]);
    }
}
