//! A connected stream socket that never blocks.

use std::{
    io::{self, IoSlice},
    net::SocketAddr,
    os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd},
    path::Path,
    time::Duration,
};

use rustix::{
    io::Errno,
    net::{
        AddressFamily, RecvFlags, SendAncillaryBuffer, SendFlags, Shutdown, SocketAddrUnix, SocketFlags,
        SocketType, socket_with, sockopt,
    },
};

/// Time after which a TCP connection between nodes is given up, if bytes are not acknowledged or nothing is heard.
pub const SILENCE_MAX: Duration = Duration::from_secs(4);

/// A connected stream socket. Its calls never block and never raise SIGPIPE.
#[derive(Debug)]
pub struct Socket {
    fd: OwnedFd,
}

/// The result of a non-blocking call on a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// The bytes moved; never zero for a call that was given bytes.
    Bytes(usize),
    /// Nothing can be moved now.
    Blocked,
    /// The peer has closed its writing side, or the connection is broken.
    Closed,
}

impl Socket {
    /// Takes a connected descriptor that is already in non-blocking mode.
    pub fn from_nonblocking(fd: OwnedFd) -> Self {
        Self { fd }
    }

    /// Connects to the Unix socket at `path`.
    ///
    /// # Errors
    /// Nobody listens there, or too many are about to be accepted.
    pub fn connect(path: &Path) -> io::Result<Self> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let fd = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
        rustix::net::connect(&fd, &SocketAddrUnix::new(path)?)?;
        Ok(Self { fd })
    }

    /// Begins to connect to `address`: bytes can be sent once the socket is writable, and a refusal closes it.
    ///
    /// # Errors
    /// The kernel's error: no route, or no memory.
    pub fn connect_tcp(address: SocketAddr) -> io::Result<Self> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
        let fd = socket_with(family, SocketType::STREAM, flags, None)?;
        match rustix::net::connect(&fd, &address) {
            Ok(()) | Err(Errno::INPROGRESS) => {}
            Err(error) => return Err(error.into()),
        }
        let socket = Self { fd };
        socket.bound_silence();
        Ok(socket)
    }

    /// Lets the kernel close a TCP connection whose other machine is not heard of for [`SILENCE_MAX`], and send at once.
    pub fn bound_silence(&self) {
        // They fail on a Unix socket, which needs none of them.
        let _ = sockopt::set_tcp_nodelay(&self.fd, true);
        let _ = sockopt::set_socket_keepalive(&self.fd, true);
        let _ = sockopt::set_tcp_keepidle(&self.fd, SILENCE_MAX / 2);
        let _ = sockopt::set_tcp_keepintvl(&self.fd, SILENCE_MAX / 4);
        let _ = sockopt::set_tcp_keepcnt(&self.fd, 2);
        let _ = sockopt::set_tcp_user_timeout(&self.fd, SILENCE_MAX.as_millis() as u32);
    }

    /// Descriptor number, for `stats conns`.
    pub fn number(&self) -> i32 {
        self.fd.as_raw_fd()
    }

    /// The peer's address as text; empty when it is gone or has none.
    pub fn peer_text(&self) -> String {
        match rustix::net::getpeername(&self.fd) {
            Ok(Some(address)) => {
                SocketAddr::try_from(address).map_or_else(|_| String::new(), |a| a.to_string())
            }
            _ => String::new(),
        }
    }

    /// Receives into `buffer`.
    pub fn receive(&self, buffer: &mut [u8]) -> Progress {
        match retry(|| rustix::net::recv(&self.fd, &mut *buffer, RecvFlags::empty())) {
            Ok((0, _)) if !buffer.is_empty() => Progress::Closed,
            Ok((bytes, _)) => Progress::Bytes(bytes),
            Err(error) => failed(error),
        }
    }

    /// Sends from the front of `bytes`.
    pub fn send(&self, bytes: &[u8]) -> Progress {
        match retry(|| rustix::net::send(&self.fd, bytes, SendFlags::NOSIGNAL)) {
            Ok(sent) => Progress::Bytes(sent),
            Err(error) => failed(error),
        }
    }

    /// Sends from the front of several pieces in one call. With `more`, bytes follow at once, so that the
    /// kernel may hold back a segment that is not full.
    pub fn send_pieces(&self, pieces: &[IoSlice<'_>], more: bool) -> Progress {
        let flags = if more { SendFlags::NOSIGNAL | SendFlags::MORE } else { SendFlags::NOSIGNAL };
        let mut ancillary = SendAncillaryBuffer::default();
        match retry(|| rustix::net::sendmsg(&self.fd, pieces, &mut ancillary, flags)) {
            Ok(sent) => Progress::Bytes(sent),
            Err(error) => failed(error),
        }
    }

    /// Tells the peer that nothing more will be sent.
    pub fn finish_sending(&self) {
        // A connection that is already broken needs no farewell.
        let _ = rustix::net::shutdown(&self.fd, Shutdown::Write);
    }

    /// Ends both directions: pollers report a hang-up.
    pub fn break_off(&self) {
        let _ = rustix::net::shutdown(&self.fd, Shutdown::Both);
    }
}

/// The bytes below a stream that seals them. Its calls never block.
pub trait Wire {
    /// Receives into `buffer`.
    fn receive(&self, buffer: &mut [u8]) -> Progress;

    /// Sends from the front of `bytes`.
    fn send(&self, bytes: &[u8]) -> Progress;

    /// Sends from the front of several pieces.
    fn send_pieces(&self, pieces: &[IoSlice<'_>]) -> Progress {
        let first = pieces.iter().find(|piece| !piece.is_empty());
        first.map_or(Progress::Bytes(0), |piece| self.send(piece))
    }

    /// Ends both directions.
    fn break_off(&self);
}

impl Wire for Socket {
    fn receive(&self, buffer: &mut [u8]) -> Progress {
        self.receive(buffer)
    }

    fn send(&self, bytes: &[u8]) -> Progress {
        self.send(bytes)
    }

    fn send_pieces(&self, pieces: &[IoSlice<'_>]) -> Progress {
        self.send_pieces(pieces, false)
    }

    fn break_off(&self) {
        self.break_off();
    }
}

impl From<Socket> for OwnedFd {
    fn from(socket: Socket) -> Self {
        socket.fd
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

fn failed(error: Errno) -> Progress {
    match error {
        Errno::AGAIN => Progress::Blocked,
        // Without memory for socket buffers the kernel asks to come back later.
        Errno::NOBUFS | Errno::NOMEM => Progress::Blocked,
        _ => Progress::Closed,
    }
}

/// Calls again while a signal interrupts.
pub(crate) fn retry<T>(mut call: impl FnMut() -> Result<T, Errno>) -> Result<T, Errno> {
    loop {
        match call() {
            Err(Errno::INTR) => {}
            result => return result,
        }
    }
}
