//! Counting requests by size class: one shared histogram a worker, plain ones for the control thread.

use std::sync::atomic::{AtomicU64, Ordering};

use minos_base::SizeClass;

/// A worker's count of requests of each size class since its start.
///
/// The owning worker writes, any thread may read. Counts only grow: the control thread takes differences
/// instead of resetting them, so that only the owner writes its cache lines.
#[derive(Debug)]
pub struct SharedHistogram {
    counts: [AtomicU64; SizeClass::COUNT],
}

impl SharedHistogram {
    /// A histogram that has seen nothing.
    pub fn new() -> Self {
        Self { counts: [const { AtomicU64::new(0) }; SizeClass::COUNT] }
    }

    /// Counts one request. Only the owning worker may call this; a second writer loses counts.
    #[inline]
    pub fn record(&self, class: SizeClass) {
        let count = &self.counts[class.index()];
        // A load and a store, because one writer needs no locked instruction. Relaxed, because
        // counts order nothing: a reader that misses the latest finds it in the next epoch.
        count.store(count.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
    }

    pub(crate) fn add_to(&self, total: &mut SizeHistogram) {
        for (sum, count) in total.counts.iter_mut().zip(&self.counts) {
            *sum = sum.wrapping_add(count.load(Ordering::Relaxed));
        }
    }
}

impl Default for SharedHistogram {
    fn default() -> Self {
        Self::new()
    }
}

/// Requests by size class, at rest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SizeHistogram {
    counts: Box<[u64]>,
}

impl SizeHistogram {
    /// No requests.
    pub fn new() -> Self {
        Self { counts: vec![0; SizeClass::COUNT].into_boxed_slice() }
    }

    /// Counts `requests` more of `class`.
    pub fn record(&mut self, class: SizeClass, requests: u64) {
        let count = &mut self.counts[class.index()];
        *count = count.saturating_add(requests);
    }

    /// Requests of `class`.
    pub fn count(&self, class: SizeClass) -> u64 {
        self.counts[class.index()]
    }

    /// Requests of all classes.
    pub fn total(&self) -> u64 {
        self.counts.iter().fold(0, |sum, &count| sum.saturating_add(count))
    }

    /// Every class with its requests, smallest first.
    pub fn iter(&self) -> impl Iterator<Item = (SizeClass, u64)> + '_ {
        classes().zip(self.counts.iter().copied())
    }

    /// Adds the requests of `other`.
    pub fn merge(&mut self, other: &Self) {
        for (sum, count) in self.counts.iter_mut().zip(&other.counts) {
            *sum = sum.wrapping_add(*count);
        }
    }

    /// The requests that came since `earlier` was taken of the same counters.
    pub fn since(&self, earlier: &Self) -> Self {
        let pairs = self.counts.iter().zip(&earlier.counts);
        Self { counts: pairs.map(|(now, before)| now.wrapping_sub(*before)).collect() }
    }
}

impl Default for SizeHistogram {
    fn default() -> Self {
        Self::new()
    }
}

/// All size classes, smallest first.
pub(crate) fn classes() -> impl DoubleEndedIterator<Item = SizeClass> {
    (0..SizeClass::COUNT).filter_map(SizeClass::from_index)
}

/// The sum of the workers' histograms, which yields the requests since the previous epoch.
#[derive(Debug, Default)]
pub struct EpochCounts {
    before: SizeHistogram,
}

impl EpochCounts {
    /// Starts with everything that the workers will count.
    pub fn new() -> Self {
        Self::default()
    }

    /// The requests that all `workers` counted since the call before this one.
    pub fn next<'a>(&mut self, workers: impl IntoIterator<Item = &'a SharedHistogram>) -> SizeHistogram {
        let mut now = SizeHistogram::new();
        for histogram in workers {
            histogram.add_to(&mut now);
        }
        let since = now.since(&self.before);
        self.before = now;
        since
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_epoch_holds_what_came_since_the_one_before() {
        let workers = [SharedHistogram::new(), SharedHistogram::new()];
        let (small, large) = (SizeClass::of(10), SizeClass::of(1 << 20));
        let mut epochs = EpochCounts::new();
        workers[0].record(small);
        workers[1].record(small);
        workers[1].record(large);
        let first = epochs.next(&workers);
        assert_eq!((first.count(small), first.count(large), first.total()), (2, 1, 3));
        workers[0].record(large);
        let second = epochs.next(&workers);
        assert_eq!((second.count(small), second.count(large), second.total()), (0, 1, 1));
        assert_eq!(epochs.next(&workers).total(), 0);
    }

    #[test]
    fn merge_and_since_undo_each_other() {
        let (mut left, mut right) = (SizeHistogram::new(), SizeHistogram::new());
        left.record(SizeClass::MIN, 3);
        right.record(SizeClass::MAX, 4);
        let before = left.clone();
        left.merge(&right);
        assert_eq!(left.total(), 7);
        assert_eq!(left.since(&before), right);
    }
}
