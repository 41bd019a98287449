//! The descriptor of a twin that holds something back.

use std::{
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    sync::atomic::{AtomicBool, Ordering::Relaxed},
};

use rustix::event::{
    EventfdFlags,
    epoll::{self, CreateFlags, EventData, EventFlags},
    eventfd,
};

/// A descriptor that is readable while another one is, and while it is raised.
#[derive(Debug)]
pub(super) struct Signal {
    either: OwnedFd,
    raised: OwnedFd,
    is_raised: AtomicBool,
}

impl Signal {
    /// A signal over `other` that is not raised.
    pub(super) fn over(other: BorrowedFd<'_>) -> io::Result<Self> {
        let raised = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let either = epoll::create(CreateFlags::CLOEXEC)?;
        epoll::add(&either, other, EventData::new_u64(0), EventFlags::IN)?;
        epoll::add(&either, &raised, EventData::new_u64(1), EventFlags::IN)?;
        Ok(Self { either, raised, is_raised: AtomicBool::new(false) })
    }

    /// Raises it, or lowers it. One thread at a time calls this.
    pub(super) fn raise(&self, raise: bool) -> io::Result<()> {
        match (self.is_raised.swap(raise, Relaxed), raise) {
            (false, true) => rustix::io::write(&self.raised, &1u64.to_ne_bytes())?,
            (true, false) => rustix::io::read(&self.raised, &mut [0; 8])?,
            _ => 0,
        };
        Ok(())
    }

    pub(super) fn descriptor(&self) -> BorrowedFd<'_> {
        self.either.as_fd()
    }
}
