//! A request to stop a server.

use std::{
    io::{PipeReader, PipeWriter, Write},
    os::fd::{AsFd, BorrowedFd},
    sync::atomic::{AtomicBool, Ordering},
};

/// A request to stop a server.
#[derive(Debug)]
pub struct Stop {
    requested: AtomicBool,
    /// True if transfers in progress are to be aborted.
    at_once: AtomicBool,
    /// True if items that a store had acknowledged are lost.
    has_lost: AtomicBool,
    /// Readable once a stop was requested. A pipe, so that a signal handler may write to it.
    reader: PipeReader,
    writer: PipeWriter,
}

impl Stop {
    /// Creates the handle; no stop is requested yet.
    ///
    /// # Errors
    /// No descriptor is left.
    pub fn new() -> std::io::Result<Self> {
        let (reader, writer) = std::io::pipe()?;
        let (requested, at_once, has_lost) = Default::default();
        Ok(Self { requested, at_once, has_lost, reader, writer })
    }

    /// Asks the server to stop.
    pub fn request(&self) {
        if !self.requested.swap(true, Ordering::Relaxed) {
            // The first byte always finds room. Sleeping threads watch the other end.
            let _ = (&self.writer).write_all(b"s");
        }
    }

    /// Asks the server to stop and abort transfers in progress.
    pub fn request_at_once(&self) {
        self.at_once.store(true, Ordering::Relaxed);
        self.request();
    }

    /// True if transfers in progress are to be aborted.
    pub fn is_at_once(&self) -> bool {
        self.at_once.load(Ordering::Relaxed)
    }

    /// True if a stop was requested.
    pub fn is_requested(&self) -> bool {
        self.requested.load(Ordering::Relaxed)
    }

    /// True, once the server has ended, if items are lost that a store had acknowledged, because flash did not take them.
    pub fn has_lost(&self) -> bool {
        self.has_lost.load(Ordering::Relaxed)
    }

    /// Notes such a loss.
    pub(super) fn note_loss(&self) {
        self.has_lost.store(true, Ordering::Relaxed);
    }

    /// Readable once a stop was requested.
    pub(crate) fn descriptor(&self) -> BorrowedFd<'_> {
        self.reader.as_fd()
    }
}
