//! The native protocol over UDP: ports, bursts of datagrams, and the protocol itself in [`native`], which
//! does no I/O.

pub mod native;
mod outbound;
pub(crate) mod ports;
mod serve;

use std::time::{Duration, Instant};

use minos_base::SizeClass;
use minos_engine::Mode;
use minos_net::Port;

use self::{
    native::{NativeWorker, Waiting},
    outbound::Outbound,
};
use crate::ops::Fetch;

/// A worker's state for serving datagrams.
pub(crate) struct Datagrams<'s, M: Mode, P: Port> {
    pub(super) native: NativeWorker<'s, M>,
    pub(super) burst: P::Burst,
    pub(super) outbound: Outbound,
    /// The activity of transfers as last seen, and when it last grew.
    activity: u64,
    active_at: Option<Instant>,
}

impl<'s, M: Mode, P: Port> Datagrams<'s, M, P> {
    /// Takes over the largest small class of a plan.
    pub(crate) fn set_small_max(&self, class: SizeClass) {
        self.native.probe().set_small_max(class);
    }

    /// Looks at one request in so many from now on.
    pub(crate) fn set_one_in(&self, one_in: u32) {
        self.native.probe().set_one_in(one_in);
    }

    /// The state of a worker that receives into `burst`.
    pub(crate) fn new(native: NativeWorker<'s, M>, burst: P::Burst) -> Self {
        Self { native, burst, outbound: Outbound::default(), activity: 0, active_at: None }
    }

    /// True if a large value that has arrived is being copied.
    pub(crate) fn is_copying(&self) -> bool {
        self.native.is_copying()
    }

    /// Notes that this worker fetches for this work.
    pub(crate) fn begin_waiting(&mut self, waiting: &mut Waiting, fetch: &mut Fetch<M>) {
        self.native.begin_waiting(waiting, fetch);
    }

    /// Begins a turn with the newest routes of the rack; their version.
    pub(crate) fn refresh_rack(&mut self, now: Instant) -> Option<u64> {
        self.native.refresh_rack(now)
    }

    /// Calls `send` with each other node of the rack and the notes of reads in its memory.
    pub(crate) fn take_notes(&self, send: impl FnMut(usize, &[u8])) {
        self.native.take_notes(send);
    }

    /// Notes whether large transfers were active since the last call.
    pub(super) fn note_activity(&mut self, now: Instant) {
        let activity = self.native.transfers.activity;
        if self.activity != activity {
            self.activity = activity;
            self.active_at = Some(now);
        }
    }

    /// True if large transfers may be in progress. A worker keeps no state of transfers to clients, so it
    /// assumes that they go on if one was active in the last `time`.
    pub(super) fn is_active(&self, now: Instant, time: Duration) -> bool {
        let is_recent = |at: Instant| now.saturating_duration_since(at) < time;
        self.native.transfers_open() > 0 || self.active_at.is_some_and(is_recent)
    }
}
