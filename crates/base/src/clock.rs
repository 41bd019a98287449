//! Time as the store sees it: whole seconds since it was made.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Whole seconds on a [`Clock`]. Items carry their expiry in this unit; it lasts for 136 years.
pub type Seconds = u32;

/// A monotonic clock with a known place in calendar time: its seconds begin with those of the calendar, so
/// that an expiry which names a second of the calendar has passed when that second begins.
///
/// It shows at least [`Clock::START`], so that expiries which lie in the past can be written as small
/// numbers above zero, zero being "never".
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    made: Instant,
    /// Since zero, when it was made.
    made_at: Duration,
    zero_unix_s: u64,
}

impl Clock {
    /// The time of a new clock in seconds, and the least that any clock shows.
    pub const START: Seconds = 2;

    /// A clock that shows [`Clock::START`] now.
    pub fn new() -> Self {
        Self::with_zero_at(unix().as_secs().saturating_sub(u64::from(Self::START)))
    }

    /// A clock that showed zero at `zero_unix_s`, in seconds since 1970. With the [`Clock::zero_unix_s`] of
    /// an earlier process, it continues that process's clock.
    ///
    /// This relies on the calendar. If that was set back to before
    /// `zero_unix_s`, the clock shows [`Clock::START`].
    pub fn with_zero_at(zero_unix_s: u64) -> Self {
        Self::made_at(Instant::now(), unix(), zero_unix_s)
    }

    /// As [`Clock::with_zero_at`], made at `now`, when the calendar showed `unix` since 1970.
    pub fn made_at(now: Instant, unix: Duration, zero_unix_s: u64) -> Self {
        let start = Duration::from_secs(u64::from(Self::START));
        let made_at = unix.saturating_sub(Duration::from_secs(zero_unix_s)).max(start);
        Self { made: now, made_at, zero_unix_s }
    }

    /// Seconds at `instant`.
    pub fn seconds_at(&self, instant: Instant) -> Seconds {
        let since_zero = self.made_at.saturating_add(instant.saturating_duration_since(self.made));
        Seconds::try_from(since_zero.as_secs()).unwrap_or(Seconds::MAX)
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

/// The calendar time since 1970; 0 before that.
fn unix() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO)
}

impl Default for Clock {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn a_new_clock_shows_the_start() {
        let clock = Clock::new();
        assert_eq!(clock.seconds_at(clock.made), Clock::START);
        let started_unix_s = clock.zero_unix_s() + u64::from(Clock::START);
        assert!(started_unix_s <= unix().as_secs() && started_unix_s + 60 > unix().as_secs());
    }

    #[test]
    fn its_seconds_begin_with_those_of_the_calendar() {
        let now = Instant::now();
        for fraction_ms in [0, 1, 300, 999] {
            let clock = Clock::made_at(now, 5000 * 1000 * MS + fraction_ms * MS, 4000);
            let next = (1000 - fraction_ms) * MS;
            assert_eq!(clock.seconds_at(now), 1000);
            assert_eq!(clock.seconds_at(now + next - MS), 1000);
            assert_eq!(clock.seconds_at(now + next), 1001);
        }
    }

    #[test]
    fn a_clock_goes_on_where_an_earlier_one_was() {
        let now = Instant::now();
        let earlier = Clock::made_at(now, 5000 * 1000 * MS + 100 * MS, 4998);
        for later_ms in [0, 899, 900, 5850] {
            let then = now + later_ms * MS;
            let later = Clock::made_at(then, 5000 * 1000 * MS + (100 + later_ms) * MS, earlier.zero_unix_s());
            for more_ms in [0, 1, 49, 50, 99, 100, 999] {
                let instant = then + more_ms * MS;
                assert_eq!(later.seconds_at(instant), earlier.seconds_at(instant), "{later_ms} {more_ms}");
            }
        }
    }

    #[test]
    fn a_calendar_that_was_set_back_is_survived() {
        let clock = Clock::with_zero_at(unix().as_secs() + 1000);
        assert_eq!(clock.seconds_at(clock.made), Clock::START);
    }

    #[test]
    fn the_last_second_lasts() {
        let now = Instant::now();
        assert_eq!(Clock::made_at(now, Duration::MAX, 0).seconds_at(now + MS), Seconds::MAX);
    }
}
