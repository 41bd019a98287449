//! A sealed stream that one thread reads while another writes.

use std::{
    io::{self, ErrorKind},
    os::fd::{AsFd, OwnedFd},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use minos_net::{Progress, Socket};

use crate::{Sealed, blocking::wait_until};

/// Longest wait without a look at the stream.
const LOOK_EVERY: Duration = Duration::from_secs(3600);

/// A sealed stream for one thread that receives and one that sends. Neither holds up the other: nobody waits for the
/// socket with the lock.
#[derive(Clone, Debug)]
pub struct Duplex {
    ends: Arc<Ends>,
}

#[derive(Debug)]
struct Ends {
    sealed: Mutex<Sealed<Socket>>,
    /// The same socket, to wait for.
    socket: OwnedFd,
}

impl Duplex {
    /// Shares a stream that is open.
    ///
    /// # Errors
    /// There are no more descriptors.
    pub fn new(sealed: Sealed<Socket>) -> io::Result<Self> {
        let socket = sealed.as_fd().try_clone_to_owned()?;
        Ok(Self { ends: Arc::new(Ends { sealed: Mutex::new(sealed), socket }) })
    }

    /// Receives at least a byte; none at the end of the stream. Without a time it waits until the stream ends.
    ///
    /// # Errors
    /// [`ErrorKind::TimedOut`], after which the stream can be read on, or the stream was changed or broken off.
    pub fn receive(&self, buffer: &mut [u8], timeout: Option<Duration>) -> io::Result<usize> {
        let deadline = timeout.map(|timeout| Instant::now() + timeout);
        loop {
            let mut sealed = self.sealed();
            match sealed.receive(buffer) {
                Progress::Bytes(count) => return Ok(count),
                Progress::Closed if !sealed.is_open() => return Err(ErrorKind::InvalidData.into()),
                Progress::Closed if sealed.is_within_frame() => return Err(ErrorKind::UnexpectedEof.into()),
                Progress::Closed => return Ok(0),
                Progress::Blocked => {}
            }
            drop(sealed);
            let until = deadline.unwrap_or_else(|| Instant::now() + LOOK_EVERY);
            wait_until(until, self.ends.socket.as_fd(), false)?;
        }
    }

    /// Sends all bytes within `timeout`.
    ///
    /// # Errors
    /// [`ErrorKind::TimedOut`] or [`ErrorKind::BrokenPipe`]. The stream has ended: a part of the bytes may have left.
    pub fn send(&self, mut bytes: &[u8], timeout: Duration) -> io::Result<()> {
        let deadline = Instant::now() + timeout;
        while !bytes.is_empty() {
            // The lock is given back before the wait.
            let progress = self.sealed().send(bytes);
            let sent = match progress {
                Progress::Bytes(sent) => Ok(sent),
                Progress::Blocked => wait_until(deadline, self.ends.socket.as_fd(), true).map(|()| 0),
                Progress::Closed => Err(ErrorKind::BrokenPipe.into()),
            };
            bytes = &bytes[sent.inspect_err(|_| self.break_off())?..];
        }
        Ok(())
    }

    /// Ends both directions, also for the other thread.
    pub fn break_off(&self) {
        self.sealed().break_off();
    }

    fn sealed(&self) -> MutexGuard<'_, Sealed<Socket>> {
        // After a panic its user is gone, and the other end finds out.
        self.ends.sealed.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
