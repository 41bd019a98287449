//! Waiting for several descriptors at once.

use std::{io, os::fd::BorrowedFd};

use arrayvec::ArrayVec;
use minos_base::limits::WORKERS_MAX;
use rustix::{
    event::{PollFd, PollFlags, poll},
    io::Errno,
};

use crate::{Wait, epoll::timespec};

/// Descriptors that can be waited for at once: two for each RX queue, for connections and datagrams, and a few of the
/// thread's own.
pub const WAIT_MAX: usize = 2 * WORKERS_MAX + 4;

/// Waits until one of `descriptors`, at most [`WAIT_MAX`], is readable and says whether one is.
///
/// # Errors
/// Only what makes waiting impossible; a signal counts as nothing being readable.
pub fn wait_readable(descriptors: &[BorrowedFd<'_>], wait: Wait) -> io::Result<bool> {
    debug_assert!(descriptors.len() <= WAIT_MAX);
    let entries = descriptors.iter().take(WAIT_MAX).map(|fd| PollFd::new(fd, PollFlags::IN));
    let mut entries: ArrayVec<_, WAIT_MAX> = entries.collect();
    match poll(&mut entries, Some(&timespec(wait))) {
        Ok(ready) => Ok(ready > 0),
        Err(Errno::INTR) => Ok(false),
        Err(error) => Err(error.into()),
    }
}
