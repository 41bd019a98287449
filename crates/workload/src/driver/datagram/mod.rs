//! Driving a server that is spoken to in datagrams.
//!
//! A socket takes the place of a connection; nothing is sent twice, and what is not answered in time is lost. What a
//! socket sends at one time leaves as trains, so that the generator is no slower than what it measures.

mod ledger;
mod memcached;
mod native;
mod outbox;
mod thread;

use std::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    os::fd::BorrowedFd,
};

use minos_net::udp::ReceiveBurst;

pub(super) use ledger::{Ledger, Terms};
pub(super) use memcached::MemcachedLink;
pub(super) use native::NativeLink;
pub(super) use thread::DatagramThread;

use super::{clock::RunClock, recorder::Recorder};
use crate::Op;

/// A socket, what it speaks, and what waits for answers on it.
pub(super) trait Link<'a>: Send {
    /// Whether a request may hold operations of different kinds.
    const IS_MIXED: bool;

    /// Requests without answers from which on the server is overwhelmed.
    const IN_FLIGHT_MAX: usize;

    /// The socket, to wait for.
    fn socket(&self) -> BorrowedFd<'_>;

    /// The requests that wait for answers.
    fn ledger(&self) -> &Ledger<'a>;

    /// Whether so many requests wait for answers that the server is overwhelmed.
    fn is_full(&self) -> bool {
        self.ledger().len() >= Self::IN_FLIGHT_MAX
    }

    /// Composes a request of `operations`, at least one and at most as many as the ledger's width.
    fn ask(&mut self, operations: &[Op], at: Moment, recorder: &mut Recorder);

    /// Sends what was composed.
    fn flush(&mut self);

    /// Receives what is there, and sends what that calls for. Says whether anything came.
    fn receive(&mut self, burst: &mut ReceiveBurst, clock: &RunClock, recorder: &mut Recorder) -> bool;

    /// Gives up, or repeats, what was not answered in time.
    fn tend(&mut self, now_ns: u64, recorder: &mut Recorder);

    /// Inserted items whose answers the source has not been told of.
    fn inserts_answered(&mut self) -> std::vec::Drain<'_, u64>;
}

/// When a request is meant to be sent, and when it is, in nanoseconds since the start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Moment {
    pub(super) intended_ns: u64,
    pub(super) now_ns: u64,
}

/// Where a socket that speaks to `server` is bound: any port, of the same family.
fn any_port(server: SocketAddr) -> SocketAddr {
    let ip = match server.ip() {
        IpAddr::V4(ip) if ip.is_loopback() => IpAddr::V4(Ipv4Addr::LOCALHOST),
        IpAddr::V6(ip) if ip.is_loopback() => IpAddr::V6(Ipv6Addr::LOCALHOST),
        IpAddr::V4(_) => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        IpAddr::V6(_) => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
    };
    SocketAddr::new(ip, 0)
}
