//! Operations driven by the caller's event loop.

use std::{
    os::fd::{AsFd, BorrowedFd},
    time::Duration,
};

use super::Client;
use crate::{
    Error, Request,
    core::{Completion, Full, OpId},
};

impl Client {
    /// Starts an operation, which the next [`step`](Self::step) sends.
    ///
    /// # Errors
    /// [`Full`]: the limit of unfinished operations is reached.
    pub fn start(&mut self, request: Request) -> Result<OpId, Full> {
        if self.ended.len() >= self.wire.core.room() {
            return Err(Full(request));
        }
        let now_ns = self.wire.now_ns();
        self.has_unsent = true;
        self.wire.core.submit(request.timeout_or(self.timeout), now_ns)
    }

    /// Sends pending datagrams and receives those that have arrived. Never waits.
    ///
    /// # Errors
    /// [`Error::Io`]: the socket has failed.
    pub fn step(&mut self) -> Result<(), Error> {
        self.has_unsent = false;
        self.wire.core.flush();
        self.wire.flush();
        if self.wire.drain()? {
            self.wire.flush();
        }
        while let Some(completion) = self.wire.poll_completion() {
            self.keep(completion);
        }
        Ok(())
    }

    /// Takes the completion of the next started operation that has ended.
    pub fn take_ended(&mut self) -> Option<Completion> {
        self.ended.pop_front()
    }

    /// Time until the next [`step`](Self::step) is due even without input; `None` if none is due.
    pub fn until_next(&self) -> Option<Duration> {
        if self.has_unsent || !self.ended.is_empty() { Some(Duration::ZERO) } else { self.wire.until_next() }
    }
}

impl AsFd for Client {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.wire.as_fd()
    }
}
