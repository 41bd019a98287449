//! Streams that must prove to know a rack's secret before anybody reads a byte of them.
//!
//! Handshakes are bounded in number, bytes and time. If there are too many, the oldest is given up: one that is honest
//! takes a round trip.

use std::{
    collections::BTreeMap,
    io,
    os::fd::{AsFd, BorrowedFd},
    time::{Duration, Instant},
};

use minos_net::{Accepted, Interest, Listener, Poller, Ready, Token, Wait, wait_readable};
use minos_sealed::{Ends, Keys, Purpose};

use super::control::Seldom;
use crate::{
    ops::counters::worker_counters,
    tcp::connection::{Proven, Unproven},
};

/// Handshakes under way.
const HANDSHAKES_MAX: usize = 256;
/// Time for a handshake.
const HANDSHAKE_MAX: Duration = Duration::from_secs(3);
/// Connections accepted before those are served that are there.
const ACCEPT_BURST: usize = 64;
/// Longest sleep, so that a stop that no signal announced is noticed.
const SLEEP_MAX: Duration = Duration::from_millis(200);
/// Pause after a failure of the kernel.
const REST: Duration = Duration::from_millis(10);
/// Time between two lines about those who are refused.
const LINE_EVERY: Duration = Duration::from_secs(60);

worker_counters! {
    /// Counters of the handshakes of other nodes.
    GateCounters, "peers_":
    /// Streams of nodes that were let in.
    admitted,
    /// Streams refused because their other end does not know the secret, or means another rack or node.
    refused,
    /// Streams refused because their handshake took too long.
    late,
    /// Streams refused because too many handshakes were under way.
    crowded,
}

/// The streams of a listener whose handshakes are under way.
pub(crate) struct Handshakes<P: Poller> {
    listener: Listener,
    keys: Keys,
    /// What streams may be for, and the number that their openers call.
    here: (&'static [Purpose], u16),
    poller: P,
    ready: Vec<Ready>,
    /// Handshakes under way by their numbers: the oldest first.
    guests: BTreeMap<u64, Guest>,
    /// The number of the next handshake.
    next: u64,
    log: Seldom,
}

/// A handshake under way.
struct Guest {
    incoming: Unproven,
    since: Instant,
}

impl<P: Poller> Handshakes<P> {
    /// Streams that `listener` accepts and that know one of `keys`.
    pub(crate) fn new(
        (listener, keys): (Listener, Keys),
        here: (&'static [Purpose], u16),
        poller: P,
    ) -> Self {
        let (ready, guests, log) = (Vec::new(), BTreeMap::new(), Seldom::new(LINE_EVERY));
        Self { listener, keys, here, poller, ready, guests, next: 0, log }
    }

    /// The listener.
    pub(crate) fn listener(&self) -> &Listener {
        &self.listener
    }

    /// Goes on with all handshakes; gives the streams that are open to `admit`.
    ///
    /// # Errors
    /// The listener cannot be used any more.
    pub(crate) fn turn(
        &mut self,
        counters: &GateCounters,
        mut admit: impl FnMut(Proven, Ends),
    ) -> io::Result<()> {
        self.accept(counters)?;
        self.ready.clear();
        if self.poller.poll(&mut self.ready, usize::MAX, Wait::No).is_err() {
            std::thread::sleep(REST);
        }
        for at in 0..self.ready.len() {
            if let Some((sealed, ends)) = self.serve(self.ready[at].token.0, counters) {
                counters.admitted.count();
                admit(sealed, ends);
            }
        }
        self.give_up_late(counters);
        Ok(())
    }

    /// Waits until there is something to do, or `stop` is readable.
    pub(crate) fn sleep(&self, stop: Option<BorrowedFd<'_>>) {
        let oldest = self.guests.values().next();
        let left = oldest.map(|oldest| HANDSHAKE_MAX.saturating_sub(oldest.since.elapsed()));
        let own = [self.listener.as_fd(), self.poller.descriptor()];
        let descriptors: Vec<BorrowedFd<'_>> = own.into_iter().chain(stop).collect();
        let sleep = left.map_or(SLEEP_MAX, |left| left.min(SLEEP_MAX));
        if wait_readable(&descriptors, Wait::For(sleep)).is_err() {
            std::thread::sleep(REST);
        }
    }

    fn accept(&mut self, counters: &GateCounters) -> io::Result<()> {
        for _ in 0..ACCEPT_BURST {
            match self.listener.accept()? {
                Accepted::Connection(socket) => self.begin(Unproven::new(socket), counters),
                Accepted::Nobody => break,
                Accepted::Later(_) => {
                    std::thread::sleep(REST);
                    break;
                }
            }
        }
        Ok(())
    }

    fn begin(&mut self, incoming: Unproven, counters: &GateCounters) {
        if self.guests.len() == HANDSHAKES_MAX
            && let Some(oldest) = self.guests.keys().next().copied()
        {
            counters.crowded.count();
            self.refuse(oldest, &"too many handshakes are under way");
        }
        incoming.wire().bound_silence();
        let number = self.next;
        self.next += 1;
        if self.poller.add(Token(number), incoming.as_fd(), Interest::ReadWrite).is_ok() {
            let guest = Guest { incoming, since: Instant::now() };
            self.guests.insert(number, guest);
        }
    }

    /// Goes on with a handshake; returns the stream whose other end has proven itself.
    fn serve(&mut self, number: u64, counters: &GateCounters) -> Option<(Proven, Ends)> {
        let guest = self.guests.get_mut(&number)?;
        match guest.incoming.advance(&self.keys, self.here) {
            Ok(false) => None,
            Ok(true) => {
                let Guest { incoming, .. } = self.guests.remove(&number)?;
                self.poller.remove(Token(number), incoming.as_fd());
                incoming.open()
            }
            Err(refusal) => {
                counters.refused.count();
                self.refuse(number, &refusal);
                None
            }
        }
    }

    fn give_up_late(&mut self, counters: &GateCounters) {
        while let Some((&number, guest)) = self.guests.first_key_value()
            && guest.since.elapsed() >= HANDSHAKE_MAX
        {
            counters.late.count();
            self.refuse(number, &"the handshake takes too long");
        }
    }

    /// Closes a stream, and says so if nothing was said for a while.
    fn refuse(&mut self, number: u64, reason: &dyn std::fmt::Display) {
        let Some(Guest { incoming, .. }) = self.guests.remove(&number) else { return };
        self.poller.remove(Token(number), incoming.as_fd());
        if let Some(times) = self.log.happened(Instant::now()) {
            let peer = incoming.wire().peer_text();
            tracing::warn!(peer, %reason, times, "a stream from another node of the rack is refused");
        }
    }
}
