//! The admin endpoint's counters about itself.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Declares the counters once: the fields, and their names in `/stats/admin` and `/metrics`.
macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// The counters of the admin endpoint.
        #[derive(Debug, Default)]
        pub(super) struct Counters { $($(#[$doc])* pub(super) $name: Counter,)* }

        impl Counters {
            /// Every counter with its name.
            pub(super) fn all(&self) -> impl Iterator<Item = (&'static str, u64)> {
                [$((stringify!($name), self.$name.0.load(Relaxed)),)*].into_iter()
            }
        }
    };
}

counters! {
    /// Requests whose head arrived.
    admin_requests,
    /// Switches of the design.
    admin_switches,
    /// Requests refused because of their host name or of the page that sent them.
    admin_foreign,
    /// Changes refused because their requests had not the token.
    admin_unauthorized,
    /// Connections refused because the limit was reached.
    admin_connections_rejected,
    /// Connections refused because their TLS handshake failed.
    admin_tls_refused,
    /// Requests that did not arrive in time, and answers that were not taken in time.
    admin_timeouts,
    /// Requests whose body was too large.
    admin_body_too_large,
}

/// A number that only grows.
#[derive(Debug, Default)]
pub(super) struct Counter(AtomicU64);

impl Counter {
    pub(super) fn count(&self) {
        self.0.fetch_add(1, Relaxed);
    }
}
