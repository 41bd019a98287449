//! The interface shared by all ways of waiting for many sockets.

use std::{io, os::fd::BorrowedFd, time::Duration};

/// Names a socket within one poller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Token(pub u64);

/// The readiness of a socket. It may be reported although it no longer holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ready {
    /// The socket's token.
    pub token: Token,
    /// Bytes, the end of the stream or an error can be received.
    pub readable: bool,
    /// Bytes can be sent again after a send was blocked.
    pub writable: bool,
    /// The peer has closed its sending side or the connection is broken. No other event need follow, so
    /// receive from the socket until it reports the end itself.
    pub hangup: bool,
}

/// The events of a socket to report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Interest {
    /// Bytes to receive.
    Read,
    /// Bytes to receive, and room to send.
    ReadWrite,
    /// Room to send.
    Write,
}

/// How long [`Poller::poll`] may wait for the first event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// Not at all.
    No,
    /// At most this long.
    For(Duration),
}

/// A set of sockets that reports which of them are ready.
///
/// Events are edges: a socket is reported once when something arrives, and again only when more does.
/// A worker therefore receives until less than a whole buffer comes, or remembers the token.
pub trait Poller: Send + Sized {
    /// Adds a socket; bytes that it has received already are reported too.
    ///
    /// # Errors
    /// The kernel's limits on watched sockets, or the token is in use.
    fn add(&mut self, token: Token, socket: BorrowedFd<'_>, interest: Interest) -> io::Result<()>;

    /// Changes the events that are reported.
    ///
    /// # Errors
    /// The socket is not in the set.
    fn change(&mut self, token: Token, socket: BorrowedFd<'_>, interest: Interest) -> io::Result<()>;

    /// Takes a socket out of the set.
    fn remove(&mut self, token: Token, socket: BorrowedFd<'_>);

    /// Appends at most `max` events, and never more than a burst, to `ready`, which must be empty.
    ///
    /// # Errors
    /// Only errors that make the set unusable.
    fn poll(&mut self, ready: &mut Vec<Ready>, max: usize, wait: Wait) -> io::Result<()>;

    /// A descriptor that is readable while events wait.
    fn descriptor(&self) -> BorrowedFd<'_>;
}
