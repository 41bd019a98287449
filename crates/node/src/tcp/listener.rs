//! A listening socket and the protocol of its connections.

use std::io;

use minos_net::{Address, Listener};

use super::session::Protocol;

/// A listening socket of one protocol.
pub(crate) struct StreamListener {
    pub(crate) listener: Listener,
    /// The protocol of the connections that it accepts.
    pub(crate) protocol: Protocol,
}

impl StreamListener {
    /// Listens on `address` for clients that speak `protocol`.
    pub(crate) fn bind(address: &Address, protocol: Protocol) -> io::Result<Self> {
        Ok(Self { listener: Listener::bind(address)?, protocol })
    }
}
