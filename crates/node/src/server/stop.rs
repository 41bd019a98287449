//! The wish to stop a server.

use std::{
    io::Write,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    sync::atomic::{AtomicBool, Ordering},
};

/// The wish to stop.
#[derive(Debug)]
pub struct Stop {
    requested: AtomicBool,
    /// What is under way is to be given up.
    at_once: AtomicBool,
    /// Readable once the wish was uttered. A pipe, so that a signal handler may write to it.
    reader: OwnedFd,
    writer: OwnedFd,
}

impl Stop {
    /// Nobody wants to stop yet.
    ///
    /// # Errors
    /// No descriptor is left.
    pub fn new() -> std::io::Result<Self> {
        let (reader, writer) = std::io::pipe()?;
        Ok(Self {
            requested: AtomicBool::new(false),
            at_once: AtomicBool::new(false),
            reader: reader.into(),
            writer: writer.into(),
        })
    }

    /// Asks the server to stop.
    pub fn request(&self) {
        if !self.requested.swap(true, Ordering::Relaxed) {
            // The flag is seen within a fraction of a second even if this does not wake anybody.
            let _ = self.writer.try_clone().map(|fd| std::fs::File::from(fd).write_all(b"s"));
        }
    }

    /// Asks the server to stop without giving time to what is under way.
    pub fn request_at_once(&self) {
        self.at_once.store(true, Ordering::Relaxed);
        self.request();
    }

    /// Whether what is under way is to be given up.
    pub fn is_at_once(&self) -> bool {
        self.at_once.load(Ordering::Relaxed)
    }

    /// Whether the server was asked to stop.
    pub fn is_requested(&self) -> bool {
        self.requested.load(Ordering::Relaxed)
    }

    /// Readable once the server was asked to stop.
    pub(crate) fn descriptor(&self) -> BorrowedFd<'_> {
        self.reader.as_fd()
    }
}
