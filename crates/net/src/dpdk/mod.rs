//! Datagrams through DPDK: from the queues of a card that the process has for itself, or of a process beside it.
//!
//! ```text
//! receive queues of a device, polled by ports ── parse ──┬── the poller's own datagrams
//!                                                        └── inboxes of other ports, if steering has failed
//! frames of one pool ◄── each port copies payloads behind their headers ──► send queues, a lock each
//! ```
//!
//! The device bypasses the kernel, so that ports answer ARP requests themselves. Other packets, fragments among them, are
//! dropped. Nothing wakes a thread: [`Port::descriptor`](crate::Port::descriptor) is readable at all times.
//!
//! memif (DPDK's driver `net_memif`) connects two processes by shared memory, whose queues have the same numbers on both
//! sides. The driver trusts its peer, and frees the memory when the peer goes without waiting for a burst under way.

mod device;
mod eal;
mod host;
mod opened;
mod port;
mod steering;
mod sys;
#[cfg(test)]
mod tests;

use std::{convert::Infallible, fmt, io, path::PathBuf, str::FromStr};

pub use port::{DpdkBurst, DpdkPort};

use crate::{Epoll, Io, PortOptions, paired::Side};
use steering::Link;

/// A device of DPDK.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DpdkDevice {
    /// The queues of another process. The server makes the socket at this path.
    Memif(PathBuf),
    /// A virtual driver with its arguments, such as `net_tap0,iface=tap0`.
    Virtual(String),
    /// The address of a card on the PCI bus, such as `0000:3b:00.0`.
    Card(String),
}

impl FromStr for DpdkDevice {
    type Err = Infallible;

    /// Reads `memif:PATH`, `net_` and the rest of a virtual driver's arguments, or an address on the PCI bus.
    fn from_str(text: &str) -> Result<Self, Infallible> {
        Ok(match text.strip_prefix("memif:") {
            Some(path) => Self::Memif(path.into()),
            None if text.starts_with("net_") => Self::Virtual(text.to_owned()),
            None => Self::Card(text.to_owned()),
        })
    }
}

impl fmt::Display for DpdkDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Memif(path) => write!(f, "memif:{}", path.display()),
            Self::Virtual(name) | Self::Card(name) => f.write_str(name),
        }
    }
}

impl DpdkDevice {
    fn link(&self) -> Link {
        if matches!(self, Self::Memif(_)) { Link::Peer } else { Link::Network }
    }
}

/// The device of a server or of a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DpdkOptions {
    /// The device.
    pub device: DpdkDevice,
    /// The side that it is for.
    pub side: Side,
    /// Arguments of DPDK's environment (EAL) behind our own; those of the first device of a process count.
    pub arguments: Vec<String>,
}

impl DpdkOptions {
    /// True if the device makes a socket.
    fn has_socket(&self) -> bool {
        matches!((&self.device, self.side), (DpdkDevice::Memif(_), Side::Server { .. }))
    }
}

/// The transports of a server at a device of DPDK; streams are the kernel's.
#[derive(Clone, Debug)]
pub struct Dpdk(pub DpdkOptions);

impl Io for Dpdk {
    type Poller = Epoll;
    type Port = DpdkPort;

    fn poller(&self) -> io::Result<Epoll> {
        Epoll::open()
    }

    fn ports(&self, wanted: &PortOptions) -> io::Result<Vec<DpdkPort>> {
        DpdkPort::open_all(&self.0, wanted)
    }
}
