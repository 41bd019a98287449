//! What a store may be told beside key and value, and what conditional ones answer.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Longest time from now that a server takes as such, as memcached has it; beyond, a time since 1970 is meant.
const RELATIVE_MAX_S: u64 = 60 * 60 * 24 * 30;

/// What a store may be told beside key and value.
///
/// ```
/// use std::time::Duration;
/// use minos_client::StoreOptions;
///
/// let options = StoreOptions::new().ttl(Duration::from_secs(60)).flags(7);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StoreOptions {
    ttl: Option<Duration>,
    flags: u32,
}

impl StoreOptions {
    /// Never expires, no flags.
    pub fn new() -> Self {
        Self::default()
    }

    /// The item expires so long from now, in whole seconds, rounded up; after zero it is gone at once.
    #[must_use]
    pub fn ttl(self, ttl: Duration) -> Self {
        Self { ttl: Some(ttl), ..self }
    }

    /// A number that is kept with the item and means something to clients only.
    #[must_use]
    pub fn flags(self, flags: u32) -> Self {
        Self { flags, ..self }
    }

    pub(crate) fn exptime(self) -> i32 {
        exptime(self.ttl)
    }

    pub(crate) fn item_flags(self) -> u32 {
        self.flags
    }
}

/// What came of a store that compares.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compared {
    /// It was stored.
    Stored {
        /// The item's CAS unique now.
        cas: u64,
    },
    /// The item has been stored by somebody else since.
    Changed,
    /// There is no such item any more.
    Missing,
}

/// A time to live as the server wants it.
pub(crate) fn exptime(ttl: Option<Duration>) -> i32 {
    let Some(ttl) = ttl else { return 0 };
    let seconds = ttl.as_secs().saturating_add(u64::from(ttl.subsec_nanos() > 0));
    let since_1970_s = || SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let seconds = match seconds {
        0 => return -1,
        1..=RELATIVE_MAX_S => seconds,
        _ => seconds.saturating_add(since_1970_s()),
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
