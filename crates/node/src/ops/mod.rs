//! Operations on items, below every protocol: what they do, what they count and how they end.
//!
//! No reply is composed here. A protocol calls these, and says what came of them in its own words.

mod append;
mod arithmetic;
pub(crate) mod counters;
mod delete;
mod facts;
mod flush;
mod pending;
mod prefixes;
mod read;
pub(crate) mod receiving;
mod report;
mod store;
mod store_operation;
mod touch;

use std::{fmt::Display, sync::Arc};

use minos_base::{Clock, Seconds, SizeClass, StatsGroup};
use minos_engine::{Engine, Mode};
use minos_sched::WorkerId;

use counters::{Counters, Totals};
use receiving::ReceivePermit;

pub(crate) use arithmetic::{CountOperation, Counted, Failure, count};
pub(crate) use delete::{DeleteOperation, Deleted, delete};
pub(crate) use facts::Facts;
pub(crate) use flush::{flush, flush_if_due};
pub(crate) use pending::{PendingStore, Step};
pub(crate) use prefixes::{DELIMITER, Prefixes};
pub(crate) use read::{Read, count_get, read};
pub(crate) use report::report;
pub(crate) use store::{drop_for_too_large, item_class, store};
pub(crate) use store_operation::{StoreOperation, Stored};
pub(crate) use touch::{count_touch, touch};

/// Where requests are served, by the size of the value that they are about (Minos §3.1).
pub trait Placement {
    /// Counts a request for a value of `class` in the size histogram, and says whether this worker
    /// serves it from the transmit buffer. Called once a request.
    fn is_here(&mut self, class: SizeClass) -> bool;

    /// The same question without counting, for a request that was counted or will be.
    fn serves(&self, class: SizeClass) -> bool;

    /// The large worker whose size range holds `class`; none where it is small, or served where it arrives.
    fn home(&self, class: SizeClass) -> Option<WorkerId>;
}

/// What execution needs to know of the server as a whole, and may ask of it.
pub(crate) trait Admin {
    /// What all workers have counted since the counters were last reset.
    fn totals(&self) -> Totals;

    /// Where commands are counted by prefix, if there is such a place.
    fn prefixes(&self) -> Option<&Prefixes>;

    /// Sets the counters to zero.
    fn reset(&self);

    /// Reports what the server knows of `group` beside the commands and the store.
    fn stats(&self, group: StatsGroup, emit: &mut dyn FnMut(&str, &dyn Display));

    /// Sets how much is logged.
    fn set_verbosity(&self, level: u32);

    /// Everything stored is to be dead at `due` on the store's clock; 0 takes an earlier wish back.
    fn flush_at(&self, due: Seconds);

    /// Whether a client may end the server.
    fn allows_shutdown(&self) -> bool;

    /// Bytes of replies after which they are to be sent.
    fn replies_bytes_max(&self) -> usize;

    /// Memory for a value of `bytes` that is still arriving, unless too many are on their way.
    fn admit(&self, bytes: u64) -> Option<ReceivePermit>;
}

/// What a worker lends to the execution of one command after the other.
pub(crate) struct Context<'a, M: Mode, P> {
    /// The store.
    pub(crate) store: &'a Arc<Engine<M>>,
    /// The store's clock.
    pub(crate) clock: &'a Clock,
    /// What it shows, read once a burst.
    pub(crate) now: Seconds,
    /// The worker's counters.
    pub(crate) counters: &'a Counters,
    /// Where requests are served.
    pub(crate) placement: &'a mut P,
    /// The server.
    pub(crate) admin: &'a dyn Admin,
    /// Where commands are counted by prefix, if they are.
    pub(crate) prefixes: Option<&'a Prefixes>,
}
