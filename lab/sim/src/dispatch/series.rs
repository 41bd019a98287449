//! The course of a run over time (Minos §6.6).

use serde::Serialize;

use crate::Ticks;

/// The results of one of several equal spans of time.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Window {
    /// Requests that were answered in it.
    pub requests: u64,
    /// The percentile of their latencies; none if there were no requests.
    pub percentile_us: Option<f64>,
    /// Workers that were large at its end.
    pub large_workers: usize,
}

#[derive(Debug)]
pub(super) struct Series {
    percentile: f64,
    latencies: Vec<Ticks>,
    windows: Vec<Window>,
}

impl Series {
    pub(super) fn new(percentile: f64) -> Self {
        Self { percentile, latencies: Vec::new(), windows: Vec::new() }
    }

    pub(super) fn record(&mut self, latency: Ticks) {
        self.latencies.push(latency);
    }

    /// Ends a window; `us` are the microseconds of a tick.
    pub(super) fn end_window(&mut self, large_workers: usize, us: f64) {
        let requests = self.latencies.len();
        let rank = (requests as f64 * self.percentile / 100.0).ceil() as usize;
        let at = |latencies: &mut Vec<Ticks>| {
            let (_, latency, _) = latencies.select_nth_unstable(rank.clamp(1, requests) - 1);
            *latency as f64 * us
        };
        let percentile_us = (requests > 0).then(|| at(&mut self.latencies));
        self.windows.push(Window { requests: requests as u64, percentile_us, large_workers });
        self.latencies.clear();
    }

    pub(super) fn finish(self) -> Vec<Window> {
        self.windows
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_has_the_percentile_of_its_own() {
        let mut series = Series::new(99.0);
        (1..=200).rev().for_each(|latency| series.record(latency));
        series.end_window(3, 0.5);
        series.end_window(2, 0.5);
        series.record(7);
        series.end_window(1, 0.5);
        let had: Vec<_> =
            series.finish().iter().map(|w| (w.requests, w.percentile_us, w.large_workers)).collect();
        assert_eq!(had, [(200, Some(99.0), 3), (0, None, 2), (1, Some(3.5), 1)]);
    }
}
