//! Waiting for several descriptors at once.

use std::{io, os::fd::BorrowedFd};

use rustix::{
    event::{PollFd, PollFlags, poll},
    io::Errno,
};

use crate::{Wait, epoll::timespec};

/// Waits until one of `descriptors` is readable and says whether one is.
///
/// # Errors
/// Only what makes waiting impossible; a signal counts as nothing being readable.
pub fn wait_readable(descriptors: &[BorrowedFd<'_>], wait: Wait) -> io::Result<bool> {
    let mut entries: Vec<_> = descriptors.iter().map(|fd| PollFd::new(fd, PollFlags::IN)).collect();
    match poll(&mut entries, Some(&timespec(wait))) {
        Ok(ready) => Ok(ready > 0),
        Err(Errno::INTR) => Ok(false),
        Err(error) => Err(error.into()),
    }
}
