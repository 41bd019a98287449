//! The control thread: accepts connections, ends epochs, and notices a request to stop.
//!
//! In the paper core 0 aggregates the histograms (Minos §3.1). Here a separate thread does it: it sleeps
//! nearly always, and no request of worker 0 waits for it.

use std::{
    io,
    os::fd::AsFd,
    sync::{Arc, atomic::Ordering},
    time::{Duration, Instant},
};

use arrayvec::ArrayVec;
use minos_engine::Mode;
use minos_net::{Accepted, Io, WAIT_MAX, Wait, wait_readable};
use minos_sched::{EpochCounts, Policy, SizeHistogram};

use super::{config::DispatchChoice, mailbox::Switch, settings::Tuning, shared::Shared};
use crate::{
    ops::flush_if_due,
    tcp::{connection::Stream, session::StreamListener},
};

/// Listening sockets one server may have.
pub const LISTENERS_MAX: usize = 16;
/// Longest delay of a `flush_all` that is due.
const FLUSH_DELAY_MAX: Duration = Duration::from_millis(200);
/// Longest sleep. Descriptors report everything that comes before the next timer.
const SLEEP_MAX: Duration = Duration::from_secs(60);
/// Connections accepted from one listener before the next listener is served.
const ACCEPT_BURST: usize = 64;
/// Pause after a connection could not be accepted.
const ACCEPT_REST: Duration = Duration::from_millis(10);

/// The control thread's state.
pub(crate) struct Control<M: Mode, I: Io> {
    shared: Arc<Shared<M, I>>,
    /// The design in force, and its policy.
    choice: DispatchChoice,
    policy: Policy,
    /// The settings that the policy follows.
    tuning: Tuning,
    listeners: Vec<StreamListener>,
    counts: EpochCounts,
    fetched: EpochCounts,
    /// The queue that gets the next connection.
    next_queue: usize,
    /// `None` while nothing was counted in the last epoch and no worker has worked since: an epoch without
    /// requests changes no plan.
    epoch_end: Option<Instant>,
    /// Limits the log lines about connections that cannot be accepted.
    accept_log: Seldom,
}

impl<M: Mode, I: Io> Control<M, I> {
    /// Accepts connections at `listeners`, and begins with the plan of `policy`, which is in force.
    pub(crate) fn new(shared: Arc<Shared<M, I>>, policy: Policy, listeners: Vec<StreamListener>) -> Self {
        let in_force = shared.plan.in_force();
        let (choice, tuning) = (in_force.choice, in_force.tuning);
        Self {
            epoch_end: Some(Instant::now() + tuning.epoch),
            shared,
            choice,
            policy,
            tuning,
            listeners,
            counts: EpochCounts::new(),
            fetched: EpochCounts::new(),
            next_queue: 0,
            accept_log: Seldom::new(Duration::from_secs(1)),
        }
    }

    /// Runs until the server is to stop.
    pub(crate) fn run(mut self) {
        while !self.shared.stop.is_requested() {
            self.accept_all();
            if let Some(switch) = self.shared.mailbox.take() {
                self.switch(switch);
            }
            let now = Instant::now();
            self.heed_settings(now);
            if self.tuning.pause.is_some_and(|pause| now >= pause.until) {
                self.shared.resume_in_time(now);
            }
            if self.epoch_end.is_some_and(|end| now >= end) {
                let counted = self.end_epoch();
                self.epoch_end = (counted > 0).then(|| now + self.tuning.epoch);
                if counted == 0 {
                    self.shared.mailbox.rest();
                }
            } else if self.epoch_end.is_none() && !self.shared.mailbox.rests() {
                self.epoch_end = Some(now + self.tuning.epoch);
            }
            let shared = &*self.shared;
            if flush_if_due(&shared.flush_due_s, (&shared.store, shared), shared.clock.seconds()) {
                shared.flushes.fetch_add(1, Ordering::Relaxed);
                shared.wake_all();
            }
            self.sleep(now);
        }
        self.listeners.clear();
        if let Some(native) = &self.shared.native {
            native.core.drain();
        }
        self.shared.mailbox.close();
        self.shared.checks.close();
        self.shared.wake_all();
        self.shared.tier.iter().for_each(|tier| tier.call_keeper());
    }

    fn sleep(&self, now: Instant) {
        let mut descriptors: ArrayVec<_, WAIT_MAX> = ArrayVec::new();
        descriptors.extend(self.listeners.iter().map(|each| each.listener.as_fd()));
        descriptors.push(self.shared.stop.descriptor());
        descriptors.push(self.shared.mailbox.descriptor());
        if let Err(error) = wait_readable(&descriptors, Wait::For(self.sleep_max(now))) {
            tracing::error!(%error, "cannot wait for connections");
            self.shared.stop.request();
        }
    }

    /// Time until the next timer.
    fn sleep_max(&self, now: Instant) -> Duration {
        let until_epoch = self.epoch_end.map(|end| end.saturating_duration_since(now));
        let flush_due_s = self.shared.flush_due_s.load(Ordering::Relaxed);
        let until_flush = (flush_due_s != 0).then(|| {
            // The second in which it is due begins up to a second earlier than these have passed.
            let left_s = flush_due_s.saturating_sub(self.shared.clock.seconds()).saturating_sub(1);
            Duration::from_secs(left_s.into()).max(FLUSH_DELAY_MAX)
        });
        let until_resume = self.tuning.pause.map(|pause| pause.until.saturating_duration_since(now));
        until_epoch.into_iter().chain(until_flush).chain(until_resume).fold(SLEEP_MAX, Duration::min)
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
        let StreamListener { listener, protocol, .. } = &self.listeners[index];
        if self.shared.deal(stream, (*protocol, listener.address()), self.next_queue) {
            self.next_queue = (self.next_queue + 1) % self.shared.queues.len();
        }
    }

    /// Takes over settings that have changed. What was learnt of sizes stays.
    fn heed_settings(&mut self, now: Instant) {
        let tuning = self.shared.plan.in_force().tuning;
        if tuning == self.tuning {
            return;
        }
        self.tuning = tuning;
        self.epoch_end = self.epoch_end.map(|end| end.min(now + tuning.epoch));
        let wanted = (tuning.control, tuning.options(self.choice));
        if self.policy.config() == wanted {
            return;
        }
        match self.policy.reconfigure(wanted.0, wanted.1) {
            Ok(()) => {
                self.publish();
                self.shared.wake_all();
            }
            // Cannot happen: the settings were checked for this design, and another one comes with its own policy.
            Err(error) => tracing::error!(%error, "the plan stays as it is"),
        }
    }

    /// Makes the plan for the next epoch from the sizes that the workers counted (Minos §3.1); returns how many.
    fn end_epoch(&mut self) -> u64 {
        let (seen, fetched) = self.count();
        self.policy.epoch_above_flash(&seen, &fetched);
        tracing::debug!(target: "minos::plan", "{}", self.policy.decision());
        let changed = self.shared.plan.in_force().plan != *self.policy.plan();
        self.publish();
        if changed {
            // Workers asleep in an old role must see the plan.
            self.shared.wake_all();
        }
        seen.total()
    }

    /// The requests since the call before this one, and those of their items that were on flash.
    fn count(&mut self) -> (SizeHistogram, SizeHistogram) {
        let workers = &self.shared.workers;
        let requests = self.counts.next(workers.iter().map(|worker| &*worker.histogram));
        (requests, self.fetched.next(workers.iter().map(|worker| &*worker.fetched)))
    }

    /// Puts another design in force. Sizes counted before do not enter its plans.
    fn switch(&mut self, switch: Switch) {
        let Switch { choice, policy, published } = switch;
        self.count();
        (self.choice, self.policy) = (choice, policy);
        tracing::info!(dispatch = %choice.dispatch, "another design");
        let version = self.publish();
        self.shared.wake_all();
        self.epoch_end = Some(Instant::now() + self.tuning.epoch);
        // The caller may have given up waiting.
        let _ = published.send(version);
    }

    fn publish(&self) -> u64 {
        self.shared.plan.publish(self.choice, &self.policy)
    }
}

/// Limits a repeated event to one log line in a time; the first is logged at once.
#[derive(Debug)]
pub(crate) struct Seldom {
    every: Duration,
    last: Option<Instant>,
    unsaid: u64,
}

impl Seldom {
    pub(crate) fn new(every: Duration) -> Self {
        Self { every, last: None, unsaid: 0 }
    }

    /// Counts the event; returns the count since the last line if a line is due.
    pub(crate) fn happened(&mut self, now: Instant) -> Option<u64> {
        self.unsaid += 1;
        if self.last.is_some_and(|last| now.saturating_duration_since(last) < self.every) {
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
        let mut seldom = Seldom::new(Duration::from_secs(1));
        // A hundred events a second, for a little over three seconds.
        let due =
            (0..=300).filter_map(|n| Some((n, seldom.happened(start + n * Duration::from_millis(10))?)));
        assert_eq!(due.collect::<Vec<_>>(), [(0, 1), (100, 100), (200, 100), (300, 100)]);
    }
}
