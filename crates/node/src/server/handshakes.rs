//! Streams whose other end must prove something before anybody reads a byte of them: that it knows a rack's secret, or
//! what TLS asks for.
//!
//! Handshakes are bounded in number, bytes and time. If there are too many, the oldest is given up: one that is honest
//! takes a few round trips.

use std::{
    collections::BTreeMap,
    fmt::Display,
    io,
    os::fd::{AsFd, BorrowedFd},
    time::{Duration, Instant},
};

use minos_net::{Accepted, Interest, Listener, Poller, Ready, Token, Wait, wait_readable};
use minos_sealed::{Ends, Keys, Purpose};

use super::{control::Seldom, settings::Tuning};
use crate::{
    ops::counters::worker_counters,
    tcp::connection::{Proven, Raw, Unproven},
};

/// Connections accepted before those are served that are there.
const ACCEPT_BURST: usize = 64;
/// Longest sleep, so that a stop that no signal announced is noticed.
const SLEEP_MAX: Duration = Duration::from_millis(200);
/// Pause after a failure of the kernel.
const REST: Duration = Duration::from_millis(10);
/// Time between two lines about those who are refused.
const LINE_EVERY: Duration = Duration::from_secs(60);

worker_counters! {
    /// Counters of the handshakes at one kind of listener, which the owner's prefix precedes.
    HandshakeCounters, "":
    /// Streams that were let in.
    admitted,
    /// Streams refused because their other end has not proven what it should.
    refused,
    /// Streams refused because their handshake took too long.
    late,
    /// Streams refused because too many handshakes were under way.
    crowded,
    /// Times that the kernel gave no stream.
    failed,
}

/// The counters of all handshakes.
#[derive(Debug, Default)]
pub(crate) struct AllHandshakeCounters {
    /// Of other nodes.
    pub(crate) peers: HandshakeCounters,
    /// Of clients over TLS.
    pub(crate) tls: HandshakeCounters,
}

/// What a stream must prove.
pub(crate) trait Door {
    /// A handshake under way.
    type Guest: AsFd;
    /// A stream that has proven it.
    type Open;
    /// Why a stream is refused.
    type Refusal: Display;
    /// Who is refused, for the log.
    const WHO: &'static str;

    /// Begins a handshake; `None` if the kernel lacks what it needs.
    fn begin(&self, socket: Raw) -> Option<Self::Guest>;

    /// Goes on with a handshake; true once it is complete.
    fn advance(&self, guest: &mut Self::Guest) -> Result<bool, Self::Refusal>;

    /// The stream of a complete handshake.
    fn open(&self, guest: Self::Guest) -> Option<Self::Open>;

    /// The other end's address.
    fn peer_text(guest: &Self::Guest) -> String;
}

/// The bounds of handshakes under way.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HandshakeBounds {
    /// Handshakes at a time.
    pub(crate) count_max: usize,
    /// Time for one.
    pub(crate) time_max: Duration,
}

impl HandshakeBounds {
    /// Of other nodes.
    pub(crate) const PEERS: Self = Self { count_max: 256, time_max: Duration::from_secs(3) };

    /// Of clients over TLS.
    pub(crate) fn of(tuning: &Tuning) -> Self {
        Self { count_max: tuning.handshakes_max as usize, time_max: tuning.handshake_timeout }
    }
}

/// The door for nodes that know a rack's secret.
pub(crate) struct SecretDoor {
    pub(crate) keys: Keys,
    /// What streams may be for.
    pub(crate) purposes: &'static [Purpose],
    /// The number that their openers call.
    pub(crate) own: u16,
}

impl Door for SecretDoor {
    type Guest = Unproven;
    type Open = (Proven, Ends);
    type Refusal = minos_sealed::Refusal;
    const WHO: &'static str = "another node of the rack";

    fn begin(&self, socket: Raw) -> Option<Unproven> {
        socket.bound_silence();
        Some(Unproven::new(socket))
    }

    fn advance(&self, guest: &mut Unproven) -> Result<bool, minos_sealed::Refusal> {
        guest.advance(&self.keys, (self.purposes, self.own))
    }

    fn open(&self, guest: Unproven) -> Option<(Proven, Ends)> {
        guest.open()
    }

    fn peer_text(guest: &Unproven) -> String {
        guest.wire().peer_text()
    }
}

/// The streams of some listeners whose handshakes are under way.
pub(crate) struct Handshakes<P: Poller, D: Door> {
    listeners: Vec<Listener>,
    door: D,
    bounds: HandshakeBounds,
    poller: P,
    ready: Vec<Ready>,
    /// Handshakes under way by their numbers: the oldest first.
    guests: BTreeMap<u64, Guest<D::Guest>>,
    /// The number of the next handshake.
    next: u64,
    log: Seldom,
}

/// A handshake under way.
struct Guest<G> {
    incoming: G,
    /// The listener that accepted it.
    listener: usize,
    since: Instant,
}

impl<P: Poller, D: Door> Handshakes<P, D> {
    /// Streams that `listeners` accept and that pass `door`.
    pub(crate) fn new(listeners: Vec<Listener>, door: D, bounds: HandshakeBounds, poller: P) -> Self {
        let (ready, guests, log) = (Vec::new(), BTreeMap::new(), Seldom::new(LINE_EVERY));
        Self { listeners, door, bounds, poller, ready, guests, next: 0, log }
    }

    /// Changes the bounds.
    pub(crate) fn set_bounds(&mut self, bounds: HandshakeBounds) {
        self.bounds = bounds;
    }

    /// The listeners.
    pub(crate) fn listeners(&self) -> &[Listener] {
        &self.listeners
    }

    /// Goes on with all handshakes; gives the streams that are open to `admit`, with the position of their listener.
    ///
    /// # Errors
    /// A listener cannot be used any more.
    pub(crate) fn turn(
        &mut self,
        counters: &HandshakeCounters,
        mut admit: impl FnMut(D::Open, usize),
    ) -> io::Result<()> {
        self.accept(counters)?;
        self.ready.clear();
        if self.poller.poll(&mut self.ready, usize::MAX, Wait::No).is_err() {
            std::thread::sleep(REST);
        }
        for at in 0..self.ready.len() {
            if let Some((open, listener)) = self.serve(self.ready[at].token.0, counters) {
                counters.admitted.count();
                admit(open, listener);
            }
        }
        self.give_up_late(counters);
        Ok(())
    }

    /// Waits until there is something to do, or `stop` is readable.
    pub(crate) fn sleep(&self, stop: Option<BorrowedFd<'_>>) {
        let oldest = self.guests.values().next();
        let left = oldest.map(|oldest| self.bounds.time_max.saturating_sub(oldest.since.elapsed()));
        let own = self.listeners.iter().map(AsFd::as_fd).chain([self.poller.descriptor()]);
        let descriptors: Vec<BorrowedFd<'_>> = own.chain(stop).collect();
        let sleep = left.map_or(SLEEP_MAX, |left| left.min(SLEEP_MAX));
        if wait_readable(&descriptors, Wait::For(sleep)).is_err() {
            std::thread::sleep(REST);
        }
    }

    fn accept(&mut self, counters: &HandshakeCounters) -> io::Result<()> {
        for listener in 0..self.listeners.len() {
            for _ in 0..ACCEPT_BURST {
                match self.listeners[listener].accept()? {
                    Accepted::Connection(socket) => self.begin(socket, listener, counters),
                    Accepted::Nobody => break,
                    Accepted::Later(error) => {
                        counters.failed.count();
                        if let Some(times) = self.log.happened(Instant::now()) {
                            tracing::warn!(%error, times, "a stream from {} cannot be accepted now", D::WHO);
                        }
                        std::thread::sleep(REST);
                        break;
                    }
                }
            }
        }
        Ok(())
    }

    fn begin(&mut self, socket: Raw, listener: usize, counters: &HandshakeCounters) {
        // More than one, if the bound was lowered.
        while self.guests.len() >= self.bounds.count_max
            && let Some(oldest) = self.guests.keys().next().copied()
        {
            counters.crowded.count();
            self.refuse(oldest, &"too many handshakes are under way");
        }
        let Some(incoming) = self.door.begin(socket) else { return };
        let number = self.next;
        self.next += 1;
        if self.poller.add(Token(number), incoming.as_fd(), Interest::ReadWrite).is_ok() {
            let guest = Guest { incoming, listener, since: Instant::now() };
            self.guests.insert(number, guest);
        }
    }

    /// Goes on with a handshake; returns the stream whose other end has proven itself.
    fn serve(&mut self, number: u64, counters: &HandshakeCounters) -> Option<(D::Open, usize)> {
        let guest = self.guests.get_mut(&number)?;
        match self.door.advance(&mut guest.incoming) {
            Ok(false) => None,
            Ok(true) => {
                let Guest { incoming, listener, .. } = self.guests.remove(&number)?;
                self.poller.remove(Token(number), incoming.as_fd());
                Some((self.door.open(incoming)?, listener))
            }
            Err(refusal) => {
                counters.refused.count();
                self.refuse(number, &refusal);
                None
            }
        }
    }

    fn give_up_late(&mut self, counters: &HandshakeCounters) {
        while let Some((&number, guest)) = self.guests.first_key_value()
            && guest.since.elapsed() >= self.bounds.time_max
        {
            counters.late.count();
            self.refuse(number, &"the handshake takes too long");
        }
    }

    /// Closes a stream, and says so if nothing was said for a while.
    fn refuse(&mut self, number: u64, reason: &dyn Display) {
        let Some(Guest { incoming, .. }) = self.guests.remove(&number) else { return };
        self.poller.remove(Token(number), incoming.as_fd());
        if let Some(times) = self.log.happened(Instant::now()) {
            let peer = D::peer_text(&incoming);
            tracing::warn!(peer, %reason, times, "a stream from {} is refused", D::WHO);
        }
    }
}
