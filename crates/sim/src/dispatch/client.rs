//! What a client's processor does, where that takes time.

use std::collections::VecDeque;

use super::workload::Request;

/// One thing that a client has to do.
#[derive(Clone, Copy, Debug)]
pub(super) enum Job {
    Send(Request),
    Receive(Part),
}

/// A part of a reply.
#[derive(Clone, Copy, Debug)]
pub(super) struct Part {
    pub(super) request: Request,
    pub(super) value_bytes: u64,
    pub(super) is_last: bool,
}

/// A client: it does one thing after the other.
#[derive(Clone, Debug, Default)]
pub(super) struct Client {
    /// The first one is under way.
    pub(super) jobs: VecDeque<Job>,
}
