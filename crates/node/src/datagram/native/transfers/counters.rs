//! A worker's counters of large transfers.

use crate::ops::counters::worker_counters;

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
