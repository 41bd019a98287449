//! What one worker is doing.

use std::collections::VecDeque;

use minos_base::limits::WORKERS_MAX;
use minos_sched::{Dispatch, Help, Plan, Pulls, WorkerId, WorkerSet};
use serde::Serialize;

use super::workload::Request;
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
}

/// A worker between two events.
#[derive(Debug)]
pub(super) struct Worker {
    /// Taken from an RX queue, not yet placed.
    pub(super) hands: VecDeque<Request>,
    pub(super) step: Step,
    /// Whether the next thing is to take from rings; else to take from RX queues.
    pub(super) pulls_next: bool,
    /// Where a look round the others begins.
    pub(super) turn: usize,
    /// Time spent since the plan was made, for a worker whose time is split.
    pub(super) spent_small: Ticks,
    pub(super) spent_large: Ticks,
    pub(super) busy: Ticks,
    pub(super) load: WorkerLoad,
}

/// What ends with a worker's next event.
#[derive(Clone, Copy, Debug)]
pub(super) enum Step {
    /// A look round.
    Looked,
    /// Some packets of a reply.
    Served {
        request: Request,
        /// Value bytes in these packets.
        bytes: u64,
        /// Value bytes after them.
        bytes_left: u64,
    },
    /// A request's way into a ring.
    Passed { request: Request, ring: WorkerId },
}

impl Worker {
    pub(super) fn new() -> Self {
        Self {
            hands: VecDeque::new(),
            step: Step::Looked,
            pulls_next: false,
            turn: 0,
            spent_small: 0,
            spent_large: 0,
            busy: 0,
            load: WorkerLoad::default(),
        }
    }
}

/// A discipline's answers under one plan, asked once and turned around: who comes for what.
#[derive(Debug)]
pub(super) struct Answers {
    /// For each worker the RX queues that it polls, and how many requests it takes at most.
    pub(super) shares: Vec<Vec<(WorkerId, usize)>>,
    pub(super) pulls: Vec<Pulls>,
    pub(super) helps: Vec<Help>,
    /// For each RX queue those who poll it.
    pub(super) takers: Vec<WorkerSet>,
    /// For each RX queue those who help out.
    pub(super) helpers: Vec<WorkerSet>,
    /// For each ring those who take from it.
    pub(super) pullers: Vec<WorkerSet>,
}

impl Answers {
    pub(super) fn of<D: Dispatch>(plan: &Plan) -> Self {
        let ids = || (0..plan.workers()).map(|index| WorkerId(index as u16));
        let pulls: Vec<_> = ids().map(|worker| D::pulls(plan, worker)).collect();
        let helps: Vec<_> = ids().map(|worker| D::help(plan, worker)).collect();
        let share = |worker, queue| D::share(plan, worker, queue);
        let helps_with = |helper: WorkerId, queue: WorkerId| match helps[helper.index()] {
            Help::No => false,
            Help::Own => helper == queue,
            Help::Burst | Help::Any | Help::Share { .. } => true,
        };
        let shares_of = |worker| {
            let shares = ids().map(|queue| (queue, share(worker, queue)));
            shares.filter(|&(_, most)| most > 0).collect()
        };
        Self {
            shares: ids().map(shares_of).collect(),
            takers: ids().map(|queue| ids().filter(|&worker| share(worker, queue) > 0).collect()).collect(),
            helpers: ids().map(|queue| ids().filter(|&worker| helps_with(worker, queue)).collect()).collect(),
            pullers: ids()
                .map(|ring| {
                    let pulls_from = |worker: &WorkerId| {
                        let pulls = pulls[worker.index()];
                        pulls.first.or(pulls.then).contains(ring)
                    };
                    ids().filter(pulls_from).collect()
                })
                .collect(),
            pulls,
            helps,
        }
    }
}
