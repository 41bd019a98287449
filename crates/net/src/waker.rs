//! Waking a thread that sleeps in a poll.

use std::{
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
};

use minos_sync::SleepFlag;
use rustix::event::{EventfdFlags, eventfd};

use crate::socket::retry;

/// Wakes one thread, at the price of a system call only when that thread sleeps.
///
/// The sleeper calls [`Waker::prepare`], checks once more for work, and waits on the descriptor
/// only if there is none; then it calls [`Waker::awake`], and [`Waker::drain`] if the descriptor
/// was readable. A thread that adds work calls [`Waker::wake`] afterwards. [`SleepFlag`] explains
/// why no thread sleeps while work waits.
#[derive(Debug)]
pub struct Waker {
    fd: OwnedFd,
    sleeping: SleepFlag,
}

impl Waker {
    /// A waker whose thread is awake.
    ///
    /// # Errors
    /// No descriptor is left.
    pub fn new() -> io::Result<Self> {
        let fd = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Self { fd, sleeping: SleepFlag::new() })
    }

    /// Announces that the thread is about to sleep.
    pub fn prepare(&self) {
        self.sleeping.prepare();
    }

    /// Announces that the thread is awake.
    pub fn awake(&self) {
        self.sleeping.awake();
    }

    /// Consumes the wake-up, so that the descriptor is no longer readable.
    pub fn drain(&self) {
        let mut counter = [0u8; 8];
        // Nothing to read means that no thread has woken this one since.
        let _ = retry(|| rustix::io::read(&self.fd, &mut counter[..]));
    }

    /// Wakes the thread if it sleeps; returns true if it did.
    pub fn wake(&self) -> bool {
        let slept = self.sleeping.rouse();
        if slept {
            // It can only fail when the counter is full, and then the descriptor is readable anyway.
            let _ = retry(|| rustix::io::write(&self.fd, &1u64.to_ne_bytes()));
        }
        slept
    }

    /// True if the thread sleeps, or did a moment ago.
    pub fn is_asleep(&self) -> bool {
        self.sleeping.is_set()
    }
}

impl AsFd for Waker {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::{Wait, wait_readable};

    #[test]
    fn only_a_sleeper_is_woken() {
        let waker = Waker::new().unwrap();
        waker.wake();
        assert!(!wait_readable(&[waker.as_fd()], Wait::No).unwrap());
        waker.prepare();
        waker.wake();
        assert!(wait_readable(&[waker.as_fd()], Wait::For(Duration::from_secs(5))).unwrap());
        waker.awake();
        waker.drain();
        assert!(!wait_readable(&[waker.as_fd()], Wait::No).unwrap());
    }
}
