//! A handshake under way.

use std::{
    os::fd::{AsFd, BorrowedFd},
    sync::{Arc, atomic::AtomicU64},
};

use minos_net::{Progress, Wire};
use rustls::{ServerConfig, ServerConnection};

use crate::{
    Stream,
    stream::{receive_once, write_out},
};

/// Why a handshake has failed.
#[derive(Debug, thiserror::Error)]
pub enum Refusal {
    /// The client has closed the connection.
    #[error("the client has closed the connection within the handshake")]
    Gone,
    /// The client has broken the protocol, or has no certificate that is trusted here.
    #[error("{0}")]
    Broken(rustls::Error),
}

/// A stream whose handshake is under way.
#[derive(Debug)]
pub struct Incoming<W> {
    wire: W,
    tls: ServerConnection,
    broken: Arc<AtomicU64>,
}

impl<W: Wire> Incoming<W> {
    pub(crate) fn new(wire: W, config: Arc<ServerConfig>, broken: Arc<AtomicU64>) -> Option<Self> {
        Some(Self { wire, tls: ServerConnection::new(config).ok()?, broken })
    }

    /// Goes on with the handshake; true once it is complete. The caller bounds the time.
    ///
    /// # Errors
    /// The client is refused, and has been told why if its socket takes that.
    pub fn advance(&mut self) -> Result<bool, Refusal> {
        loop {
            match write_out(&mut self.tls, &self.wire) {
                Progress::Bytes(_) => {}
                Progress::Blocked => return Ok(false),
                Progress::Closed => return Err(Refusal::Gone),
            }
            if !self.tls.is_handshaking() {
                return Ok(true);
            }
            match receive_once(&mut self.tls, &self.wire) {
                Progress::Bytes(_) => {}
                Progress::Blocked => return Ok(false),
                Progress::Closed => return Err(Refusal::Gone),
            }
            if let Err(error) = self.tls.process_new_packets() {
                // The alert.
                let _ = write_out(&mut self.tls, &self.wire);
                return Err(Refusal::Broken(error));
            }
        }
    }

    /// The stream, once [`advance`](Self::advance) has returned true.
    pub fn open(self) -> Stream<W> {
        Stream::new(self.wire, self.tls, self.broken)
    }

    /// The wire below.
    pub fn wire(&self) -> &W {
        &self.wire
    }
}

impl<W: AsFd> AsFd for Incoming<W> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.wire.as_fd()
    }
}
