//! What a worker needs to serve datagrams.

use std::time::{Duration, Instant};

use minos_engine::Mode;
use minos_net::udp::ReceiveBurst;

use super::{native::NativeWorker, outbound::Outbound};

/// What a worker needs to serve datagrams.
pub(crate) struct Datagrams<'s, M: Mode> {
    pub(super) native: NativeWorker<'s, M>,
    pub(super) burst: ReceiveBurst,
    pub(super) outbound: Outbound,
    /// What was last known of the activity of transfers, and when it last grew.
    activity: u64,
    active_at: Option<Instant>,
}

impl<'s, M: Mode> Datagrams<'s, M> {
    pub(crate) fn new(native: NativeWorker<'s, M>) -> Self {
        Self {
            native,
            burst: ReceiveBurst::new(),
            outbound: Outbound::default(),
            activity: 0,
            active_at: None,
        }
    }

    /// Whether a large value that has arrived is being copied.
    pub(crate) fn is_copying(&self) -> bool {
        self.native.is_copying()
    }

    /// Looks whether there was a sign of a large transfer.
    pub(super) fn note_activity(&mut self, now: Instant) {
        let activity = self.native.transfer_activity();
        if self.activity != activity {
            self.activity = activity;
            self.active_at = Some(now);
        }
    }

    /// Whether large transfers are under way, as far as this worker can know: of those to clients it remembers
    /// nothing, and takes them to go on if there was a sign of one in the last `time`.
    pub(super) fn is_active(&self, now: Instant, time: Duration) -> bool {
        let is_recent = |at: Instant| now.saturating_duration_since(at) < time;
        self.native.transfers_open() > 0 || self.active_at.is_some_and(is_recent)
    }
}
