//! A network in virtual time, which loses, duplicates, reorders, delays and corrupts datagrams.
//!
//! All events follow from the seed and from the datagrams and their send times, so that a failed run can be
//! repeated. Time is in nanoseconds and advances only when a datagram is taken out.
//!
//! ```
//! use minos_testkit::network::{Faults, Network};
//!
//! let (client, server) = ("10.0.0.1:1000".parse()?, "10.0.0.9:11300".parse()?);
//! let mut network = Network::new(1, Faults { loss: 0.5, ..Faults::none() });
//! for number in 0..100u8 {
//!     network.send(client, server, &[number]);
//! }
//! let mut arrived = 0;
//! while let Some(datagram) = network.next_until(u64::MAX) {
//!     assert_eq!((datagram.from, datagram.to), (client, server));
//!     arrived += 1;
//! }
//! assert_eq!(arrived, network.counts().delivered);
//! assert_eq!(arrived + network.counts().lost, 100);
//! # Ok::<(), std::net::AddrParseError>(())
//! ```

mod faults;
#[cfg(test)]
mod tests;

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BinaryHeap},
    net::{IpAddr, SocketAddr},
};

use rand::{RngExt as _, rngs::StdRng};

use minos_base::seeded;

pub(crate) use faults::happens;
pub use faults::{Faults, Spoiled};

/// A datagram that has arrived.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Datagram {
    /// When, in nanoseconds.
    pub at_ns: u64,
    /// The sender.
    pub from: SocketAddr,
    /// The receiver.
    pub to: SocketAddr,
    /// The payload.
    pub bytes: Vec<u8>,
}

counts! {
    /// Counters of sent datagrams by fate.
    pub struct Counts {
        /// Datagrams sent.
        pub sent: u64,
        /// Datagrams taken out at the other end, copies too.
        pub delivered: u64,
        /// Datagrams lost on the way.
        pub lost: u64,
        /// Copies made on the way.
        pub duplicated: u64,
        /// Datagrams held back so that later ones overtook them.
        pub reordered: u64,
        /// Spoiled datagrams that a checksum caught, and that were not delivered.
        pub caught: u64,
        /// Spoiled datagrams that were delivered.
        pub spoiled: u64,
        /// Datagrams larger than the link carries.
        pub oversized: u64,
    }
}

/// A datagram on its way. They arrive in order of time, and in order of sending where that is the same.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Flight {
    at_ns: u64,
    number: u64,
    from: SocketAddr,
    to: SocketAddr,
    bytes: Vec<u8>,
}

/// The network: all links, and what is on its way.
#[derive(Debug)]
pub struct Network {
    rng: StdRng,
    now_ns: u64,
    flights: BinaryHeap<Reverse<Flight>>,
    /// Numbers flights.
    next: u64,
    faults: Faults,
    links: BTreeMap<(IpAddr, IpAddr), Faults>,
    counts: Counts,
}

impl Network {
    /// A network with random choices from `seed`, and `faults` on each link without faults of its own.
    pub fn new(seed: u64, faults: Faults) -> Self {
        Self {
            rng: seeded(seed),
            now_ns: 0,
            flights: BinaryHeap::new(),
            next: 0,
            faults,
            links: BTreeMap::new(),
            counts: Counts::default(),
        }
    }

    /// The time, in nanoseconds since the network was made.
    pub fn now_ns(&self) -> u64 {
        self.now_ns
    }

    /// The counters of datagrams sent so far.
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// Datagrams on their way.
    pub fn in_flight(&self) -> usize {
        self.flights.len()
    }

    /// Changes the faults of all links without faults of their own, for datagrams sent from now on.
    pub fn set_faults(&mut self, faults: Faults) {
        self.faults = faults;
    }

    /// Gives the link from one host to another, in this direction, faults of its own.
    pub fn set_link(&mut self, from: IpAddr, to: IpAddr, faults: Faults) {
        self.links.insert((from, to), faults);
    }

    /// Undoes [`Network::set_link`].
    pub fn reset_link(&mut self, from: IpAddr, to: IpAddr) {
        self.links.remove(&(from, to));
    }

    /// Sends a datagram now.
    pub fn send(&mut self, from: SocketAddr, to: SocketAddr, bytes: &[u8]) {
        self.counts.sent += 1;
        let faults = self.links.get(&(from.ip(), to.ip())).unwrap_or(&self.faults).clone();
        if bytes.len() > faults.datagram_bytes_max {
            self.counts.oversized += 1;
            return;
        }
        let copies = 1 + u64::from(happens(faults.duplication, &mut self.rng));
        self.counts.duplicated += copies - 1;
        for _ in 0..copies {
            self.fly(&faults, from, to, bytes.to_vec());
        }
    }

    /// When the next datagram arrives, in nanoseconds; none if nothing is on its way.
    pub fn next_at_ns(&self) -> Option<u64> {
        self.flights.peek().map(|Reverse(flight)| flight.at_ns)
    }

    /// Takes out the next datagram that arrives until `until_ns`, and advances the time to its arrival. If
    /// there is none, the time becomes `until_ns`, unless that is [`u64::MAX`]: then it stays.
    pub fn next_until(&mut self, until_ns: u64) -> Option<Datagram> {
        if self.next_at_ns().is_none_or(|at_ns| at_ns > until_ns) {
            if until_ns != u64::MAX {
                self.now_ns = self.now_ns.max(until_ns);
            }
            return None;
        }
        let Reverse(Flight { at_ns, from, to, bytes, .. }) = self.flights.pop()?;
        self.now_ns = at_ns;
        self.counts.delivered += 1;
        Some(Datagram { at_ns, from, to, bytes })
    }

    /// Drops all datagrams on their way to `host`, as when that host stops.
    pub fn drop_flights_to(&mut self, host: IpAddr) {
        let before = self.flights.len();
        self.flights.retain(|Reverse(flight)| flight.to.ip() != host);
        self.counts.lost += (before - self.flights.len()) as u64;
    }

    /// Sends one copy on its way, unless a fault drops it.
    fn fly(&mut self, faults: &Faults, from: SocketAddr, to: SocketAddr, mut bytes: Vec<u8>) {
        if happens(faults.loss, &mut self.rng) {
            self.counts.lost += 1;
            return;
        }
        match faults.spoil(&mut bytes, &mut self.rng) {
            Spoiled::No => {}
            Spoiled::Caught => {
                self.counts.caught += 1;
                return;
            }
            Spoiled::Unnoticed => self.counts.spoiled += 1,
        }
        let mut delay_ns = self.rng.random_range(faults.delay_ns.clone());
        if happens(faults.reordering, &mut self.rng) {
            self.counts.reordered += 1;
            delay_ns += self.rng.random_range(0..=faults.held_back_ns_max);
        }
        self.next += 1;
        let at_ns = self.now_ns.saturating_add(delay_ns);
        self.flights.push(Reverse(Flight { at_ns, number: self.next, from, to, bytes }));
    }
}
