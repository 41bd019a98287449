//! Response times and their confidence intervals.

use hdrhistogram::Histogram;
use serde::Serialize;

use crate::Ticks;

/// Number of batches from whose spread confidence intervals are computed.
const BATCHES: usize = 20;
/// Student's t for a probability of 95 % at `BATCHES - 1` degrees of freedom.
const STUDENT_T: f64 = 2.093;
/// Digits to which percentiles are kept.
const DIGITS: u8 = 3;

/// A value with half the width of its 95 % confidence interval, by batch means.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Estimate {
    /// The value.
    pub value: f64,
    /// Half the width of the interval; `None` if there are too few requests for an estimate.
    pub plus_minus: Option<f64>,
}

/// The distribution of one kind of requests' response times.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Responses {
    /// Requests.
    pub count: u64,
    /// Mean response time.
    pub mean: Estimate,
    /// Mean wait: the response time without the service time.
    pub mean_wait: Estimate,
    /// Median.
    pub p50: f64,
    /// 90th percentile.
    pub p90: f64,
    /// 99th percentile.
    pub p99: f64,
    /// 99.9th percentile.
    pub p999: f64,
    /// The percentile that was asked for.
    pub percentile: Estimate,
    /// The longest.
    pub max: f64,
}

/// Response times of all requests and of either kind.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Summary {
    /// Every request.
    pub all: Responses,
    /// Requests that are small.
    pub small: Responses,
    /// Requests that are large.
    pub large: Responses,
}

/// Collects response times, in batches of equal numbers of requests.
#[derive(Debug)]
pub struct Recorder {
    small: Kind,
    large: Kind,
    /// Of both, per batch.
    all: Kind,
    percentile: f64,
    batch_requests: u64,
    left_in_batch: u64,
}

/// One kind of requests: the current batch and the results of earlier ones.
#[derive(Debug)]
struct Kind {
    batch: Tally,
    total: Tally,
    means: Vec<f64>,
    waits: Vec<f64>,
    percentiles: Vec<f64>,
}

#[derive(Clone, Debug)]
struct Tally {
    histogram: Histogram<u64>,
    response_sum: u128,
    wait_sum: u128,
}

impl Recorder {
    /// For about `requests` requests whose times are kept to 3 digits above `resolution`.
    pub fn new(requests: u64, percentile: f64, resolution: Ticks) -> Self {
        let batch_requests = (requests / BATCHES as u64).max(1);
        let kind = || Kind::new(resolution);
        Self {
            small: kind(),
            large: kind(),
            all: kind(),
            percentile,
            batch_requests,
            left_in_batch: batch_requests,
        }
    }

    /// Records a request with response time `response`, of which it waited `wait`.
    #[inline]
    pub fn record(&mut self, response: Ticks, wait: Ticks, large: bool) {
        let kind = if large { &mut self.large } else { &mut self.small };
        kind.batch.record(response, wait);
        self.left_in_batch -= 1;
        if self.left_in_batch == 0 {
            self.end_batch();
        }
    }

    fn end_batch(&mut self) {
        self.left_in_batch = self.batch_requests;
        self.all.batch.add(&self.small.batch);
        self.all.batch.add(&self.large.batch);
        for kind in [&mut self.small, &mut self.large, &mut self.all] {
            kind.end_batch(self.percentile);
        }
    }

    /// The summary, with ticks converted by `units`.
    pub fn finish(mut self, units: impl Fn(f64) -> f64) -> Summary {
        // The last batch may be short; as a batch of its own it would weigh too much.
        self.small.total.add(&self.small.batch);
        self.large.total.add(&self.large.batch);
        self.all.total.add(&self.small.batch);
        self.all.total.add(&self.large.batch);
        let responses = |kind: &Kind| kind.responses(self.percentile, &units);
        Summary { all: responses(&self.all), small: responses(&self.small), large: responses(&self.large) }
    }
}

impl Kind {
    fn new(resolution: Ticks) -> Self {
        let tally = Tally::new(resolution);
        Self {
            batch: tally.clone(),
            total: tally,
            means: Vec::new(),
            waits: Vec::new(),
            percentiles: Vec::new(),
        }
    }

    fn end_batch(&mut self, percentile: f64) {
        if self.batch.count() > 0 {
            self.means.push(self.batch.mean(self.batch.response_sum));
            self.waits.push(self.batch.mean(self.batch.wait_sum));
            self.percentiles.push(self.batch.percentile(percentile));
        }
        self.total.add(&self.batch);
        self.batch.clear();
    }

    fn responses(&self, percentile: f64, units: &impl Fn(f64) -> f64) -> Responses {
        let total = &self.total;
        let at = |percentile| units(total.percentile(percentile));
        let estimate = |value: f64, batches: &[f64]| Estimate {
            value: units(value),
            plus_minus: half_width(batches).map(units),
        };
        Responses {
            count: total.count(),
            mean: estimate(total.mean(total.response_sum), &self.means),
            mean_wait: estimate(total.mean(total.wait_sum), &self.waits),
            p50: at(50.0),
            p90: at(90.0),
            p99: at(99.0),
            p999: at(99.9),
            percentile: estimate(total.percentile(percentile), &self.percentiles),
            max: units(total.histogram.max() as f64),
        }
    }
}

impl Tally {
    fn new(resolution: Ticks) -> Self {
        // The bounds are what the histogram demands: two times `low` at least, three digits of five.
        let low = resolution.clamp(1, 1 << 40);
        let histogram = Histogram::new_with_bounds(low, u64::MAX / 2, DIGITS)
            .expect("the bounds and digits of the histogram are within what it allows");
        Self { histogram, response_sum: 0, wait_sum: 0 }
    }

    #[inline]
    fn record(&mut self, response: Ticks, wait: Ticks) {
        self.histogram.saturating_record(response);
        self.response_sum += u128::from(response);
        self.wait_sum += u128::from(wait);
    }

    fn add(&mut self, other: &Self) {
        self.histogram.add(&other.histogram).expect("histograms of one recorder have the same bounds");
        self.response_sum += other.response_sum;
        self.wait_sum += other.wait_sum;
    }

    fn clear(&mut self) {
        self.histogram.reset();
        (self.response_sum, self.wait_sum) = (0, 0);
    }

    fn count(&self) -> u64 {
        self.histogram.len()
    }

    fn mean(&self, sum: u128) -> f64 {
        sum as f64 / self.count().max(1) as f64
    }

    fn percentile(&self, percentile: f64) -> f64 {
        self.histogram.value_at_quantile(percentile / 100.0) as f64
    }
}

/// Half the width of the confidence interval of the batches' mean.
fn half_width(batches: &[f64]) -> Option<f64> {
    // A kind that is missing from some batches is too rare for an estimate.
    if batches.len() < BATCHES {
        return None;
    }
    let count = batches.len() as f64;
    let mean = batches.iter().sum::<f64>() / count;
    let variance = batches.iter().map(|value| (value - mean) * (value - mean)).sum::<f64>() / (count - 1.0);
    Some(STUDENT_T * libm::sqrt(variance / count))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Random;

    #[test]
    fn sums_and_percentiles_are_those_of_the_requests() {
        let mut recorder = Recorder::new(1000, 90.0, 1);
        for response in 1..=1005 {
            recorder.record(response, response / 2, response > 1000);
        }
        let summary = recorder.finish(|ticks| ticks / 10.0);
        assert_eq!((summary.all.count, summary.small.count, summary.large.count), (1005, 1000, 5));
        assert!((summary.all.mean.value - 50.3).abs() < 1e-9);
        assert!(
            (summary.small.p50 - 50.0).abs() < 0.1 && (summary.small.percentile.value - 90.0).abs() < 0.2
        );
        assert!((summary.large.max - 100.5).abs() < 0.1);
        assert!(summary.large.mean.plus_minus.is_none() && summary.small.mean.plus_minus.is_some());
    }

    #[test]
    fn the_interval_holds_the_truth_most_of_the_time() {
        let mut random = Random::new(9, 9);
        let held = (0..200).filter(|_| {
            let mut recorder = Recorder::new(2000, 50.0, 1);
            (0..2000).for_each(|_| recorder.record((random.exponential() * 1e6) as Ticks, 0, false));
            let mean = recorder.finish(|ticks| ticks / 1e6).small.mean;
            (mean.value - 1.0).abs() <= mean.plus_minus.unwrap()
        });
        let held = held.count();
        assert!((180..=199).contains(&held), "{held} of 200");
    }
}
