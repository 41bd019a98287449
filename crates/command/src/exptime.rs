//! Expiry times as clients write them.

use minos_base::{Clock, Seconds};

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
