//! Waiting for several descriptors at once.

use std::{io, os::fd::BorrowedFd};

use arrayvec::ArrayVec;
use minos_base::limits::WORKERS_MAX;
use rustix::{
    event::{PollFd, PollFlags, poll},
    io::Errno,
};

use crate::{Wait, epoll::timespec};

/// Descriptors that can be waited for at once: two for each RX queue, for connections and
/// datagrams, and a few of the thread's own.
pub const WAIT_MAX: usize = 2 * WORKERS_MAX + 4;

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

/// Waits until one of `descriptors`, at most [`WAIT_MAX`], is readable; returns the readable ones.
///
/// # Errors
/// Only errors that make waiting impossible; after a signal none is readable.
pub fn wait_which(descriptors: &[BorrowedFd<'_>], wait: Wait) -> io::Result<Readable> {
    debug_assert!(descriptors.len() <= WAIT_MAX);
    let entries = descriptors.iter().take(WAIT_MAX).map(|fd| PollFd::new(fd, PollFlags::IN));
    let mut entries: ArrayVec<_, WAIT_MAX> = entries.collect();
    let mut readable = Readable::default();
    match poll(&mut entries, Some(&timespec(wait))) {
        Ok(_) => {}
        Err(Errno::INTR) => return Ok(readable),
        Err(error) => return Err(error.into()),
    }
    for (position, entry) in entries.iter().enumerate() {
        readable.bits[position / 64] |= u64::from(!entry.revents().is_empty()) << (position % 64);
    }
    Ok(readable)
}

/// As [`wait_which`]; returns true if any is readable.
///
/// # Errors
/// As [`wait_which`].
pub fn wait_readable(descriptors: &[BorrowedFd<'_>], wait: Wait) -> io::Result<bool> {
    wait_which(descriptors, wait).map(|readable| !readable.is_empty())
}

#[cfg(test)]
mod tests {
    use std::{io::Write, os::fd::AsFd};

    use super::*;

    #[test]
    fn says_which_are_readable() {
        let pipes: Vec<_> = (0..70).map(|_| std::io::pipe().unwrap()).collect();
        let descriptors: Vec<_> = pipes.iter().map(|(reader, _)| reader.as_fd()).collect();
        assert!(wait_which(&descriptors, Wait::No).unwrap().is_empty());
        for written in [3, 64, 69] {
            (&pipes[written].1).write_all(b"x").unwrap();
        }
        let readable = wait_which(&descriptors, Wait::No).unwrap();
        let found: Vec<_> = (0..WAIT_MAX).filter(|&position| readable.contains(position)).collect();
        assert_eq!(found, [3, 64, 69]);
    }
}
