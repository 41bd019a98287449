//! What a worker counts about large transfers.

use crate::ops::counters::Counter;

/// Declares the counters once: the fields, and their names in `stats minos`.
macro_rules! transfer_counters {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// What one worker counts about large transfers.
        #[derive(Debug, Default)]
        pub(crate) struct TransferCounters { $($(#[$doc])* pub(super) $name: Counter,)* }

        impl TransferCounters {
            /// Every counter with its name.
            pub(crate) fn all(&self) -> impl Iterator<Item = (&'static str, u64)> {
                [$((concat!("native_", stringify!($name)), self.$name.value()),)*].into_iter()
            }
        }
    };
}

transfer_counters! {
    /// Values that were too large for a datagram, and whose first window was sent.
    large_gets,
    /// Windows asked for beside those.
    fetches,
    /// Windows of values that were not there any more.
    fetches_gone,
    /// Windows asked for that were beyond a bound of their burst.
    fetches_refused,
    /// First windows that were not sent unasked, for the same reason.
    windows_deferred,
    /// Fragments sent.
    data_out,
    /// Stores begun whose values come in fragments.
    stores_begun,
    /// Such stores that a bound, the memory or the server's end did not allow.
    stores_refused,
    /// Such stores that were judged once all had arrived.
    stores_completed,
    /// Such stores given up because a window took too long.
    stores_timed_out,
    /// Fragments received.
    fragments_in,
    /// Those of them that had been received before.
    fragments_again,
    /// Fragments of transfers that there are not.
    fragments_astray,
}
