//! What wakes the control thread: requests of the operator, and work after a rest.

use std::{
    os::fd::{AsFd, BorrowedFd},
    sync::{
        atomic::{AtomicBool, Ordering::Relaxed},
        mpsc,
    },
    time::Duration,
};

use minos_net::Waker;
use minos_sched::Policy;
use parking_lot::Mutex;

use super::config::{DispatchChoice, InvalidOption};

/// Longest wait for the workers to take up another design.
pub(super) const SWITCH_MAX: Duration = Duration::from_secs(5);

/// Why a server did not switch to another design.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum SwitchError {
    /// It cannot run under the options that the server was started with.
    #[error(transparent)]
    Option(#[from] InvalidOption),
    /// Another switch is under way.
    #[error("another switch is under way")]
    Busy,
    /// The server is stopping.
    #[error("the server is stopping")]
    Stopping,
    /// The design is in force, but a busy worker has not taken it up yet.
    #[error("not every worker has taken up the design within {SWITCH_MAX:?}; it will")]
    Slow,
}

/// A request for another design.
pub(crate) struct Switch {
    pub(crate) choice: DispatchChoice,
    pub(crate) policy: Policy,
    /// Receives the version of the first plan.
    pub(crate) published: mpsc::Sender<u64>,
}

/// Requests that wait for the control thread.
pub(crate) struct Mailbox {
    content: Mutex<Content>,
    /// The control thread ends no epochs until a worker has worked.
    rests: AtomicBool,
    waker: Waker,
}

enum Content {
    Empty,
    Switch(Box<Switch>),
    /// The control thread takes no more requests.
    Closed,
}

impl Mailbox {
    /// # Errors
    /// No descriptor is left.
    pub(crate) fn new() -> std::io::Result<Self> {
        let waker = Waker::new()?;
        // The control thread sleeps nearly always, so every request wakes it.
        waker.prepare();
        Ok(Self { content: Mutex::new(Content::Empty), rests: AtomicBool::new(false), waker })
    }

    /// Readable when there is a request.
    pub(crate) fn descriptor(&self) -> BorrowedFd<'_> {
        self.waker.as_fd()
    }

    pub(super) fn put(&self, switch: Switch) -> Result<(), SwitchError> {
        let mut content = self.content.lock();
        match *content {
            Content::Empty => *content = Content::Switch(Box::new(switch)),
            Content::Switch(_) => return Err(SwitchError::Busy),
            Content::Closed => return Err(SwitchError::Stopping),
        }
        self.waker.wake();
        Ok(())
    }

    /// Takes the request that waits. Whoever wakes the control thread from now on ends its next sleep.
    pub(crate) fn take(&self) -> Option<Switch> {
        self.waker.drain();
        self.waker.prepare();
        let mut content = self.content.lock();
        if !matches!(*content, Content::Switch(_)) {
            return None;
        }
        match std::mem::replace(&mut *content, Content::Empty) {
            Content::Switch(switch) => Some(*switch),
            Content::Empty | Content::Closed => None,
        }
    }

    /// Ends the sleep of the control thread, so that it looks at its timers.
    pub(crate) fn wake(&self) {
        self.waker.wake();
    }

    /// Announces that the control thread ends no epochs until it is called.
    pub(crate) fn rest(&self) {
        self.rests.store(true, Relaxed);
    }

    /// True until the control thread is called.
    pub(crate) fn rests(&self) -> bool {
        self.rests.load(Relaxed)
    }

    /// Ends the rest of the control thread, because a worker has worked.
    #[inline]
    pub(crate) fn call(&self) {
        // Relaxed: a worker that does not see the rest yet sees it after a later turn.
        if self.rests() && self.rests.swap(false, Relaxed) {
            self.waker.wake();
        }
    }

    /// Refuses further requests and drops a waiting one.
    pub(crate) fn close(&self) {
        *self.content.lock() = Content::Closed;
    }
}
