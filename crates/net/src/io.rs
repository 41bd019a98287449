//! The kinds of transport that a server is compiled for.

use std::io;

use crate::{Epoll, HostPort, Poller, Port, PortOptions};

/// Opens the transports of a server, which are chosen once when it is compiled.
pub trait Io: Send + Sync + 'static {
    /// Reports which streams are ready.
    type Poller: Poller;
    /// Carries datagrams.
    type Port: Port;

    /// An empty poller.
    ///
    /// # Errors
    /// The kernel does not have or does not permit this way of polling.
    fn poller(&self) -> io::Result<Self::Poller>;

    /// The ports of a server.
    ///
    /// # Errors
    /// The kernel's error; [`io::ErrorKind::AddrInUse`] also if no free row was found.
    fn ports(&self, wanted: &PortOptions) -> io::Result<Vec<Self::Port>>;
}

/// The kernel's transports, and memory shared with another process.
#[derive(Clone, Copy, Debug)]
pub struct Kernel;

impl Io for Kernel {
    type Poller = Epoll;
    type Port = HostPort;

    fn poller(&self) -> io::Result<Epoll> {
        Epoll::open()
    }

    fn ports(&self, wanted: &PortOptions) -> io::Result<Vec<HostPort>> {
        HostPort::open_all(wanted)
    }
}
