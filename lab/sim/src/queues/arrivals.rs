//! The requests of a run, one after the other.

use super::{Spec, floor::Job};
use crate::{Random, ServiceTimes, Ticks};

/// A Poisson stream.
pub(super) struct Arrivals<'t> {
    times: &'t ServiceTimes,
    gaps: Random,
    services: Random,
    gap_ticks: f64,
    next_at: Ticks,
    left: u64,
    /// Left while the warm-up lasts.
    left_in_warmup: u64,
}

impl<'t> Arrivals<'t> {
    pub(super) fn new(spec: &Spec, times: &'t ServiceTimes) -> Self {
        let mut arrivals = Self {
            times,
            gaps: Random::new(spec.seed, 0),
            services: Random::new(spec.seed, 1),
            gap_ticks: times.mean_ticks() / (spec.load * spec.workers as f64),
            next_at: 0,
            left: spec.arrivals,
            left_in_warmup: (spec.arrivals as f64 * spec.warmup_percent / 100.0) as u64,
        };
        arrivals.next_at = arrivals.gap();
        arrivals
    }

    /// The mean distance of two.
    pub(super) fn gap_ticks(&self) -> f64 {
        self.gap_ticks
    }

    /// Those that will be counted.
    pub(super) fn counted(&self) -> u64 {
        self.left - self.left_in_warmup
    }

    pub(super) fn are_over(&self) -> bool {
        self.left == 0
    }

    /// When the next one comes, if it comes before `other`.
    #[inline]
    pub(super) fn next_before(&self, other: Option<Ticks>) -> Option<Ticks> {
        (self.left > 0 && other.is_none_or(|other| self.next_at < other)).then_some(self.next_at)
    }

    /// The next one, which comes now.
    #[inline]
    pub(super) fn take(&mut self) -> Job {
        let counts = self.left_in_warmup == 0;
        self.left_in_warmup = self.left_in_warmup.saturating_sub(1);
        self.left -= 1;
        let job = Job::new(self.next_at, self.times.draw(&mut self.services), counts);
        self.next_at += self.gap();
        job
    }

    fn gap(&mut self) -> Ticks {
        (self.gaps.exponential() * self.gap_ticks + 0.5) as Ticks
    }
}
