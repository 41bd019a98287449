//! The work of a client's processor, where it takes time.

use std::collections::VecDeque;

use super::{processor::Processor, workload::Request};
use crate::Ticks;

/// A client's job.
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

/// A client, which does one job after the other.
#[derive(Clone, Debug)]
pub(super) struct Client {
    /// The first one is under way.
    pub(super) jobs: VecDeque<Job>,
    pub(super) processor: Processor,
    pub(super) busy: Ticks,
    /// Of `busy`, for sending.
    pub(super) sending: Ticks,
}

impl Client {
    pub(super) fn new(processor: Processor) -> Self {
        Self { jobs: VecDeque::new(), processor, busy: 0, sending: 0 }
    }
}
