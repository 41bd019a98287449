//! How a device was opened.

use std::fmt;

/// How a device transfers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Driver {
    /// By io_uring, with a ring a lane. Completions are handled when the lane's thread asks for them (Linux 6.1).
    Ring,
    /// By io_uring, with a ring a lane. Completions are handled whenever the lane's thread is in the kernel (Linux 5.19).
    CooperativeRing,
    /// By threads that block in pread and pwrite.
    Threads,
    /// Within this process's memory.
    Memory,
    /// By a faulty twin, for tests.
    #[cfg(feature = "faulty")]
    Faulty,
}

impl Driver {
    /// Its name in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ring => "io_uring",
            Self::CooperativeRing => "io_uring (cooperative)",
            Self::Threads => "threads",
            Self::Memory => "memory",
            #[cfg(feature = "faulty")]
            Self::Faulty => "faulty twin",
        }
    }
}

impl fmt::Display for Driver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// How a device was opened, for the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Facts {
    /// How it transfers.
    pub driver: Driver,
    /// The reason for threads instead of io_uring.
    pub why_threads: Option<String>,
    /// The reason for transfers through the page cache, if it is not bypassed. A flush makes writes durable all the
    /// same.
    pub why_buffered: Option<String>,
    /// The file was missing or empty, and has got its blocks now.
    pub was_created: bool,
}

impl Facts {
    pub(crate) fn without_file(driver: Driver) -> Self {
        Self { driver, why_threads: None, why_buffered: None, was_created: false }
    }
}
