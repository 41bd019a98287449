//! Expiry times as clients write them.

use crate::{Clock, Seconds};

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
    use std::time::{Duration, Instant};

    const MS: Duration = Duration::from_millis(1);

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
