//! Work that the machines ask for.

use thiserror::Error;

/// Names a piece of work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct WorkId(pub u64);

/// Work for the device. Pieces that are asked for together are independent: submit them as one vector.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Work {
    /// Write whole pages from this byte on.
    Write {
        /// The first byte, a multiple of a page.
        at: u64,
        /// Whole pages.
        bytes: Vec<u8>,
    },
    /// Read whole pages.
    Read {
        /// The first byte, a multiple of a page.
        at: u64,
        /// Bytes, whole pages.
        len: usize,
    },
    /// Make durable all writes that were completed before.
    Flush,
}

/// The device refused or failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Error)]
pub enum DeviceFailed {
    /// Below the device there was no room for what was to be written: no fault of the place.
    #[error("no space is left below the device")]
    NoSpace,
    /// Anything else.
    #[error("the device failed")]
    Broken,
}

/// The result of a piece of work: the bytes that were read, nothing for writes and flushes.
pub type Outcome<'a> = Result<&'a [u8], DeviceFailed>;

/// Gives names to work.
#[derive(Debug, Default)]
pub(crate) struct Names(u64);

impl Names {
    pub(crate) fn next(&mut self) -> WorkId {
        self.0 += 1;
        WorkId(self.0)
    }
}
