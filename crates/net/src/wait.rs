//! Waiting for several descriptors at once.

use std::{io, os::fd::BorrowedFd};

use arrayvec::ArrayVec;
use minos_base::limits::WORKERS_MAX;
use rustix::{
    event::{PollFd, PollFlags, poll},
    io::Errno,
};

use crate::{Interest, Wait, epoll::timespec};

/// Descriptors that can be waited for at once: two for each RX queue, for connections and
/// datagrams, and a few of the thread's own.
pub const WAIT_MAX: usize = 2 * WORKERS_MAX + 6;

/// The descriptors of a wait that are readable or have an error.
#[derive(Clone, Copy, Debug, Default)]
pub struct Readable {
    bits: [u64; WAIT_MAX.div_ceil(64)],
}

impl Readable {
    /// True if the descriptor at `position` is among them.
    pub fn contains(&self, position: usize) -> bool {
        self.bits.get(position / 64).is_some_and(|bits| bits >> (position % 64) & 1 == 1)
    }

    /// True if there is none.
    pub fn is_empty(&self) -> bool {
        self.bits.iter().all(|&bits| bits == 0)
    }
}

/// The descriptors of one wait, at most [`WAIT_MAX`].
#[derive(Default)]
pub struct WaitSet<'fd> {
    entries: ArrayVec<PollFd<'fd>, WAIT_MAX>,
}

impl<'fd> WaitSet<'fd> {
    /// Adds a descriptor; its position is the number of those added before it.
    ///
    /// # Panics
    /// If there are [`WAIT_MAX`] already.
    #[inline]
    pub fn add(&mut self, descriptor: BorrowedFd<'fd>) {
        self.entries.push(PollFd::from_borrowed_fd(descriptor, PollFlags::IN));
    }

    /// Waits until one of the descriptors is readable; returns the readable ones.
    ///
    /// # Errors
    /// Only errors that make waiting impossible; after a signal none is readable.
    pub fn wait(&mut self, wait: Wait) -> io::Result<Readable> {
        let mut readable = Readable::default();
        match poll(&mut self.entries, Some(&timespec(wait))) {
            Ok(_) => {}
            Err(Errno::INTR) => return Ok(readable),
            Err(error) => return Err(error.into()),
        }
        for (position, entry) in self.entries.iter().enumerate() {
            readable.bits[position / 64] |= u64::from(!entry.revents().is_empty()) << (position % 64);
        }
        Ok(readable)
    }
}

/// Waits until `descriptor` is ready for one of the events of `interest`, or has an error; false after `wait`.
///
/// # Errors
/// Only errors that make waiting impossible; a signal ends the wait like its time.
pub fn wait_ready(descriptor: BorrowedFd<'_>, interest: Interest, wait: Wait) -> io::Result<bool> {
    let flags = match interest {
        Interest::Read => PollFlags::IN,
        Interest::ReadWrite => PollFlags::IN | PollFlags::OUT,
        Interest::Write => PollFlags::OUT,
    };
    match poll(&mut [PollFd::from_borrowed_fd(descriptor, flags)], Some(&timespec(wait))) {
        Ok(ready) => Ok(ready > 0),
        Err(Errno::INTR) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// Waits until one of `descriptors`, at most [`WAIT_MAX`], is readable; returns true if any is.
///
/// # Errors
/// As [`WaitSet::wait`].
pub fn wait_readable(descriptors: &[BorrowedFd<'_>], wait: Wait) -> io::Result<bool> {
    let mut set = WaitSet::default();
    descriptors.iter().for_each(|&descriptor| set.add(descriptor));
    set.wait(wait).map(|readable| !readable.is_empty())
}

#[cfg(test)]
mod tests {
    use std::{io::Write, os::fd::AsFd};

    use super::*;

    #[test]
    fn says_which_are_readable() {
        let pipes: Vec<_> = (0..70).map(|_| std::io::pipe().unwrap()).collect();
        let mut set = WaitSet::default();
        pipes.iter().for_each(|(reader, _)| set.add(reader.as_fd()));
        assert!(set.wait(Wait::No).unwrap().is_empty());
        for written in [3, 64, 69] {
            (&pipes[written].1).write_all(b"x").unwrap();
        }
        let readable = set.wait(Wait::No).unwrap();
        let found: Vec<_> = (0..WAIT_MAX).filter(|&position| readable.contains(position)).collect();
        assert_eq!(found, [3, 64, 69]);
    }
}
