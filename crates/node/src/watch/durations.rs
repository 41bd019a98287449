//! Log-linear histograms of durations: one that a worker writes, and sums of them.

use std::{
    iter,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    time::Duration,
};

/// Nanoseconds of the finest step, as a power of two.
const UNIT_BITS: u32 = 6;
/// Steps of a doubling, as a power of two: a step is at most a sixteenth of its time.
const STEP_BITS: u32 = 4;
const STEPS: u64 = 1 << STEP_BITS;
/// Units beyond which all durations are alike: 68 seconds.
const UNITS_MAX: u64 = 1 << 30;
const COUNT: usize = step_of(UNITS_MAX) + 1;

/// The step of a duration in units.
const fn step_of(units: u64) -> usize {
    if units < STEPS {
        return units as usize;
    }
    let shift = units.ilog2() - STEP_BITS;
    (shift as u64 * STEPS + (units >> shift)) as usize
}

/// The shortest duration of a step, in nanoseconds.
const fn from_ns(step: usize) -> u64 {
    let step = step as u64;
    if step < 2 * STEPS {
        return step << UNIT_BITS;
    }
    (step % STEPS + STEPS) << (step / STEPS - 1) << UNIT_BITS
}

/// A histogram that one worker writes and any thread reads. Counts only grow; readers take differences.
pub(super) struct SharedDurations {
    counts: [AtomicU64; COUNT],
    sum_ns: AtomicU64,
}

impl SharedDurations {
    pub(super) const fn new() -> Self {
        Self { counts: [const { AtomicU64::new(0) }; COUNT], sum_ns: AtomicU64::new(0) }
    }

    /// Counts `requests` that took `duration`. Only the owner calls it: a load and a store suffice.
    pub(super) fn record(&self, duration: Duration, requests: u64) {
        let ns = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        let more = |count: &AtomicU64, by: u64| count.store(count.load(Relaxed).wrapping_add(by), Relaxed);
        more(&self.counts[step_of((ns >> UNIT_BITS).min(UNITS_MAX))], requests);
        more(&self.sum_ns, ns.saturating_mul(requests));
    }

    pub(super) fn add_to(&self, sum: &mut Durations) {
        for (sum, count) in sum.counts.iter_mut().zip(&self.counts) {
            *sum = sum.wrapping_add(count.load(Relaxed));
        }
        sum.sum_ns = sum.sum_ns.wrapping_add(self.sum_ns.load(Relaxed));
    }
}

/// Requests by duration, at rest. A step is at most 6.3 % wide; 68 seconds and more are alike.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Durations {
    counts: Box<[u64]>,
    sum_ns: u64,
}

impl Default for Durations {
    fn default() -> Self {
        Self { counts: vec![0; COUNT].into_boxed_slice(), sum_ns: 0 }
    }
}

impl Durations {
    /// All requests.
    pub fn total(&self) -> u64 {
        self.counts.iter().fold(0, |sum, &count| sum.wrapping_add(count))
    }

    /// The time of all requests together, in nanoseconds.
    pub fn sum_ns(&self) -> u64 {
        self.sum_ns
    }

    /// Each step with requests: the duration at its upper end, in nanoseconds, and the requests.
    pub fn steps(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        let ends = (1..COUNT).map(from_ns).chain(iter::once(u64::MAX));
        ends.zip(self.counts.iter().copied()).filter(|&(_, count)| count > 0)
    }

    /// Requests that took less than each of `bounds_ns`, which rise.
    pub fn below<'a>(&'a self, bounds_ns: impl Iterator<Item = u64> + 'a) -> impl Iterator<Item = u64> + 'a {
        let (mut steps, mut sum) = (self.steps().peekable(), 0u64);
        bounds_ns.map(move |bound_ns| {
            while let Some((_, count)) = steps.next_if(|&(end_ns, _)| end_ns <= bound_ns) {
                sum = sum.wrapping_add(count);
            }
            sum
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_follow_each_other() {
        for step in 0..COUNT - 1 {
            let (first, next) = (from_ns(step), from_ns(step + 1));
            assert_eq!(step_of(first >> UNIT_BITS), step);
            assert_eq!(step_of((next - 1) >> UNIT_BITS), step);
            assert!(next - first <= 64.max(first / STEPS), "step {step}");
        }
        assert_eq!(from_ns(COUNT - 1), UNITS_MAX << UNIT_BITS);
    }

    #[test]
    fn durations_are_found_below_their_bounds() {
        let shared = SharedDurations::new();
        let us = Duration::from_micros(1);
        for (duration, requests) in [(3 * us, 5), (300 * us, 2), (Duration::from_secs(1000), 1)] {
            shared.record(duration, requests);
        }
        let mut sum = Durations::default();
        shared.add_to(&mut sum);
        shared.add_to(&mut sum);
        assert_eq!(sum.total(), 16);
        assert_eq!(sum.sum_ns(), 2 * (15_000 + 600_000 + 1_000_000_000_000));
        let bounds = [2_048, 4_096, 1 << 20, u64::MAX];
        assert_eq!(sum.below(bounds.into_iter()).collect::<Vec<_>>(), [0, 10, 14, 16]);
    }
}
