//! Time as the store sees it: whole seconds since it was made.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Whole seconds on a [`Clock`]. Items carry their expiry in this unit; it lasts for 136 years.
pub type Seconds = u32;

/// A monotonic clock with a known place in calendar time.
///
/// It shows at least [`Clock::START`], so that expiries which lie in the past can be written as small
/// numbers above zero, zero being "never".
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    made: Instant,
    /// What it showed when it was made.
    made_s: Seconds,
    zero_unix_s: u64,
}

impl Clock {
    /// What a new clock shows when it is made, in seconds, and the least that any clock shows.
    pub const START: Seconds = 2;

    /// A clock that shows [`Clock::START`] now.
    pub fn new() -> Self {
        Self::with_zero_at(unix_s().saturating_sub(u64::from(Self::START)))
    }

    /// A clock that showed zero at `zero_unix_s`, in seconds since 1970: it goes on where the clock of an
    /// earlier process was, whose [`Clock::zero_unix_s`] that is, as if both had been one.
    ///
    /// That relies on the calendar. If it was set back to before `zero_unix_s`, the clock shows
    /// [`Clock::START`].
    pub fn with_zero_at(zero_unix_s: u64) -> Self {
        let since_zero_s = unix_s().saturating_sub(zero_unix_s);
        let made_s = Seconds::try_from(since_zero_s).unwrap_or(Seconds::MAX).max(Self::START);
        Self { made: Instant::now(), made_s, zero_unix_s }
    }

    /// Seconds at `instant`.
    pub fn seconds_at(&self, instant: Instant) -> Seconds {
        let elapsed_s = instant.saturating_duration_since(self.made).as_secs();
        self.made_s.saturating_add(Seconds::try_from(elapsed_s).unwrap_or(Seconds::MAX))
    }

    /// Seconds now.
    pub fn seconds(&self) -> Seconds {
        self.seconds_at(Instant::now())
    }

    /// The calendar time, in seconds since 1970, at which this clock showed zero.
    pub fn zero_unix_s(&self) -> u64 {
        self.zero_unix_s
    }
}

/// The calendar time, in seconds since 1970; 0 before that.
fn unix_s() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO).as_secs()
}

impl Default for Clock {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_clock_shows_the_start() {
        let clock = Clock::new();
        assert_eq!(clock.seconds_at(clock.made), Clock::START);
        assert_eq!(clock.seconds_at(clock.made + Duration::from_millis(1999)), Clock::START + 1);
        let started_unix_s = clock.zero_unix_s() + u64::from(Clock::START);
        assert!(started_unix_s <= unix_s() && started_unix_s + 60 > unix_s());
    }

    #[test]
    fn a_clock_goes_on_where_an_earlier_one_was() {
        let clock = Clock::with_zero_at(unix_s() - 1000);
        assert!((1000..=1001).contains(&clock.seconds_at(clock.made)));
        let later = Clock::with_zero_at(clock.zero_unix_s());
        assert!(later.seconds() >= clock.seconds_at(clock.made));
        assert_eq!(later.zero_unix_s(), clock.zero_unix_s());
    }

    #[test]
    fn a_calendar_that_was_set_back_is_survived() {
        let clock = Clock::with_zero_at(unix_s() + 1000);
        assert_eq!(clock.seconds_at(clock.made), Clock::START);
    }
}
