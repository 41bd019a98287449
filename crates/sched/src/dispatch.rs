//! What a worker asks its discipline in each turn of its loop.
//!
//! A worker, in the server as in the simulator, goes by these steps over and over:
//!
//! 1. It takes up to [`Dispatch::share`] requests from each RX queue. Each is served at once, or put in
//!    the ring of a worker, as [`Dispatch::place`] says: its own (where others may find it), that of the
//!    worker who owns its size, or one that several workers take from. Under [`Intake::WhenEmpty`] it only
//!    does so when its own ring is empty.
//! 2. It serves one request, or one slice, from the rings of [`Dispatch::pulls`]: those of the first set
//!    come first, and within a set the rings take turns.
//! 3. If it has found nothing so far, it does what [`Dispatch::help`] says.
//! 4. If that was nothing either, it takes one request from the rings of [`Dispatch::relieves`], unless large replies
//!    wait for the link already, and serves it in slices of [`RELIEF_SLICE_BYTES`]. After each slice it looks at the
//!    RX queues of step 1; if something waits there, what is left of the request goes back to the front of the ring it
//!    came from, for whoever comes next, and leaves through the TX queue in which it has begun.
//!
//! All questions are answered from the plan alone, by functions without a receiver, so that a worker
//! needs the [`Plan`] and the discipline's type but no lock, and those answers that never change are
//! constants, so that the loop of one discipline holds no branch of another. The answers to `share`,
//! `pulls` and `help` change only with the plan: a worker may ask once per plan and keep them.
//!
//! In the server a ring that belongs to one worker is drained into its set of large transfers, of which one
//! slice is served a turn; [`Answers`](crate::Answers) are asked once a plan.

use minos_base::{
    SizeClass,
    limits::{BURST_MAX, PACKET_BYTES},
};

use crate::{Discipline, Plan, Role, WorkerId, WorkerSet};

/// Value bytes of a large request that a worker with nothing else to do serves between two looks at its RX queues:
/// eight packets, which is what a small request may have to wait for.
pub const RELIEF_SLICE_BYTES: u64 = 8 * PACKET_BYTES;

/// When a worker takes requests from RX queues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Intake {
    /// In every turn.
    Always,
    /// When its own ring is empty: what it takes goes there, and waits there in sight of the others.
    WhenEmpty,
}

/// What becomes of a request that a worker has taken from an RX queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// The worker serves it at once.
    Here,
    /// It goes into the ring of a worker.
    Ring(WorkerId),
}

/// The rings that a worker takes one request at a time from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pulls {
    /// These come first, taking turns.
    pub first: WorkerSet,
    /// These if the first are empty, taking turns.
    pub then: WorkerSet,
}

/// What a worker with nothing else to do does for others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Help {
    /// It waits.
    No,
    /// It takes a burst from the RX queue of another and places it as if it were its own.
    Burst,
    /// It takes one request from its own RX queue, which others poll.
    Own,
    /// It takes one request from any RX queue. If that belongs to somebody else by size, it is handed on.
    Any,
    /// The same, and not only when there is nothing else to do: as long as small requests wait, they get
    /// so many thousandths of its time.
    Share {
        /// The small requests' part.
        small_permille: u16,
    },
}

/// A discipline as the workers see it.
pub trait Dispatch: Discipline {
    /// When RX queues are polled.
    const INTAKE: Intake;

    /// Whatever a worker takes from an RX queue goes into a ring from which several workers take, one request
    /// at a time.
    const SHARES_RINGS: bool = false;

    /// A worker's large replies leave through a TX queue of their own. Else its small replies wait behind
    /// them there, however soon they were made: what is faster than the link fills the queue.
    const SEPARATES_REPLIES: bool = false;

    /// How many requests `worker` takes at most from RX queue `queue` in a turn.
    fn share(plan: &Plan, worker: WorkerId, queue: WorkerId) -> usize;

    /// Where a request of `class` goes that `worker` has taken. If [`Discipline::PROFILES_SIZES`] is
    /// false, the class need not be known.
    fn place(plan: &Plan, worker: WorkerId, class: SizeClass) -> Place;

    /// The rings from which `worker` serves.
    fn pulls(plan: &Plan, worker: WorkerId) -> Pulls;

    /// What `worker` does when it has nothing to do.
    fn help(plan: &Plan, worker: WorkerId) -> Help;

    /// The rings whose large requests `worker` serves, a slice at a time, when there is nobody to help.
    fn relieves(_plan: &Plan, _worker: WorkerId) -> WorkerSet {
        WorkerSet::EMPTY
    }
}

/// Everything from one's own queue.
pub(crate) fn own_queue(worker: WorkerId, queue: WorkerId) -> usize {
    if worker == queue { BURST_MAX } else { 0 }
}

/// Small workers: a burst from their own queue, and B/n_s from those of the large workers (Minos §3.1).
pub(crate) fn small_workers_share(plan: &Plan, worker: WorkerId, queue: WorkerId) -> usize {
    if plan.role(worker) == Role::Large {
        0
    } else if worker == queue {
        BURST_MAX
    } else if plan.role(queue) == Role::Large {
        BURST_MAX.div_ceil(plan.small_workers().max(1))
    } else {
        0
    }
}

/// Where the plan says.
pub(crate) fn by_size(plan: &Plan, class: SizeClass) -> Place {
    // What is large and one's own goes through the ring too: the small ones at hand come first.
    plan.worker_for(class).map_or(Place::Here, Place::Ring)
}

/// Only one's own ring.
pub(crate) fn own_ring(worker: WorkerId) -> Pulls {
    Pulls { first: WorkerSet::one(worker), then: WorkerSet::EMPTY }
}
