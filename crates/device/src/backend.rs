//! The inner interface of the implementations: transfers without tags, bounds or order.

use std::{io, os::fd::BorrowedFd, time::Duration};

use rustix::io::Errno;

use crate::Buffer;

/// A transfer that its lane has checked. The slot names it.
#[derive(Debug)]
pub(crate) struct Job {
    /// Below the lane's depth; no two jobs in flight have the same.
    pub(crate) slot: u32,
    pub(crate) work: Work,
}

/// The work of a [`Job`].
#[derive(Debug)]
pub(crate) enum Work {
    Read(u64, Buffer),
    Write(u64, Buffer),
    Flush,
}

/// A job that has ended.
#[derive(Debug)]
pub(crate) struct Done {
    pub(crate) slot: u32,
    pub(crate) buffer: Option<Buffer>,
    /// Bytes transferred.
    pub(crate) result: Result<usize, Errno>,
}

/// One lane of an implementation.
pub(crate) trait Backend {
    /// Queues a job. The lane bounds their number by its depth.
    fn start(&mut self, job: Job);

    /// Starts what is queued: one system call at most, which does not wait.
    fn submit(&mut self) -> io::Result<()>;

    /// Starts what is queued, and waits until `least` jobs in flight have ended or the time is over.
    fn wait(&mut self, least: usize, timeout: Duration) -> io::Result<()>;

    /// Appends jobs that have ended.
    fn reap(&mut self, done: &mut Vec<Done>) -> io::Result<()>;

    /// From now on the descriptor becomes readable when a job ends.
    fn prepare(&mut self) -> io::Result<()>;

    fn descriptor(&self) -> BorrowedFd<'_>;

    /// Gives up jobs in flight, whose memory must stay for good.
    fn abandon(&mut self);
}
