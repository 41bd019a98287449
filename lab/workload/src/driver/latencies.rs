//! Latencies of a driver outside of this crate.

use hdrhistogram::Histogram;

use super::{recorder::histogram, report::Quantiles};

/// Latencies in buckets, each right within 0.1 %.
#[derive(Clone, Debug)]
pub struct Latencies(Histogram<u64>);

impl Latencies {
    /// None yet.
    pub fn new() -> Self {
        Self(histogram())
    }

    /// Counts one.
    pub fn record_ns(&mut self, ns: u64) {
        self.0.saturating_record(ns.max(1));
    }

    /// Adds those of another thread.
    pub fn merge(&mut self, other: &Self) {
        self.0.add(&other.0).expect("both have the same bounds");
    }

    /// Their distribution.
    pub fn quantiles(&self) -> Quantiles {
        Quantiles::of(&self.0)
    }
}

impl Default for Latencies {
    fn default() -> Self {
        Self::new()
    }
}
