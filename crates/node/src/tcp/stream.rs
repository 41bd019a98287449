//! The byte stream of a connection, which alone sends and receives.

use std::{
    io::IoSlice,
    os::fd::{AsFd, BorrowedFd},
};

use minos_net::{Progress, Socket};

/// The byte stream of a connection over TCP or a Unix socket. Its calls never block.
pub(crate) enum Stream {
    /// The client's bytes as they are.
    Plain(Socket),
    /// Bytes as a test says.
    #[cfg(test)]
    Scripted(super::script::Script),
}

impl Stream {
    /// Receives into `buffer`.
    #[inline]
    pub(crate) fn receive(&self, buffer: &mut [u8]) -> Progress {
        match self {
            Self::Plain(socket) => socket.receive(buffer),
            #[cfg(test)]
            Self::Scripted(script) => script.receive(buffer),
        }
    }

    /// Sends from the front of `bytes`.
    #[inline]
    pub(crate) fn send(&self, bytes: &[u8]) -> Progress {
        match self {
            Self::Plain(socket) => socket.send(bytes),
            #[cfg(test)]
            Self::Scripted(script) => script.send(bytes),
        }
    }

    /// Sends from the front of several pieces in one call; with `more`, bytes follow at once.
    #[inline]
    pub(crate) fn send_pieces(&self, pieces: &[IoSlice<'_>], more: bool) -> Progress {
        match self {
            Self::Plain(socket) => socket.send_pieces(pieces, more),
            #[cfg(test)]
            Self::Scripted(script) => script.send_pieces(pieces),
        }
    }

    /// Tells the peer that nothing more will be sent.
    pub(crate) fn finish_sending(&self) {
        match self {
            Self::Plain(socket) => socket.finish_sending(),
            #[cfg(test)]
            Self::Scripted(_) => (),
        }
    }

    /// The number of the socket's descriptor, for `stats conns`.
    pub(crate) fn number(&self) -> i32 {
        match self {
            Self::Plain(socket) => socket.number(),
            #[cfg(test)]
            Self::Scripted(_) => 0,
        }
    }

    /// The client's address as text; empty when the client is gone or has none.
    pub(crate) fn peer_text(&self) -> String {
        match self {
            Self::Plain(socket) => socket.peer_text(),
            #[cfg(test)]
            Self::Scripted(_) => String::new(),
        }
    }
}

/// The socket's descriptor, for pollers.
impl AsFd for Stream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Plain(socket) => socket.as_fd(),
            #[cfg(test)]
            Self::Scripted(script) => script.as_fd(),
        }
    }
}
