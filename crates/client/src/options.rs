//! Options of stores, and results of conditional ones.

use minos_base::seconds_up;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Longest relative time to live, as in memcached; the server takes larger numbers as a time since 1970.
const RELATIVE_MAX_S: u64 = 60 * 60 * 24 * 30;

/// Options of a store.
///
/// ```
/// use std::time::Duration;
/// use minos_client::StoreOptions;
///
/// let options = StoreOptions::new().ttl(Duration::from_secs(60)).flags(7);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StoreOptions {
    pub(crate) ttl: Option<Duration>,
    pub(crate) flags: u32,
}

impl StoreOptions {
    /// Never expires, no flags.
    pub fn new() -> Self {
        Self::default()
    }

    /// The item expires after this time, in whole seconds, rounded up; with zero it expires at once.
    #[must_use]
    pub fn ttl(self, ttl: Duration) -> Self {
        Self { ttl: Some(ttl), ..self }
    }

    /// A number that is stored with the item and has a meaning only for clients.
    #[must_use]
    pub fn flags(self, flags: u32) -> Self {
        Self { flags, ..self }
    }
}

/// The result of a compare-and-swap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compared {
    /// It was stored.
    Stored {
        /// The item's CAS unique now.
        cas: u64,
    },
    /// The item has been stored again since.
    Changed,
    /// The item no longer exists.
    Missing,
}

/// A time to live as the server wants it.
pub(crate) fn exptime(ttl: Option<Duration>) -> i32 {
    let Some(ttl) = ttl else { return 0 };
    let since_1970_s = || SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let seconds = match seconds_up(ttl) {
        0 => return -1,
        seconds @ 1..=RELATIVE_MAX_S => seconds,
        seconds => seconds.saturating_add(since_1970_s()),
    };
    i32::try_from(seconds).unwrap_or(i32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_to_live_are_written_as_servers_read_them() {
        assert_eq!(exptime(None), 0);
        assert_eq!(exptime(Some(Duration::ZERO)), -1);
        assert_eq!(exptime(Some(Duration::from_millis(1))), 1);
        assert_eq!(exptime(Some(Duration::from_millis(2001))), 3);
        assert_eq!(exptime(Some(Duration::from_secs(RELATIVE_MAX_S))), 2_592_000);
        assert!(exptime(Some(Duration::from_secs(RELATIVE_MAX_S + 1))) > 1_700_000_000);
        assert_eq!(exptime(Some(Duration::MAX)), i32::MAX);
    }
}
