//! The times of each command, roughly: for Redis' `LATENCY HISTOGRAM`.

use std::{collections::BTreeMap, time::Duration};

/// Powers of two of microseconds: the last one is half an hour, and more.
const STEPS: usize = 32;

/// Requests by the time of their execution, at rest.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CommandTimes {
    /// Those of at most `2^at` microseconds, and more than the step before.
    counts: [u64; STEPS],
    /// The time of all.
    total_ns: u64,
}

/// The times of commands by their names, of which there are as many as there are commands.
pub(super) type ByCommand = BTreeMap<&'static str, CommandTimes>;

impl CommandTimes {
    pub(super) fn record(&mut self, time: Duration, requests: u64) {
        let us = u64::try_from(time.as_nanos().div_ceil(1000)).unwrap_or(u64::MAX).max(1);
        let step = (u64::BITS - (us - 1).leading_zeros()) as usize;
        self.counts[step.min(STEPS - 1)] += requests;
        let ns = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        self.total_ns = self.total_ns.saturating_add(ns.saturating_mul(requests));
    }

    fn add(&mut self, other: &Self) {
        self.counts.iter_mut().zip(&other.counts).for_each(|(sum, count)| *sum += count);
        self.total_ns = self.total_ns.saturating_add(other.total_ns);
    }

    /// All requests.
    pub fn calls(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// The time of all requests, in microseconds.
    pub fn total_us(&self) -> f64 {
        self.total_ns as f64 / 1000.0
    }

    /// Each step that has requests: its end in microseconds, and the requests up to there.
    pub fn steps(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        let sums = self.counts.iter().enumerate().scan(0, |sum, (at, &count)| {
            *sum += count;
            Some((1 << at, *sum, count))
        });
        sums.filter(|&(.., count)| count > 0).map(|(end_us, sum, _)| (end_us, sum))
    }
}

/// The times of all workers together.
pub(super) fn merged(all: impl Iterator<Item = ByCommand>) -> ByCommand {
    let mut sum = ByCommand::new();
    for (name, times) in all.flatten() {
        sum.entry(name).or_default().add(&times);
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_counted_up_to_powers_of_two() {
        let mut times = CommandTimes::default();
        for (ns, requests) in [(0, 1), (1000, 2), (1001, 4), (2000, 8), (5_000_000, 16), (u64::MAX, 32)] {
            times.record(Duration::from_nanos(ns), requests);
        }
        assert_eq!(times.steps().collect::<Vec<_>>(), [(1, 3), (2, 15), (8192, 31), (1 << 31, 63)]);
        let sum =
            merged([BTreeMap::from([("get", times.clone())]), BTreeMap::from([("get", times)])].into_iter());
        assert_eq!(sum["get"].calls(), 126);
        let mut times = CommandTimes::default();
        times.record(Duration::from_micros(10), 3);
        times.record(Duration::from_micros(50), 1);
        assert_eq!(times.total_us(), 80.0);
    }
}
