//! Requests to a device and their results.

use std::io;

use rustix::io::Errno;

use crate::Buffer;

/// A request to a device. Its owner chooses the tag and finds it in the [`Completion`].
///
/// Requests in flight at the same time may be executed in any order; if they overlap and one of them writes, any of
/// the possible results may be seen.
#[derive(Debug)]
pub struct Request {
    /// Names the request.
    pub tag: u64,
    /// The work to do.
    pub operation: Operation,
}

/// The work of a [`Request`].
#[derive(Debug)]
pub enum Operation {
    /// Fills the buffer from the device.
    Read {
        /// Position on the device, a multiple of the block size of reads.
        offset: u64,
        /// Filled up to its length, a multiple of it too.
        buffer: Buffer,
    },
    /// Writes the buffer to the device.
    Write {
        /// Position on the device, a multiple of the block size.
        offset: u64,
        /// Written up to its length.
        buffer: Buffer,
    },
    /// Makes durable every write that this lane was given before it and every write of other lanes that had completed.
    /// Requests behind it do not wait for it.
    Flush,
}

impl Request {
    /// A read of `buffer.len()` bytes.
    pub fn read(tag: u64, offset: u64, buffer: Buffer) -> Self {
        Self { tag, operation: Operation::Read { offset, buffer } }
    }

    /// A write of `buffer.len()` bytes.
    pub fn write(tag: u64, offset: u64, buffer: Buffer) -> Self {
        Self { tag, operation: Operation::Write { offset, buffer } }
    }

    /// A flush (fdatasync).
    pub fn flush(tag: u64) -> Self {
        Self { tag, operation: Operation::Flush }
    }
}

/// A request that has ended.
#[derive(Debug)]
pub struct Completion {
    /// The tag of the request.
    pub tag: u64,
    /// The buffer of the request; a flush has none. After a read that failed its bytes are unspecified.
    pub buffer: Option<Buffer>,
    /// The request was executed to the end, or its failure.
    pub result: Result<(), Error>,
}

/// The failure of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The device or the kernel failed, with this error number. A write may have been executed in part.
    #[error("the device failed: {}", io::Error::from_raw_os_error(*.0))]
    Io(i32),
    /// Only so many bytes, from the front, were transferred.
    #[error("only {bytes} bytes were transferred")]
    Short {
        /// Bytes transferred.
        bytes: usize,
    },
    /// The file system below a file is full, or a quota is used up.
    #[error("no space is left below the device")]
    NoSpace,
    /// The device is no longer there: all later requests will fail too.
    #[error("the device is gone")]
    Gone,
    /// The request reaches beyond the capacity.
    #[error("the request reaches beyond the device")]
    OutOfRange,
    /// Offset or length is no multiple of the block size, or the length is zero.
    #[error("offset or length is no multiple of the block size")]
    Misaligned,
    /// A write or flush to a device that was opened to read only.
    #[error("the device was opened to read only")]
    ReadOnly,
}

impl From<Errno> for Error {
    fn from(error: Errno) -> Self {
        match error {
            Errno::NOSPC | Errno::DQUOT => Self::NoSpace,
            Errno::NODEV | Errno::NXIO | Errno::NOMEDIUM | Errno::SHUTDOWN => Self::Gone,
            error => Self::Io(error.raw_os_error()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_told_apart() {
        assert_eq!(Error::from(Errno::NOSPC), Error::NoSpace);
        assert_eq!(Error::from(Errno::NODEV), Error::Gone);
        assert_eq!(Error::from(Errno::IO), Error::Io(5));
        assert!(Error::Io(5).to_string().contains("Input/output error"));
    }
}
