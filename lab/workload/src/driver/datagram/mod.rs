//! The driver of servers that speak datagrams.
//!
//! A socket takes the place of a connection. Unanswered requests are repeated only while the data set is
//! loaded; otherwise they are lost. Datagrams that a socket sends together leave as trains, so that the
//! generator keeps up with the server.

mod ledger;
mod memcached;
mod memif;
mod native;
mod outbox;
mod thread;

use std::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    os::fd::BorrowedFd,
};

pub(super) use ledger::{Ledger, Terms};
pub(super) use memcached::MemcachedLink;
pub(super) use memif::open_memif;
pub(super) use native::{NativeLink, open_ports};
pub(super) use thread::DatagramThread;

use super::{clock::RunClock, recorder::Recorder};
use crate::Op;

/// A socket with its protocol and its outstanding requests.
pub(super) trait Link<'a>: Send {
    /// True if a request may hold operations of different kinds.
    const IS_MIXED: bool;

    /// Outstanding requests at which the server counts as overwhelmed.
    const IN_FLIGHT_MAX: usize;

    /// Room for received datagrams.
    type Burst: Send;

    /// Such room, for all links of a thread.
    fn burst(&self) -> Self::Burst;

    /// The socket, to wait for.
    fn socket(&self) -> BorrowedFd<'_>;

    /// Called when the clock of the run is known.
    fn begin(&mut self, _clock: &RunClock) {}

    /// The outstanding requests.
    fn ledger(&self) -> &Ledger<'a>;

    /// True if outstanding requests have reached [`Link::IN_FLIGHT_MAX`].
    fn is_full(&self) -> bool {
        self.ledger().len() >= Self::IN_FLIGHT_MAX
    }

    /// Composes a request of `operations`, from one to the ledger's width.
    fn ask(&mut self, operations: &[Op], at: Moment, recorder: &mut Recorder);

    /// Sends the composed datagrams.
    fn flush(&mut self);

    /// Receives available datagrams and sends the replies they need. Returns true if any arrived.
    fn receive(&mut self, burst: &mut Self::Burst, clock: &RunClock, recorder: &mut Recorder) -> bool;

    /// Repeats overdue requests, or counts them as lost.
    fn tend(&mut self, now_ns: u64, recorder: &mut Recorder);

    /// Takes inserted items whose answers the source has not been told of.
    fn inserts_answered(&mut self) -> std::vec::Drain<'_, u64>;
}

/// The intended and the actual send time of a request, in nanoseconds since the start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Moment {
    pub(super) intended_ns: u64,
    pub(super) now_ns: u64,
}

/// The address to bind a socket for `server` to: any port of the same family.
fn any_port(server: SocketAddr) -> SocketAddr {
    let ip = match server.ip() {
        IpAddr::V4(ip) if ip.is_loopback() => IpAddr::V4(Ipv4Addr::LOCALHOST),
        IpAddr::V6(ip) if ip.is_loopback() => IpAddr::V6(Ipv6Addr::LOCALHOST),
        IpAddr::V4(_) => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        IpAddr::V6(_) => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
    };
    SocketAddr::new(ip, 0)
}
