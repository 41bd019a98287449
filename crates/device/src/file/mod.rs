//! Files and block devices.

mod open;
mod queue;
mod ring;
mod threads;

use std::os::fd::OwnedFd;

pub(crate) use open::open;
pub use open::{DriverChoice, FileOptions, OpenError};
pub(crate) use ring::RingLane;
pub(crate) use threads::ThreadLane;

use crate::Facts;

/// An open file or block device, locked for this process.
#[derive(Debug)]
pub(crate) struct FileMedium {
    pub(crate) fd: OwnedFd,
    pub(crate) facts: Facts,
}
