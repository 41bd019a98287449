//! Datagrams straight from the queues of a network card, through AF_XDP.
//!
//! ```text
//! card's receive queue 0 ── program ──┬─ socket of port 0 ──┐        each socket: a receive ring and, for
//!       its fill and sent rings       └─ socket of port 1 ─┐│        one queue of each port, a send ring
//! card's receive queue 1 ── program ──┬─ socket of port 0 ─┼┴─ port 0
//!       its fill and sent rings       └─ socket of port 1 ─┴── port 1
//! ```
//!
//! A program in the driver ([`program`]) takes datagrams for this server and passes all else to the kernel's stack. A
//! port therefore keeps its UDP socket: it receives what the program passes, such as fragments and datagrams from this
//! host, and sends to peers whose hardware address is not known, and what is too long for the link.
//!
//! A frame is the kernel's, or held by one burst, or one port's to send, or free in its queue. A card that steers by
//! port lets each worker use the rings of a queue of its own; otherwise they share a queue's lock, once a burst.

mod bpf;
mod card;
mod frames;
mod interface;
mod port;
mod program;
mod ring;
mod socket;
#[cfg(test)]
mod tests;

use std::{fmt, io, ops::AddAssign};

pub(crate) use port::{CardBurst, CardPort, Fate};

/// The counts of ports at a card since they were opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CardCounts {
    /// Datagrams received from the card.
    pub received: u64,
    /// Frames that carried no sound datagram, which are dropped.
    pub invalid: u64,
    /// Frames dropped because a socket's ring was full.
    pub ring_full: u64,
    /// Frames dropped because no free frame was left to hold them.
    pub no_frame: u64,
    /// Trains dropped, in part or in whole, because no frame or place in a ring was left to send them.
    pub send_full: u64,
    /// Trains that were sent by a UDP socket.
    pub by_socket: u64,
}

impl CardCounts {
    /// All counts, by name.
    pub fn all(&self) -> impl Iterator<Item = (&'static str, u64)> {
        [
            ("received", self.received),
            ("invalid", self.invalid),
            ("ring_full", self.ring_full),
            ("no_frame", self.no_frame),
            ("send_full", self.send_full),
            ("by_socket", self.by_socket),
        ]
        .into_iter()
    }
}

impl AddAssign for CardCounts {
    fn add_assign(&mut self, other: Self) {
        self.received += other.received;
        self.invalid += other.invalid;
        self.ring_full += other.ring_full;
        self.no_frame += other.no_frame;
        self.send_full += other.send_full;
        self.by_socket += other.by_socket;
    }
}

/// The properties of ports at a card.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CardFacts {
    /// The interface's name.
    pub interface: String,
    /// Its receive queues.
    pub queues: usize,
    /// True if the card reads and writes the frames itself.
    pub is_zero_copy: bool,
    /// Bytes of memory for frames, locked.
    pub memory_bytes: usize,
}

/// Why datagrams do not come from the card's queues.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Refusal(String);

/// Frames are locked in memory.
const MEMORY_HINT: &str = " (it needs a larger limit of locked memory, ulimit -l, or CAP_IPC_LOCK)";

impl Refusal {
    fn new(reason: impl Into<String>) -> Self {
        Self(reason.into())
    }

    /// A step failed.
    fn of(step: &str, error: io::Error) -> Self {
        let hint = match error.kind() {
            io::ErrorKind::PermissionDenied => " (it needs CAP_NET_ADMIN, CAP_NET_RAW and CAP_BPF)",
            io::ErrorKind::OutOfMemory => MEMORY_HINT,
            _ if error.raw_os_error() == Some(libc::ENOBUFS) => MEMORY_HINT,
            _ => "",
        };
        Self(format!("{step}: {error}{hint}"))
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
