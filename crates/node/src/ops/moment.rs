//! Expiries between two seconds of the store's clock.

use std::{
    cell::Cell,
    time::{SystemTime, UNIX_EPOCH},
};

use minos_base::{Clock, Seconds};
use minos_engine::{Entry, ItemState, Mode};

use super::{context::Context, read::Facts};

/// An expiry on the store's clock, which has seconds, and the milliseconds before it at which an item is gone for readers
/// that look at them. All zero is never.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Moment {
    pub(crate) expiry: Seconds,
    pub(crate) early_ms: u16,
}

thread_local! {
    /// The moment at which time stands still for this thread, in milliseconds since 1970.
    static STANDSTILL_MS: Cell<Option<i64>> = const { Cell::new(None) };
}

/// Milliseconds since 1970, now: on a thread with a [`Standstill`], when that began.
pub(crate) fn now_ms() -> i64 {
    STANDSTILL_MS.get().unwrap_or_else(calendar_ms)
}

fn calendar_ms() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}

/// Until it is dropped, [`now_ms`] is the same moment for this thread: no item expires between two looks at it.
pub(crate) struct Standstill(());

impl Standstill {
    pub(crate) fn begin() -> Self {
        STANDSTILL_MS.set(Some(calendar_ms()));
        Self(())
    }
}

impl Drop for Standstill {
    fn drop(&mut self) {
        STANDSTILL_MS.set(None);
    }
}

impl Moment {
    /// The one that has always passed.
    pub(crate) const PAST: Self = Self { expiry: 1, early_ms: 0 };

    /// That in milliseconds since 1970. All past ones are one.
    pub(crate) fn at(clock: &Clock, unix_ms: i64) -> Self {
        let zero_ms = (clock.zero_unix_s() * 1000) as i64;
        if unix_ms <= now_ms().max(zero_ms) {
            return Self::PAST;
        }
        let ms = (unix_ms - zero_ms).unsigned_abs();
        let seconds = ms.div_ceil(1000);
        match Seconds::try_from(seconds) {
            Ok(expiry) => Self { expiry, early_ms: (seconds * 1000 - ms) as u16 },
            Err(_) => Self { expiry: Seconds::MAX, early_ms: 0 },
        }
    }

    /// In milliseconds since 1970; `None` is never.
    pub(crate) fn unix_ms(self, clock: &Clock) -> Option<i64> {
        let whole_ms = (clock.zero_unix_s() as i64 + i64::from(self.expiry)) * 1000;
        (self.expiry != 0).then(|| whole_ms - i64::from(self.early_ms))
    }

    /// True if it has passed by now.
    pub(crate) fn has_passed(self, clock: &Clock) -> bool {
        self.unix_ms(clock).is_some_and(|unix_ms| unix_ms <= now_ms())
    }

    /// True if it has passed within the second that the store takes for the present one. The store knows all others.
    #[inline]
    pub(crate) fn has_just_passed(self, clock: &Clock) -> bool {
        self.early_ms != 0 && self.has_passed(clock)
    }
}

impl From<&ItemState> for Moment {
    #[inline]
    fn from(item: &ItemState) -> Self {
        Self { expiry: item.expiry(), early_ms: item.early_ms() }
    }
}

impl From<&Facts> for Moment {
    #[inline]
    fn from(item: &Facts) -> Self {
        Self { expiry: item.expiry, early_ms: item.early_ms }
    }
}

/// Removes the item of `entry` if it has expired between two seconds.
#[inline]
pub(crate) fn bury<M: Mode, P>(cx: &Context<'_, M, P>, entry: &mut Entry<'_, M>) {
    if entry.item().is_some_and(|item| Moment::from(&*item).has_just_passed(cx.clock)) {
        entry.remove();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_are_exact_and_past_ones_are_past() {
        let clock = Clock::new();
        let now = now_ms();
        for later_ms in [60_200, 60_999, 61_000, 61_001, 123_456] {
            let moment = Moment::at(&clock, now + later_ms);
            assert_eq!(moment.unix_ms(&clock), Some(now + later_ms));
            assert!(moment.early_ms < 1000 && !moment.has_just_passed(&clock));
        }
        for past in [now - 10_000, 0, -1, i64::MIN] {
            assert_eq!(Moment::at(&clock, past), Moment::PAST);
        }
        assert_eq!(Moment::at(&clock, i64::MAX).expiry, Seconds::MAX);
        assert_eq!(Moment::default().unix_ms(&clock), None);
        let expiry = clock.seconds() + 1;
        let unix_ms = Moment { expiry, early_ms: 999 }.unix_ms(&clock);
        assert!(unix_ms.is_some_and(|unix_ms| unix_ms <= now_ms() + 1001));
    }
}
