//! The results of a run, as printed.

use std::collections::BTreeMap;

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

use super::recorder::Recorder;
use crate::ValueSizes;

/// The measurements of a run. Its JSON form is relied on by scripts: fields are added, never renamed.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Report {
    /// Intended operations per second; in closed loop, the achieved ones.
    pub offered_rps: f64,
    /// Operations per second that were answered within the measured window.
    pub achieved_rps: f64,
    /// Operations of the measured window that were answered as they should be.
    pub completed: u64,
    /// Operations of the measured window that failed.
    pub errors: u64,
    /// Operations of the measured window without an answer when time was up.
    pub lost: u64,
    /// Processor time of the server for each operation, in microseconds, if the server could be found.
    pub server_cpu_us_per_op: Option<f64>,
    /// Operations per second within what was answered: keys of a GET of many, operations of a vector.
    #[serde(default)]
    pub operations_per_s: f64,
    /// The same for each second of the server's processor time, if the server could be found.
    #[serde(default)]
    pub operations_per_server_cpu_s: Option<f64>,
    /// Latencies from the intended send time, in microseconds.
    pub latency_us: LatencyReport,
    /// The failed operations by kind.
    pub errors_by_kind: BTreeMap<String, u64>,
    /// Keys that were asked for and not found. No error.
    pub misses: u64,
    /// The driver's own share in the latencies.
    pub driver: DriverShare,
    /// Length of the measured window in seconds.
    pub duration_s: f64,
    /// The server.
    pub target: String,
    /// The workload.
    pub workload: String,
    /// The seed of all random choices.
    pub seed: u64,
}

/// Latencies by class, in microseconds.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct LatencyReport {
    /// All operations.
    pub all: Quantiles,
    /// Those on small items.
    pub small: Quantiles,
    /// Those on large items.
    pub large: Quantiles,
    /// How many took how long, each bound twice the one before; empty from drivers that keep single times.
    #[serde(default)]
    pub octaves: Vec<Octave>,
}

/// Operations that took at most so long, and longer than the octave before.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Octave {
    /// The bound, in microseconds.
    pub up_to_us: f64,
    /// Those on small items.
    pub small: u64,
    /// Those on large items.
    pub large: u64,
}

impl Octave {
    /// The octaves from the shortest to the longest time.
    fn all(small: &Histogram<u64>, large: &Histogram<u64>) -> Vec<Self> {
        let mut octaves: Vec<Self> = Vec::new();
        for (histogram, is_large) in [(small, false), (large, true)] {
            for step in histogram.iter_recorded() {
                // The first bound is a microsecond.
                let number = step.value_iterated_to().div_ceil(1000).next_power_of_two().ilog2() as usize;
                while octaves.len() <= number {
                    octaves.push(Self { up_to_us: (1u64 << octaves.len()) as f64, small: 0, large: 0 });
                }
                let octave = &mut octaves[number];
                let count = if is_large { &mut octave.large } else { &mut octave.small };
                *count += step.count_at_value();
            }
        }
        let first = octaves.iter().position(|octave| octave.small + octave.large > 0);
        octaves.split_off(first.unwrap_or(octaves.len()))
    }
}

/// A distribution of times in microseconds. All zero when nothing was counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Quantiles {
    /// Half are at most so long.
    pub p50: f64,
    /// 90 %.
    pub p90: f64,
    /// 99 %.
    pub p99: f64,
    /// 99.9 %.
    pub p999: f64,
    /// 99.99 %.
    pub p9999: f64,
    /// The longest.
    pub max: f64,
    /// The mean.
    pub mean: f64,
    /// How many there were.
    pub count: u64,
}

/// How far the driver itself may have lengthened what it measured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct DriverShare {
    /// From the intended time of a request until it was given to the kernel. Part of the latency.
    pub send_lag_us: Quantiles,
    /// From the arrival of a reply until the driver looked at it. No part of the latency where the
    /// kernel dates arrivals.
    pub receive_lag_us: Quantiles,
    /// Share of replies that the kernel dated, 0 to 1.
    pub kernel_stamped: f64,
    /// Share of time in which its threads had something to do, 0 to 1, if they spin. Near 1, the run measured
    /// the driver and not the server.
    #[serde(default)]
    pub busy: Option<f64>,
    /// Share of time that its threads spent sending, if they spin.
    #[serde(default)]
    pub sending: Option<f64>,
    /// Number of turns of its threads that took longer than a millisecond, if they spin. Replies and requests
    /// that came due meanwhile waited.
    #[serde(default)]
    pub long_turns: Option<u64>,
}

/// The results of a load.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct LoadReport {
    /// Items that were stored.
    pub stored: u64,
    /// Items that were not.
    pub errors: u64,
    /// Those by kind.
    pub errors_by_kind: BTreeMap<String, u64>,
    /// Sizes of the values.
    pub value_bytes: ValueSizes,
    /// How long it took, in seconds.
    pub duration_s: f64,
}

impl Quantiles {
    /// Of single times in microseconds, exact to the nanosecond. Sorts them.
    pub fn of_samples(samples_us: &mut [f64]) -> Self {
        samples_us.sort_unstable_by(f64::total_cmp);
        let exact = |us: f64| (us * 1000.0).round() / 1000.0;
        let at = |quantile: f64| {
            let rank = (quantile * samples_us.len() as f64).ceil() as usize;
            samples_us.get(rank.saturating_sub(1)).map_or(0.0, |us| exact(*us))
        };
        let sum: f64 = samples_us.iter().sum();
        Self {
            p50: at(0.5),
            p90: at(0.9),
            p99: at(0.99),
            p999: at(0.999),
            p9999: at(0.9999),
            max: at(1.0),
            mean: exact(sum / samples_us.len().max(1) as f64),
            count: samples_us.len() as u64,
        }
    }

    pub(super) fn of(histogram: &Histogram<u64>) -> Self {
        let us = |ns: u64| (ns as f64 / 100.0).round() / 10.0;
        let at = |quantile| us(histogram.value_at_quantile(quantile));
        Self {
            p50: at(0.5),
            p90: at(0.9),
            p99: at(0.99),
            p999: at(0.999),
            p9999: at(0.9999),
            max: us(histogram.max()),
            mean: us(histogram.mean() as u64),
            count: histogram.len(),
        }
    }
}

impl LatencyReport {
    pub(super) fn of(recorder: &Recorder) -> Self {
        let mut all = recorder.small.clone();
        all.add(&recorder.large).expect("both have the same bounds");
        Self {
            all: Quantiles::of(&all),
            small: Quantiles::of(&recorder.small),
            large: Quantiles::of(&recorder.large),
            octaves: Octave::all(&recorder.small, &recorder.large),
        }
    }
}

impl DriverShare {
    pub(super) fn of(recorder: &Recorder) -> Self {
        let stamped = recorder.receive_lag.len();
        let replies = stamped + recorder.unstamped;
        let all_ns = recorder.time.all_ns;
        let share = |ns: u64| (all_ns > 0).then(|| (1e4 * ns as f64 / all_ns as f64).round() / 1e4);
        Self {
            send_lag_us: Quantiles::of(&recorder.send_lag),
            receive_lag_us: Quantiles::of(&recorder.receive_lag),
            kernel_stamped: if replies == 0 { 0.0 } else { stamped as f64 / replies as f64 },
            busy: share(recorder.time.busy_ns),
            sending: share(recorder.time.sending_ns),
            long_turns: (all_ns > 0).then_some(recorder.time.long_turns),
        }
    }
}

/// Errors under the names they have in reports.
pub(super) fn errors_by_name(recorder: &Recorder) -> BTreeMap<String, u64> {
    recorder.errors.iter().map(|(kind, count)| (kind.name().to_owned(), *count)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::driver::recorder::histogram;

    #[test]
    fn quantiles_of_samples_are_samples() {
        let mut samples_us: Vec<f64> = (1..=999).rev().map(|ns| f64::from(ns) / 1000.0).collect();
        let quantiles = Quantiles::of_samples(&mut samples_us);
        let Quantiles { p50, p90, p99, p999, max, mean, count, .. } = quantiles;
        assert_eq!([p50, p90, p99, p999, max], [0.5, 0.9, 0.99, 0.999, 0.999]);
        assert_eq!((mean, count), (0.5, 999));
        assert_eq!(Quantiles::of_samples(&mut []), Quantiles::default());
    }

    #[test]
    fn each_octave_has_twice_the_time_of_the_one_before() {
        let [mut small, mut large] = [histogram(), histogram()];
        [1500, 2000, 2001, 7000].iter().for_each(|ns| small.record(*ns).unwrap());
        large.record(3000).unwrap();
        let octaves = Octave::all(&small, &large);
        let all: Vec<_> =
            octaves.iter().map(|octave| (octave.up_to_us, octave.small, octave.large)).collect();
        assert_eq!(all, [(2.0, 2, 0), (4.0, 1, 1), (8.0, 1, 0)]);
        assert!(Octave::all(&histogram(), &histogram()).is_empty());
    }
}
