//! The moving average of the epochs' histograms, and the values derived from it.

use minos_base::SizeClass;

use crate::{Cost, SizeHistogram, histogram::classes};

/// Standard errors of a count within which two percentiles are held to be the same.
const STANDARD_ERRORS: f64 = 4.0;

/// Requests by size class, averaged over the epochs with falling weights (Minos §3.1, H_curr).
#[derive(Clone, Debug)]
pub(crate) struct Smoothed {
    counts: Box<[f64]>,
}

impl Smoothed {
    pub(crate) fn new() -> Self {
        Self { counts: vec![0.0; SizeClass::COUNT].into_boxed_slice() }
    }

    /// `H_curr[i] = (1 - alpha) H_curr[i] + alpha H[i]`.
    pub(crate) fn update(&mut self, alpha: f64, latest: &SizeHistogram) {
        for (smoothed, (_, count)) in self.counts.iter_mut().zip(latest.iter()) {
            *smoothed = (1.0 - alpha) * *smoothed + alpha * count as f64;
        }
    }

    fn total(&self) -> f64 {
        self.counts.iter().sum()
    }

    /// Requests of the classes up to `class`, included.
    fn up_to(&self, class: SizeClass) -> f64 {
        self.counts[..=class.index()].iter().sum()
    }

    /// Share of the requests in the classes up to `class`; 1 when there are none.
    pub(crate) fn share_up_to(&self, class: SizeClass) -> f64 {
        let total = self.total();
        if total > 0.0 { self.up_to(class) / total } else { 1.0 }
    }

    /// The class of the percentile, or `previous` where the counts cannot distinguish the two.
    ///
    /// Without the latter, a percentile near the edge of a class would move with every epoch's
    /// noise, and one at the edge of a gap would swing between small and huge.
    pub(crate) fn percentile(&self, percentile: f64, previous: Option<SizeClass>) -> SizeClass {
        let (total, share) = (self.total(), percentile / 100.0);
        let wanted = share * total;
        let noise = STANDARD_ERRORS * (share * (1.0 - share) * total).sqrt();
        // Few requests must not excuse any threshold.
        let tolerance = noise.min((1.0 - share) * total / 2.0);
        match previous {
            Some(class) if self.is_percentile_within(class, wanted, tolerance) => class,
            _ => self.first_reaching(wanted),
        }
    }

    /// True if `class` would be the percentile for some count within `tolerance` of `wanted`.
    fn is_percentile_within(&self, class: SizeClass, wanted: f64, tolerance: f64) -> bool {
        let up_to = self.up_to(class);
        let below = up_to - self.counts[class.index()];
        below < wanted + tolerance && up_to >= wanted - tolerance
    }

    /// The first class up to which there are `wanted` requests.
    fn first_reaching(&self, wanted: f64) -> SizeClass {
        // A sum of many floats may end a little below the total.
        let wanted = wanted * (1.0 - 1e-9);
        let mut sum = 0.0;
        for (class, count) in classes().zip(&self.counts) {
            sum += count;
            if sum >= wanted && sum > 0.0 {
                return class;
            }
        }
        SizeClass::MAX
    }

    /// Each class with its requests.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (SizeClass, f64)> + '_ {
        classes().zip(self.counts.iter().copied())
    }

    /// The total cost of each class's requests.
    pub(crate) fn costs(&self, cost: Cost) -> Vec<f64> {
        classes().zip(&self.counts).map(|(class, count)| cost.of(class) * count).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn smoothed(counts: &[(u64, u64)]) -> Smoothed {
        let mut histogram = SizeHistogram::new();
        for &(bytes, requests) in counts {
            histogram.record(SizeClass::of(bytes), requests);
        }
        let mut smoothed = Smoothed::new();
        smoothed.update(1.0, &histogram);
        smoothed
    }

    #[test]
    fn the_average_follows_the_paper() {
        let mut average = smoothed(&[(10, 100)]);
        let mut latest = SizeHistogram::new();
        latest.record(SizeClass::of(20), 200);
        average.update(0.9, &latest);
        assert!((average.counts[10] - 10.0).abs() < 1e-9);
        assert!((average.counts[20] - 180.0).abs() < 1e-9);
    }

    #[test]
    fn percentiles_are_those_of_the_counts() {
        let sizes = smoothed(&[(1, 50), (2, 40), (3, 9), (1 << 20, 1)]);
        for (percentile, bytes) in [(1.0, 1), (50.0, 1), (50.1, 2), (90.0, 2), (99.0, 3), (100.0, 1 << 20)] {
            assert_eq!(sizes.percentile(percentile, None), SizeClass::of(bytes), "p{percentile}");
        }
    }

    #[test]
    fn a_previous_threshold_stays_only_within_the_noise() {
        // 1.02 % of the requests are huge: by the counts p99 is huge, but not by more than noise.
        let sizes = smoothed(&[(100, 98_980), (1 << 20, 1_020)]);
        assert_eq!(sizes.percentile(99.0, None), SizeClass::of(1 << 20));
        assert_eq!(sizes.percentile(99.0, Some(SizeClass::of(100))), SizeClass::of(100));
        let sizes = smoothed(&[(100, 98_000), (1 << 20, 2_000)]);
        assert_eq!(sizes.percentile(99.0, Some(SizeClass::of(100))), SizeClass::of(1 << 20));
        assert_eq!(sizes.percentile(99.0, Some(SizeClass::MAX)), SizeClass::of(1 << 20));
    }
}
