//! The client's counters.

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// Counts since a client was made.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct Counters {
            $($(#[$doc])* pub $name: u64,)*
        }

        impl Counters {
            /// Adds each of `other`.
            pub(crate) fn add(&mut self, other: &Self) {
                $(self.$name += other.$name;)*
            }

            /// All, with their names.
            pub const fn all(&self) -> [(&'static str, u64); [$(stringify!($name)),*].len()] {
                [$((stringify!($name), self.$name)),*]
            }
        }
    };
}

counters! {
    /// Operations submitted.
    submitted,
    /// Operations that ended, well or not.
    completed,
    /// Datagrams sent.
    datagrams_sent,
    /// Datagrams received, ignored ones included.
    datagrams_received,
    /// Requests that counted as lost.
    lost,
    /// Datagrams that were malformed, not from the server, or answered no request.
    ignored,
    /// Datagrams whose tag was missing or wrong.
    unsealed,
    /// Refusals received.
    refused,
    /// Hellos sent.
    hellos,
    /// Restarts of the server that the client noticed.
    restarts,
    /// Times a server said that it is stopping.
    drains,
    /// Times the client moved to another server; in a rack, operations that moved to another node.
    failovers,
    /// Times a large value stood still, so that the client asked again.
    repairs,
    /// Large values that were replaced during their fetch, and fetched from the start.
    refetches,
    /// Sessions that the server no longer knew.
    sessions_lost,
}
