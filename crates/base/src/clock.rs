//! Time as the store sees it: whole seconds since the server started.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Whole seconds on a [`Clock`]. Items carry their expiry in this unit; it lasts for 136 years.
pub type Seconds = u32;

/// A monotonic clock with a known place in calendar time.
///
/// It starts at [`Clock::START`], so that expiries which lie in the past can be written as small
/// numbers above zero, zero being "never".
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    started: Instant,
    started_unix_s: u64,
}

impl Clock {
    /// What a clock shows when it is made, in seconds.
    pub const START: Seconds = 2;

    /// A clock that shows [`Clock::START`] now.
    pub fn new() -> Self {
        let unix = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
        Self { started: Instant::now(), started_unix_s: unix.as_secs() }
    }

    /// Seconds at `instant`.
    pub fn seconds_at(&self, instant: Instant) -> Seconds {
        let elapsed_s = instant.saturating_duration_since(self.started).as_secs();
        Self::START.saturating_add(u32::try_from(elapsed_s).unwrap_or(u32::MAX))
    }

    /// Seconds now.
    pub fn seconds(&self) -> Seconds {
        self.seconds_at(Instant::now())
    }

    /// The calendar time, in seconds since 1970, at which this clock showed zero.
    pub fn zero_unix_s(&self) -> u64 {
        self.started_unix_s.saturating_sub(u64::from(Self::START))
    }
}

impl Default for Clock {
    fn default() -> Self {
        Self::new()
    }
}
