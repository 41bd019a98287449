//! A poller with faults.

use std::{io, os::fd::BorrowedFd};

use minos_base::{limits::BURST_MAX, seeded};
use minos_net::{Interest, Poller, Ready, Token, Wait};
use rand::{RngExt as _, rngs::StdRng, seq::SliceRandom as _};

use super::{Shared, lock, signal::Signal};
use crate::network::happens;

/// The faults of a poller. All but `lost` are within its contract. Shares are from 0 to 1.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PollerFaults {
    /// Share of polls that report a socket although nothing came.
    pub spurious: f64,
    /// Share of events that are held back for up to `held_back_polls_max` polls.
    pub held_back: f64,
    /// Longest time for which an event is held back, in polls.
    pub held_back_polls_max: u32,
    /// Share of bursts whose events come in another order.
    pub reordered: f64,
    /// Share of bursts of which some events wait for the next poll.
    pub fewer: f64,
    /// Share of events that report a hangup although the peer is there.
    pub early_hangup: f64,
    /// Share of events that are never reported. This breaks the contract: a control for tests.
    pub lost: f64,
}

counts! {
    /// How often each fault has happened.
    pub struct PollerCounts {
        /// Events reported.
        pub reported: u64,
        /// Sockets reported although nothing came.
        pub spurious: u64,
        /// Events held back.
        pub held_back: u64,
        /// Bursts in another order.
        pub reordered: u64,
        /// Bursts of which some events had to wait.
        pub fewer: u64,
        /// Hangups that were none.
        pub early_hangups: u64,
        /// Events never reported.
        pub lost: u64,
    }
}

impl PollerFaults {
    /// No faults.
    pub const fn none() -> Self {
        Self {
            spurious: 0.0,
            held_back: 0.0,
            held_back_polls_max: 8,
            reordered: 0.0,
            fewer: 0.0,
            early_hangup: 0.0,
            lost: 0.0,
        }
    }

    /// Every fault that the contract allows, often.
    pub const fn permitted() -> Self {
        Self { spurious: 0.1, held_back: 0.3, reordered: 0.5, fewer: 0.5, early_hangup: 0.3, ..Self::none() }
    }
}

/// A poller that reports the events of another with [`PollerFaults`]. Events held back are never lost, and its
/// descriptor stays readable while there are any.
#[derive(Debug)]
pub struct FaultyPoller<P> {
    inner: P,
    faults: PollerFaults,
    rng: StdRng,
    /// The sockets in the set.
    tokens: Vec<Token>,
    /// Events to report: at most one a socket.
    held: Vec<Held>,
    signal: Signal,
    counts: Shared<PollerCounts>,
}

/// An event to report after so many polls.
#[derive(Debug)]
struct Held {
    event: Ready,
    polls: u32,
}

impl<P: Poller> FaultyPoller<P> {
    /// The twin of `inner`, with random choices from `seed`.
    ///
    /// # Errors
    /// No descriptor is left.
    pub fn new(inner: P, faults: PollerFaults, seed: u64) -> io::Result<Self> {
        let signal = Signal::over(inner.descriptor())?;
        let (tokens, held, counts) = (Vec::new(), Vec::new(), Shared::default());
        Ok(Self { inner, faults, rng: seeded(seed), tokens, held, signal, counts })
    }

    /// How often each fault has happened.
    pub fn counts(&self) -> PollerCounts {
        *lock(&self.counts)
    }

    pub(super) fn shared_counts(&self) -> Shared<PollerCounts> {
        self.counts.clone()
    }

    /// Takes in an event of the inner poller.
    fn take_in(&mut self, mut event: Ready, counts: &mut PollerCounts) {
        if happens(self.faults.lost, &mut self.rng) {
            counts.lost += 1;
            return;
        }
        if !event.hangup && event.readable && happens(self.faults.early_hangup, &mut self.rng) {
            counts.early_hangups += 1;
            event.hangup = true;
        }
        let mut polls = 0;
        if happens(self.faults.held_back, &mut self.rng) {
            counts.held_back += 1;
            polls = self.rng.random_range(1..=self.faults.held_back_polls_max.max(1));
        }
        self.hold(event, polls);
    }

    /// Adds an event to those that are held, or to the one of the same socket.
    fn hold(&mut self, event: Ready, polls: u32) {
        match self.held.iter_mut().find(|held| held.event.token == event.token) {
            None => self.held.push(Held { event, polls }),
            Some(held) => {
                held.event.readable |= event.readable;
                held.event.writable |= event.writable;
                held.event.hangup |= event.hangup;
            }
        }
    }

    /// Invents an event, perhaps.
    fn invent(&mut self, counts: &mut PollerCounts) {
        if self.tokens.is_empty() || !happens(self.faults.spurious, &mut self.rng) {
            return;
        }
        let token = self.tokens[self.rng.random_range(0..self.tokens.len())];
        let writable = self.rng.random_bool(0.5);
        counts.spurious += 1;
        self.hold(Ready { token, readable: true, writable, hangup: false }, 0);
    }

    /// Moves at most `max` due events to `ready`.
    fn report(&mut self, ready: &mut Vec<Ready>, max: usize, counts: &mut PollerCounts) {
        let mut due: Vec<Held> = self.held.extract_if(.., |held| held.polls == 0).collect();
        if due.len() > 1 && happens(self.faults.reordered, &mut self.rng) {
            counts.reordered += 1;
            let by = self.rng.random_range(1..due.len());
            due[1..].shuffle(&mut self.rng);
            due.rotate_left(by);
        }
        let mut most = due.len().min(max).min(BURST_MAX);
        if most > 1 && happens(self.faults.fewer, &mut self.rng) {
            counts.fewer += 1;
            most = self.rng.random_range(1..most);
        }
        counts.reported += most as u64;
        ready.extend(due.drain(..most).map(|held| held.event));
        self.held.splice(..0, due);
    }
}

impl<P: Poller> Poller for FaultyPoller<P> {
    fn add(&mut self, token: Token, socket: BorrowedFd<'_>, interest: Interest) -> io::Result<()> {
        self.inner.add(token, socket, interest)?;
        self.tokens.push(token);
        Ok(())
    }

    fn change(&mut self, token: Token, socket: BorrowedFd<'_>, interest: Interest) -> io::Result<()> {
        self.inner.change(token, socket, interest)
    }

    fn remove(&mut self, token: Token, socket: BorrowedFd<'_>) {
        self.inner.remove(token, socket);
        self.tokens.retain(|&other| other != token);
        self.held.retain(|held| held.event.token != token);
    }

    fn poll(&mut self, ready: &mut Vec<Ready>, max: usize, wait: Wait) -> io::Result<()> {
        debug_assert!(ready.is_empty() && max > 0);
        let wait = if self.held.is_empty() { wait } else { Wait::No };
        self.held.iter_mut().for_each(|held| held.polls = held.polls.saturating_sub(1));
        self.inner.poll(ready, max, wait)?;
        let counts = self.counts.clone();
        let mut counts = lock(&counts);
        for event in ready.drain(..) {
            self.take_in(event, &mut counts);
        }
        self.invent(&mut counts);
        self.report(ready, max, &mut counts);
        self.signal.raise(!self.held.is_empty())
    }

    fn descriptor(&self) -> BorrowedFd<'_> {
        self.signal.descriptor()
    }
}
