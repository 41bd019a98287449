//! Datagrams by memory that two processes on one machine share (memif 2.0, which VPP and DPDK speak as well).
//!
//! ```text
//! client's memory:  rings to the server ── copied and checked ──┬── the looking port's own datagrams
//!                                                               └── inboxes of other ports
//!                   rings to the client ◄── each port copies datagrams behind their headers, a lock a ring
//! ```
//!
//! The queues of both sides have the same numbers: see [`Side`]. There is no network behind them, so that ports answer
//! ARP requests themselves. All but ARP and UDP over IPv4 for this address is dropped.
//!
//! A server trusts no client: memory must not be able to shrink, every place in it is checked when it is used, and what is
//! checked is a copy. A client that leaves while a burst is under way keeps its memory until that ends.
//!
//! Nothing wakes a port: [`Port::descriptor`](crate::Port::descriptor) is readable at all times. A client that sleeps is woken
//! if its rings ask for it.

mod bell;
mod control;
mod link;
mod message;
mod port;
mod region;
mod ring;
#[cfg(test)]
mod tests;

use std::path::PathBuf;

pub use port::{MemifBurst, MemifPort};

use crate::paired::Side;

/// Where two processes meet, and which side this one is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemifOptions {
    /// The socket, which the server makes.
    pub path: PathBuf,
    /// The side of this process.
    pub side: Side,
}

/// The properties of ports whose datagrams come by shared memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemifFacts {
    /// The socket.
    pub path: PathBuf,
    /// Queues in each direction.
    pub queues: usize,
    /// Bytes that are shared; 0 while nobody is connected.
    pub memory_bytes: u64,
}
