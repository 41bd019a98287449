//! A sealed stream for a thread that waits.

use std::{
    io::{self, ErrorKind, Read, Write},
    os::fd::{AsFd, BorrowedFd},
    time::{Duration, Instant},
};

use minos_net::{Interest, Progress, Socket, Wait, wait_ready};

use crate::{Ends, Incoming, Keys, Purpose, Sealed};

/// A sealed stream whose calls wait, each at most for its time.
#[derive(Debug)]
pub struct Blocking {
    sealed: Sealed<Socket>,
    timeout: Duration,
}

impl Blocking {
    /// Opens a stream over a socket that is connected or connecting. The handshake, and then each call, gets `timeout`.
    ///
    /// # Errors
    /// The other end does not prove to know the secret ([`ErrorKind::PermissionDenied`], for it then closes), it does not
    /// answer in time ([`ErrorKind::TimedOut`]), or it cannot be reached.
    pub fn connect(socket: Socket, keys: &Keys, ends: Ends, timeout: Duration) -> io::Result<Self> {
        let mut stream = Self { sealed: Sealed::connect(socket, keys, ends)?, timeout };
        let opened = stream.wait(|sealed| match sealed.receive(&mut []) {
            // Who knows another secret closes once it has read the call.
            Progress::Closed if sealed.wants_to_send() => Some(Err(ErrorKind::NotConnected.into())),
            Progress::Closed => Some(Err(ErrorKind::PermissionDenied.into())),
            _ => sealed.is_open().then_some(Ok(0)),
        });
        opened.map(|_| stream)
    }

    /// Accepts a stream for the node `to`; returns it and the number of the node that has opened it.
    ///
    /// # Errors
    /// As [`connect`](Self::connect), with the [`Refusal`](crate::Refusal) within.
    pub fn accept(
        socket: Socket,
        keys: &Keys,
        (purpose, to): (Purpose, u16),
        timeout: Duration,
    ) -> io::Result<(Self, u16)> {
        let mut incoming = Incoming::new(socket);
        let deadline = Instant::now() + timeout;
        let refused = |refusal| io::Error::new(ErrorKind::PermissionDenied, refusal);
        while !incoming.advance(keys, (&[purpose], to)).map_err(refused)? {
            wait_until(deadline, incoming.as_fd(), incoming.wants_to_send())?;
        }
        let (sealed, ends) = incoming.open().ok_or(ErrorKind::PermissionDenied)?;
        Ok((Self { sealed, timeout }, ends.from))
    }

    /// Changes the time for each call.
    pub fn set_timeout(&mut self, timeout: Duration) {
        self.timeout = timeout;
    }

    /// The socket below, for instance to end both directions from another thread's copy.
    pub fn socket(&self) -> &Socket {
        self.sealed.wire()
    }

    /// The stream alone, whose calls never wait.
    pub fn into_sealed(self) -> Sealed<Socket> {
        self.sealed
    }

    /// Calls `step` until it has a result, and waits between.
    fn wait(
        &mut self,
        mut step: impl FnMut(&mut Sealed<Socket>) -> Option<io::Result<usize>>,
    ) -> io::Result<usize> {
        let deadline = Instant::now() + self.timeout;
        loop {
            if let Some(result) = step(&mut self.sealed) {
                return result;
            }
            wait_until(deadline, self.sealed.as_fd(), self.sealed.wants_to_send())?;
        }
    }
}

impl Read for Blocking {
    /// No bytes mean that the other end has closed, between two frames. After [`ErrorKind::TimedOut`], the stream can be
    /// read on.
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.wait(|sealed| match sealed.receive(buffer) {
            Progress::Bytes(count) => Some(Ok(count)),
            Progress::Blocked => None,
            Progress::Closed if !sealed.is_open() => Some(Err(ErrorKind::InvalidData.into())),
            Progress::Closed if sealed.is_within_frame() => Some(Err(ErrorKind::UnexpectedEof.into())),
            Progress::Closed => Some(Ok(0)),
        })
    }
}

impl Write for Blocking {
    /// An error ends the stream, also [`ErrorKind::TimedOut`]: a part of the bytes may have left.
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.wait(|sealed| match sealed.send(bytes) {
            Progress::Bytes(count) => Some(Ok(count)),
            Progress::Blocked => None,
            Progress::Closed => Some(Err(ErrorKind::BrokenPipe.into())),
        });
        written.inspect_err(|_| self.sealed.break_off())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl AsFd for Blocking {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.sealed.as_fd()
    }
}

/// Waits until the socket has news, or room for what waits to be sent.
pub(crate) fn wait_until(deadline: Instant, descriptor: BorrowedFd<'_>, sends: bool) -> io::Result<()> {
    let left = deadline.saturating_duration_since(Instant::now());
    if left.is_zero() {
        return Err(ErrorKind::TimedOut.into());
    }
    let interest = if sends { Interest::Write } else { Interest::Read };
    wait_ready(descriptor, interest, Wait::For(left)).map(|_| ())
}
