//! One client connection, and its byte stream, which alone sends and receives.

use std::{
    io::{self, IoSlice},
    os::fd::{AsFd, BorrowedFd},
};

use minos_engine::Mode;
use minos_net::{Address, Progress, Socket, Token};
use minos_sealed::{Ends, Incoming, Keys, Sealed};

use super::{registry::Registration, session::Session};
use crate::ops::{Fetched, Next, receiving::ReceivePermit};
use crate::rack::Owed;

/// One client connection.
///
/// One thread at a time owns it: the holder of its RX queue's lock, or the worker that it is lent to. So
/// replies stay in order without sequence numbers.
pub(crate) struct Connection {
    pub(crate) stream: Stream,
    /// The state of its protocol.
    pub(crate) session: Session,
    /// RX queue it was dealt to.
    pub(crate) home: usize,
    pub(crate) token: Token,
    /// Bytes received and not consumed yet: the front of an incomplete request.
    pub(crate) input: Buffer,
    /// Replies not sent yet, because the socket took no more or a large value follows them. No request is
    /// executed while there are any.
    pub(crate) output: Buffer,
    /// For the memory of large replies in `output`.
    pub(crate) output_permits: Vec<ReceivePermit>,
    /// Its peer has sent the last bytes, says the poller.
    pub(crate) hangup: bool,
    /// True if a visit has received all that had come, and nobody has received since: until the poller reports the
    /// socket, there is nothing.
    pub(crate) is_drained: bool,
    /// To be closed as soon as `output` is empty.
    pub(crate) closing: bool,
    /// What its changes since the last reply wait for.
    pub(crate) owed: Owed,
    /// True if the poller reports room to send.
    pub(crate) watches_writable: bool,
    /// Bytes that `input` needs before it can hold a whole request.
    pub(crate) wanted_bytes: usize,
    /// The version of the settings that gave its session limits.
    pub(crate) settings: u32,
    /// The keys that a fetch for its next requests did not bring to memory.
    pub(crate) fetched: Option<Box<Fetched>>,
    /// Its registration as an open connection, held as long as it lives.
    pub(crate) registration: Registration,
}

impl Connection {
    /// A connection that has not sent anything yet.
    pub(crate) fn new(stream: Stream, session: Session, home: usize, registration: Registration) -> Self {
        Self {
            stream,
            session,
            home,
            token: Token(0),
            input: Buffer::default(),
            output: Buffer::default(),
            output_permits: Vec::new(),
            hangup: false,
            is_drained: false,
            closing: false,
            owed: Owed::default(),
            watches_writable: false,
            wanted_bytes: 0,
            settings: 0,
            fetched: None,
            registration,
        }
    }

    /// Sends replies that are left over.
    pub(crate) fn flush<M: Mode>(&mut self) -> Next<M> {
        while !self.output.is_empty() {
            match self.stream.send(self.output.bytes()) {
                Progress::Bytes(sent) => self.output.consume(sent),
                Progress::Blocked => return Next::Blocked,
                Progress::Closed => return Next::Close,
            }
        }
        self.output_permits.clear();
        Next::Continue
    }
}

/// The byte stream of a connection over TCP or a Unix socket. Its calls never block.
pub(crate) enum Stream {
    /// The client's bytes as they are.
    Plain(Socket),
    /// Between nodes that have proven to each other that they know the rack's secret.
    Sealed(Box<Sealed<Socket>>),
    /// With a client that has shaken hands.
    Tls(Box<Tls>),
    /// Bytes as a test says.
    #[cfg(test)]
    Scripted(super::script::Script),
}

/// A socket that was just accepted.
pub(crate) type Raw = Socket;

/// A stream with a client over TLS.
pub(crate) type Tls = minos_tls::Stream<Socket>;

/// A stream with a client whose TLS handshake is under way.
pub(crate) type TlsHandshake = minos_tls::Incoming<Socket>;

/// A stream of another node that has still to prove that it knows the rack's secret.
pub(crate) type Unproven = Incoming<Socket>;

/// A stream of another node that has proven it.
pub(crate) type Proven = Sealed<Socket>;

impl Stream {
    /// A stream to the node at `address`, sealed if there are keys. One over TCP may still be refused.
    pub(crate) fn connect(address: &Address, sealing: Option<(&Keys, Ends)>) -> io::Result<Self> {
        let socket = match address {
            Address::Unix(path) => Socket::connect(path)?,
            Address::Tcp(address) => Socket::connect_tcp(*address)?,
        };
        let Some((keys, ends)) = sealing else { return Ok(Self::Plain(socket)) };
        Ok(Self::Sealed(Box::new(Sealed::connect(socket, keys, ends)?)))
    }

    /// False as long as the other end has not proven to know the secret. No byte has been sent before.
    #[inline]
    pub(crate) fn is_open(&self) -> bool {
        match self {
            Self::Sealed(sealed) => sealed.is_open(),
            _ => true,
        }
    }

    #[inline]
    pub(crate) fn receive(&mut self, buffer: &mut [u8]) -> Progress {
        match self {
            Self::Plain(socket) => socket.receive(buffer),
            Self::Sealed(sealed) => sealed.receive(buffer),
            Self::Tls(tls) => tls.receive(buffer),
            #[cfg(test)]
            Self::Scripted(script) => script.receive(buffer),
        }
    }

    /// Sends from the front of `bytes`. While it is blocked, the next call must begin with the same bytes.
    #[inline]
    pub(crate) fn send(&mut self, bytes: &[u8]) -> Progress {
        match self {
            Self::Plain(socket) => socket.send(bytes),
            Self::Sealed(sealed) => sealed.send(bytes),
            Self::Tls(tls) => tls.send(bytes),
            #[cfg(test)]
            Self::Scripted(script) => script.send(bytes),
        }
    }

    /// Bytes that the next call must send at least, because a blocked one has sealed them.
    #[inline]
    pub(crate) fn held_bytes(&self) -> usize {
        match self {
            Self::Plain(_) => 0,
            Self::Sealed(sealed) => sealed.held_bytes(),
            Self::Tls(tls) => tls.held_bytes(),
            #[cfg(test)]
            Self::Scripted(script) => script.held_bytes(),
        }
    }

    /// Sends from the front of several pieces in one call; with `more`, bytes follow at once.
    #[inline]
    pub(crate) fn send_pieces(&mut self, pieces: &[IoSlice<'_>], more: bool) -> Progress {
        match self {
            Self::Plain(socket) => socket.send_pieces(pieces, more),
            Self::Sealed(sealed) => sealed.send_pieces(pieces),
            Self::Tls(tls) => tls.send_pieces(pieces),
            #[cfg(test)]
            Self::Scripted(script) => script.send_pieces(pieces),
        }
    }

    /// True if the client has sent its last bytes, which the poller need not report.
    #[inline]
    pub(crate) fn is_over(&self) -> bool {
        matches!(self, Self::Tls(tls) if tls.is_over())
    }

    /// True if the last receipt has stopped early, so as not to take too long: more may be there.
    #[inline]
    pub(crate) fn is_cut(&self) -> bool {
        matches!(self, Self::Tls(tls) if tls.is_cut())
    }

    /// True if there is something to receive that the poller does not report.
    pub(crate) fn has_received(&mut self) -> bool {
        match self {
            Self::Tls(tls) => tls.has_received(),
            _ => false,
        }
    }

    /// Tells the peer that nothing more will be sent.
    pub(crate) fn finish_sending(&mut self) {
        if let Self::Tls(tls) = self {
            tls.finish();
        }
        self.socket().into_iter().for_each(Socket::finish_sending);
    }

    /// The number of the socket's descriptor, for `stats conns`.
    pub(crate) fn number(&self) -> i32 {
        self.socket().map_or(0, Socket::number)
    }

    /// The client's address as text; empty when the client is gone or has none.
    pub(crate) fn peer_text(&self) -> String {
        self.socket().map_or_else(String::new, Socket::peer_text)
    }

    /// The socket below, if it is no test's.
    fn socket(&self) -> Option<&Socket> {
        match self {
            Self::Plain(socket) => Some(socket),
            Self::Sealed(sealed) => Some(sealed.wire()),
            Self::Tls(tls) => Some(tls.wire()),
            #[cfg(test)]
            Self::Scripted(_) => None,
        }
    }
}

/// The socket's descriptor, for pollers.
impl AsFd for Stream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Plain(socket) => socket.as_fd(),
            Self::Sealed(sealed) => sealed.as_fd(),
            Self::Tls(tls) => tls.as_fd(),
            #[cfg(test)]
            Self::Scripted(script) => script.as_fd(),
        }
    }
}

/// Bytes that are appended at the back and consumed at the front. Holds no memory while empty.
#[derive(Default)]
pub(crate) struct Buffer {
    bytes: Vec<u8>,
    start: usize,
}

impl Buffer {
    /// The bytes not consumed yet.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes[self.start..]
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.start == self.bytes.len()
    }

    pub(crate) fn append(&mut self, bytes: &[u8]) {
        // The remaining bytes move to the front of the memory: each at most once for as many bytes consumed
        // before it.
        if self.start > self.bytes.len() / 2 {
            self.bytes.drain(..self.start);
            self.start = 0;
        }
        self.bytes.extend_from_slice(bytes);
    }

    /// Consumes `count` bytes at the front.
    pub(crate) fn consume(&mut self, count: usize) {
        debug_assert!(count <= self.bytes().len());
        self.start += count;
        if self.is_empty() {
            *self = Self::default();
        }
    }
}

impl From<&[u8]> for Buffer {
    fn from(bytes: &[u8]) -> Self {
        Self { bytes: bytes.to_vec(), start: 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_keeps_what_was_not_consumed() {
        let mut buffer = Buffer::default();
        buffer.append(b"hello ");
        buffer.append(b"world");
        buffer.consume(8);
        assert_eq!(buffer.bytes(), b"rld");
        buffer.append(b"!!");
        assert_eq!(buffer.bytes(), b"rld!!");
        buffer.consume(5);
        assert!(buffer.is_empty());
        assert_eq!(buffer.bytes.capacity(), 0);
    }
}
