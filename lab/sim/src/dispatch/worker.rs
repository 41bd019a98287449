//! The state of one worker.

use std::collections::VecDeque;

use minos_base::limits::WORKERS_MAX;
use minos_sched::{Seen, WorkerId};
use serde::Serialize;

use super::{processor::Processor, workload::Request};
use crate::Ticks;

const _: () = assert!(WORKERS_MAX <= u8::MAX as usize);

/// A worker's load over a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct WorkerLoad {
    /// Requests that it answered.
    pub requests: u64,
    /// Packets that it received and sent.
    pub packets: u64,
    /// Share of the time that it was busy.
    pub busy: f64,
    /// Share of the time that it moved bytes of values above the threshold, pauses left out.
    pub moving: f64,
    /// Share of the time that it waited for room in a TX queue, which is a part of `busy`.
    pub blocked: f64,
}

/// A worker between two events.
#[derive(Debug)]
pub(super) struct Worker {
    /// Dequeued, not yet placed. Helpers may take from here.
    pub(super) hands: VecDeque<Request>,
    /// Large requests that it serves slices of.
    pub(super) held: VecDeque<Request>,
    pub(super) doing: Doing,
    /// The state it has seen in the current turn, if a turn is under way.
    pub(super) seen: Option<Seen>,
    pub(super) processor: Processor,
    /// True if it was idle and has served nothing since.
    pub(super) was_idle: bool,
    /// True if something was received and nothing sent since.
    pub(super) owes_send: bool,
    /// The worker at which polling the others begins.
    pub(super) turn: usize,
    pub(super) busy: Ticks,
    pub(super) moving: Ticks,
    /// Of `busy`, waiting for room in a TX queue.
    pub(super) blocked: Ticks,
    pub(super) load: WorkerLoad,
}

/// The activity that ends with a worker's next event.
#[derive(Clone, Copy, Debug)]
pub(super) enum Doing {
    /// A look at queues or rings.
    Looked,
    /// Some packets of a reply.
    Served {
        request: Request,
        /// Value bytes in these packets.
        bytes: u64,
        /// Value bytes after them.
        bytes_left: u64,
        /// The worker looks at its queues and rings before it makes the rest.
        in_slices: bool,
    },
    /// A request's way into a ring.
    Passed { request: Request, ring: WorkerId },
}

impl Worker {
    /// A worker that begins to poll the others at `turn`.
    pub(super) fn new(processor: Processor, turn: usize) -> Self {
        Self {
            hands: VecDeque::new(),
            held: VecDeque::new(),
            doing: Doing::Looked,
            seen: None,
            processor,
            was_idle: true,
            owes_send: false,
            turn,
            busy: 0,
            moving: 0,
            blocked: 0,
            load: WorkerLoad::default(),
        }
    }
}
