//! The kinds of transport that a server is compiled for.

use crate::{Epoll, Poller};

/// The transports of a server, chosen once when it is compiled.
pub trait Io: Send + Sync + 'static {
    /// Reports which streams are ready.
    type Poller: Poller;
}

/// The kernel's transports.
#[derive(Debug)]
pub enum Kernel {}

impl Io for Kernel {
    type Poller = Epoll;
}
