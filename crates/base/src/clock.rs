//! Time as the store sees it, whole seconds since it was made, and expiry times as clients write them.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Whole seconds on a [`Clock`]. Items carry their expiry in this unit; it lasts for 136 years.
pub type Seconds = u32;

/// Whole seconds, rounded up.
pub fn seconds_up(time: Duration) -> u64 {
    time.as_secs().saturating_add(u64::from(time.subsec_nanos() > 0))
}

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

    /// Time from `instant` until the next second begins: above zero, at most a second.
    pub fn until_next_second(&self, instant: Instant) -> Duration {
        let since_zero = self.made_at.saturating_add(instant.saturating_duration_since(self.made));
        Duration::from_secs(1) - Duration::from_nanos(since_zero.subsec_nanos().into())
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

/// Largest number, in seconds, that is a time from now; a larger one is a time since 1970.
const RELATIVE_MAX_S: i32 = 60 * 60 * 24 * 30;

/// The expiry of an item as a client wrote it: 0 never, negative at once, up to thirty days from now,
/// beyond that a time since 1970; all in seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Exptime(pub i32);

impl Exptime {
    /// The same moment on the store's `clock`, which shows `now`; 0 is never.
    ///
    /// Moments before the clock's start become 1, which has always passed.
    pub fn on(self, clock: &Clock, now: Seconds) -> Seconds {
        match self.0 {
            0 => 0,
            ..0 => 1,
            1..=RELATIVE_MAX_S => now.saturating_add(self.0.unsigned_abs()),
            _ => {
                let since_zero_s = u64::from(self.0.unsigned_abs()).saturating_sub(clock.zero_unix_s());
                Seconds::try_from(since_zero_s).unwrap_or(Seconds::MAX).max(1)
            }
        }
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
            assert_eq!(clock.until_next_second(now), next);
            assert_eq!(clock.until_next_second(now + next), 1000 * MS);
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

    /// True if an item that was given `exptime` at `stored` has expired at `read`.
    fn is_gone(exptime: i32, clock: &Clock, stored: Instant, read: Instant) -> bool {
        let expiry = Exptime(exptime).on(clock, clock.seconds_at(stored));
        expiry <= clock.seconds_at(read)
    }

    #[test]
    fn an_item_is_gone_when_its_time_is_over_and_not_two_seconds_before() {
        let made = Instant::now();
        for phase_ms in (0..1000).step_by(37) {
            let clock =
                Clock::made_at(made, Duration::from_secs(1_700_000_000) + phase_ms * MS, 1_699_999_000);
            for stored_ms in (0..2000).step_by(53) {
                let stored = made + stored_ms * MS;
                for (exptime, ttl_s) in [(1, 1), (2, 2), (60, 60)] {
                    let over = stored + Duration::from_secs(ttl_s);
                    assert!(is_gone(exptime, &clock, stored, over), "{phase_ms} {stored_ms} {ttl_s}");
                    assert!(!is_gone(exptime + 1, &clock, stored, over - MS), "{phase_ms} {stored_ms}");
                }
            }
        }
    }

    #[test]
    fn an_item_is_gone_with_the_second_of_the_calendar_that_it_names() {
        let made = Instant::now();
        for phase_ms in (0..1000).step_by(37) {
            let clock =
                Clock::made_at(made, Duration::from_secs(1_700_000_000) + phase_ms * MS, 1_699_999_000);
            let named = made + 5000 * MS - phase_ms * MS;
            assert!(is_gone(1_700_000_005, &clock, made, named), "{phase_ms}");
            assert!(!is_gone(1_700_000_005, &clock, made, named - MS), "{phase_ms}");
        }
    }

    #[test]
    fn every_kind_of_time_lands_on_the_clock() {
        let clock = Clock::new();
        let zero_s = i32::try_from(clock.zero_unix_s()).unwrap();
        assert_eq!(Exptime(0).on(&clock, 50), 0);
        assert_eq!(Exptime(-1).on(&clock, 50), 1);
        assert_eq!(Exptime(i32::MIN).on(&clock, 50), 1);
        assert_eq!(Exptime(1).on(&clock, 50), 51);
        assert_eq!(Exptime(RELATIVE_MAX_S).on(&clock, 50), 50 + 2_592_000);
        assert_eq!(Exptime(RELATIVE_MAX_S + 1).on(&clock, 50), 1);
        assert_eq!(Exptime(zero_s + 70).on(&clock, 50), 70);
        assert_eq!(Exptime(1).on(&clock, Seconds::MAX), Seconds::MAX);
    }
}
