//! The large transfers of one worker.

use std::{
    collections::VecDeque,
    sync::Arc,
    time::{Duration, Instant},
};

use minos_engine::Mode;
use minos_sched::WorkerId;
use siphasher::sip::SipHasher24;

use super::{
    bounds::TransferBounds,
    budget::{Budget, BudgetBounds},
    data::DataSender,
    slot::{HeldStore, Slot},
};
use crate::{
    datagram::native::{Seals, Sessions, counters::TransferCounters},
    ops::{Context, Fetch},
    server::config::TRANSFERS_PER_WORKER,
};

/// The bounds of one worker's transfers, and its identity.
#[derive(Clone, Debug)]
pub(crate) struct TransfersConfig {
    pub(crate) queue: u16,
    /// Fragments in flight at once.
    pub(crate) window: u16,
    /// Bounds on the bytes sent in one burst.
    pub(crate) budget: BudgetBounds,
    /// Time for a window of a store, after which the store is given up; also the time for which the outcome
    /// of a store is kept.
    pub(crate) timeout: Duration,
    /// The keys that seal datagrams.
    pub(crate) seals: Option<Arc<Seals>>,
    /// Makes names of transfers that cannot be guessed, even from many known ones.
    pub(crate) names: SipHasher24,
}

/// There is no room for another store in slices.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NoRoom;

/// Why a store was neither begun nor answered.
#[derive(Clone, Copy, Debug)]
pub(crate) enum NotBegunHere {
    /// Another worker has begun it under the same number. Only that worker knows the grant, whatever the plan says
    /// now.
    BegunAt(WorkerId),
    /// There is no room for its value until flash has taken items.
    NoRoomYet,
}

/// The environment that a worker gives its transfers for one call.
pub(crate) struct Around<'a, 'c, M: Mode, P> {
    pub(crate) cx: &'a Context<'c, M, P>,
    pub(crate) sessions: &'a Sessions,
    pub(crate) worker: WorkerId,
    pub(crate) now: Instant,
    /// True if the server is stopping: no transfer may begin.
    pub(crate) is_draining: bool,
    /// True if the outcome of a store waits until it is durable.
    pub(crate) holds_replies: bool,
}

/// The large transfers of one worker.
pub(crate) struct Transfers<M: Mode> {
    pub(super) config: TransfersConfig,
    pub(super) bounds: Arc<TransferBounds>,
    pub(super) counters: Arc<TransferCounters>,
    pub(super) slots: Vec<Option<Slot<M>>>,
    /// Those that are still arriving.
    pub(crate) open: usize,
    /// Slots of stores whose value has arrived and is being copied, the next one first.
    pub(super) copying: VecDeque<usize>,
    /// Names of stores whose value has arrived and that need an item from flash, and their fetches.
    pub(crate) cold: Vec<(u64, Fetch<M>)>,
    /// Outcomes that wait until their stores are durable.
    pub(crate) held: Vec<HeldStore>,
    /// Stores begun so far.
    pub(super) begun: u64,
    /// Calls so far that suggest that more follow soon.
    pub(crate) activity: u64,
    pub(super) data: DataSender,
    pub(super) budget: Budget,
    /// Where answers are composed.
    pub(super) datagram: Vec<u8>,
}

impl<M: Mode> Transfers<M> {
    /// A worker without transfers.
    pub(crate) fn new(
        config: TransfersConfig,
        bounds: Arc<TransferBounds>,
        counters: Arc<TransferCounters>,
    ) -> Self {
        Self {
            budget: Budget::new(config.budget),
            config,
            bounds,
            counters,
            slots: Vec::new(),
            open: 0,
            copying: VecDeque::with_capacity(TRANSFERS_PER_WORKER),
            cold: Vec::new(),
            held: Vec::new(),
            begun: 0,
            activity: 0,
            data: DataSender::new(),
            datagram: Vec::new(),
        }
    }
}
