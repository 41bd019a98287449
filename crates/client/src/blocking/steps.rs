//! Operations that a loop of the caller drives.

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
    /// [`Full`]: as many as may be have not ended.
    pub fn start(&mut self, request: Request) -> Result<OpId, Full> {
        if self.ended.len() >= self.wire.core.room() {
            return Err(Full(request));
        }
        let now_ns = self.wire.now_ns();
        self.has_unsent = true;
        self.wire.core.submit(request.timeout_or(self.timeout), now_ns)
    }

    /// Sends what there is to send and takes in what has arrived. Never waits.
    ///
    /// # Errors
    /// [`Error::Io`]: the socket is of no use any more.
    pub fn step(&mut self) -> Result<(), Error> {
        self.has_unsent = false;
        self.wire.core.flush();
        self.wire.flush();
        if self.wire.drain()? {
            self.wire.flush();
        }
        while let Some(completion) = self.wire.core.poll_completion() {
            self.ended.push_back(completion);
        }
        Ok(())
    }

    /// The next operation that was started and has ended.
    pub fn take_ended(&mut self) -> Option<Completion> {
        self.ended.pop_front()
    }

    /// How long until there is something to do even if nothing arrives; `None` if there is nothing.
    pub fn until_next(&self) -> Option<Duration> {
        if self.has_unsent || !self.ended.is_empty() { Some(Duration::ZERO) } else { self.wire.until_next() }
    }
}

impl AsFd for Client {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.wire.as_fd()
    }
}
