//! A worker's counters of the native protocol: of its small path, and of large transfers.

use minos_proto::native::Reason;

use crate::ops::counters::worker_counters;

worker_counters! {
    /// The counters of one worker, on cache lines of their own.
    #[repr(align(128))]
    NativeCounters, "native_":
    /// Messages received: datagrams, or trains of them.
    messages_in,
    /// Datagrams received.
    datagrams_in,
    /// Trains queued to be sent, by the small path.
    trains_out,
    /// Datagrams in them.
    datagrams_out,
    /// Operations received.
    operations,
    /// Hellos answered.
    hellos,
    /// Datagrams of an unsupported version.
    refused_version,
    /// Datagrams without a valid cookie.
    refused_cookie,
    /// Datagrams whose tag was missing or wrong.
    refused_seal,
    /// Sealed datagrams that were replayed.
    refused_replayed,
    /// Sealed datagrams of unknown sessions.
    refused_session,
    /// Malformed datagrams.
    refused_malformed,
    /// Datagrams refused because of a bound.
    refused_busy,
    /// Datagrams dropped without an answer.
    ignored,
    /// Datagrams handed to the worker they named.
    misdirected,
    /// Datagrams dropped because that worker's ring was full.
    misdirected_dropped,
    /// Operations handed to the large worker of their size.
    large_handed_over,
    /// Operations answered with BUSY because that worker's ring was full.
    large_ring_full,
    /// Operations handed to the worker that owns the partition of their key.
    to_owner,
    /// Operations answered with BUSY because that worker's ring was full.
    to_owner_ring_full,
    /// Operations that waited for flash.
    waits,
    /// Operations answered with BUSY because too many waited.
    waits_refused,
    /// Copies of waiting operations, which were dropped.
    waits_repeated,
    /// Operations to execute once that were answered from the stored outcome.
    once_repeated,
    /// Operations to execute once that were refused: no session, too old, or still in progress.
    once_refused,
}

impl NativeCounters {
    /// Counts a refusal.
    pub(super) fn count_refusal(&self, reason: Reason) {
        match reason {
            Reason::Version => self.refused_version.count(),
            Reason::Cookie => self.refused_cookie.count(),
            Reason::Seal => self.refused_seal.count(),
            Reason::Replayed => self.refused_replayed.count(),
            Reason::Session => self.refused_session.count(),
            Reason::Malformed => self.refused_malformed.count(),
            Reason::Busy | Reason::Unknown(_) => self.refused_busy.count(),
        }
    }
}

worker_counters! {
    /// One worker's counters of large transfers.
    TransferCounters, "native_":
    /// Values too large for a datagram whose first window was sent.
    large_gets,
    /// Further windows requested.
    fetches,
    /// Windows requested of values that no longer exist.
    fetches_gone,
    /// Windows refused because of a bound on their burst.
    fetches_refused,
    /// First windows not sent unasked because of such a bound.
    windows_deferred,
    /// Fragments sent.
    data_out,
    /// Stores begun whose values come in fragments.
    stores_begun,
    /// Such stores refused because of a bound, the memory or the server's end.
    stores_refused,
    /// Such stores whose value arrived completely and whose condition was checked.
    stores_completed,
    /// Such stores given up because a window took too long.
    stores_timed_out,
    /// Fragments received.
    fragments_in,
    /// Fragments received again.
    fragments_again,
    /// Fragments of unknown transfers.
    fragments_astray,
}
