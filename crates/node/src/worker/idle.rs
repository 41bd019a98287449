//! How long a worker without work spins before it sleeps.

use std::time::{Duration, Instant};

use crate::server::config::PollMode;

/// Decides between spinning and sleeping.
///
/// Waking up takes longer than most gaps between requests of a busy server, and spinning through long gaps
/// wastes the processor. So the last gaps decide: a gap that spinning could have bridged doubles the next
/// spin, a longer one halves it.
pub(crate) struct Idle {
    mode: PollMode,
    spin: Duration,
    since: Option<Instant>,
    /// With [`PollMode::Sleep`]: true if the last sleep ended at once, so that another poll before it would
    /// have saved it.
    looks_again: bool,
}

impl Idle {
    const SPIN_MIN: Duration = Duration::from_micros(1);
    const SPIN_MAX: Duration = Duration::from_micros(50);
    /// A sleep no longer than this found work already waiting.
    const NO_SLEEP: Duration = Duration::from_micros(2);

    pub(crate) fn new(mode: PollMode) -> Self {
        Self { mode, spin: Self::SPIN_MAX, since: None, looks_again: false }
    }

    /// Notes work at `now`; true if the worker may sleep without another poll, which would be a wasted call
    /// for each request of a client that waits for its reply.
    pub(crate) fn worked(&mut self, now: Instant) -> bool {
        if let Some(since) = self.since.take() {
            let gap = now.saturating_duration_since(since);
            self.spin = if gap <= Self::SPIN_MAX { self.spin * 2 } else { self.spin / 2 };
            self.spin = self.spin.clamp(Self::SPIN_MIN, Self::SPIN_MAX);
        }
        self.mode == PollMode::Sleep && !self.looks_again
    }

    /// Notes the length of a sleep.
    pub(crate) fn slept(&mut self, time: Duration) {
        self.looks_again = time <= Self::NO_SLEEP;
    }

    /// Notes a turn without work at `now`; true if the worker may sleep.
    pub(crate) fn may_sleep(&mut self, now: Instant) -> bool {
        let since = *self.since.get_or_insert(now);
        match self.mode {
            PollMode::Busy => false,
            PollMode::Sleep => true,
            PollMode::Adaptive => now.saturating_duration_since(since) >= self.spin,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAX: Duration = Idle::SPIN_MAX;

    #[test]
    fn a_sleeper_looks_again_only_after_a_sleep_that_was_none() {
        let now = Instant::now();
        let mut idle = Idle::new(PollMode::Sleep);
        assert!(idle.worked(now));
        idle.slept(Duration::from_nanos(500));
        assert!(!idle.worked(now) && idle.may_sleep(now));
        idle.slept(Duration::from_micros(20));
        assert!(idle.worked(now));
        let mut spinner = Idle::new(PollMode::Adaptive);
        spinner.slept(Duration::from_micros(20));
        assert!(!spinner.worked(now));
    }

    #[test]
    fn long_gaps_end_the_spinning_and_short_ones_bring_it_back() {
        let start = Instant::now();
        let mut idle = Idle::new(PollMode::Adaptive);
        assert!(!idle.may_sleep(start));
        assert!(idle.may_sleep(start + MAX));
        let mut now = start;
        for _ in 0..10 {
            idle.may_sleep(now);
            now += Duration::from_millis(10);
            idle.worked(now);
        }
        idle.may_sleep(now);
        assert!(idle.may_sleep(now + Duration::from_micros(1)));
        for _ in 0..10 {
            now += Duration::from_micros(5);
            idle.worked(now);
            idle.may_sleep(now);
        }
        assert!(!idle.may_sleep(now + MAX / 2));
    }

    #[test]
    fn the_other_modes_always_do_the_same() {
        let now = Instant::now();
        assert!(Idle::new(PollMode::Sleep).may_sleep(now));
        assert!(!Idle::new(PollMode::Busy).may_sleep(now + MAX * 100));
    }
}
