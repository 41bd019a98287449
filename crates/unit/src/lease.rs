//! Leases: a node's right to answer, for a time, while clocks drift.

const MILLION: u64 = 1_000_000;
/// Longest lease, in microseconds: an hour.
const LENGTH_US_MAX: u64 = 3600 * MILLION;

/// Terms under which no lease is valid at any time, or for too long.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a lease must be longer than its margin and the clocks' error, and at most an hour")]
pub struct BadTerms;

/// The terms of every lease of a rack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Terms {
    length_us: u64,
    drift_ppm: u64,
    margin_us: u64,
}

impl Terms {
    /// Leases of `length_us` under clocks that are wrong by at most `drift_ppm` each. A node stops answering
    /// `margin_us` early, for the time between its last check and the answer's departure.
    ///
    /// # Errors
    /// A lease is longer than an hour, clocks are wrong by more than a tenth, or nothing is left of a lease.
    pub fn new(length_us: u64, drift_ppm: u64, margin_us: u64) -> Result<Self, BadTerms> {
        let terms = Self { length_us, drift_ppm, margin_us };
        let is_bounded = length_us <= LENGTH_US_MAX && drift_ppm <= MILLION / 10;
        (is_bounded && length_us > terms.drift_us().saturating_add(margin_us))
            .then_some(terms)
            .ok_or(BadTerms)
    }

    /// How long a node uses a lease from the moment it asked for it, by its own clock.
    pub fn used_us(&self) -> u64 {
        self.length_us - self.drift_us() - self.margin_us
    }

    /// How long the coordinator honours a lease from the moment it granted it, by its own clock.
    pub fn honoured_us(&self) -> u64 {
        self.length_us + self.drift_us()
    }

    /// Rounded up, and one more: products of the two errors are below it.
    fn drift_us(&self) -> u64 {
        (self.length_us * self.drift_ppm).div_ceil(MILLION) + 1
    }
}

/// A node's lease.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lease {
    until_us: u64,
    /// Counts leases that did not follow their predecessor without a gap.
    number: u64,
}

impl Lease {
    /// Takes a lease that was asked for at `asked_us`, and came at `now_us`, by the node's clock.
    pub fn extend(&mut self, now_us: u64, asked_us: u64, terms: &Terms) {
        if !self.is_held(now_us) {
            self.number += 1;
        }
        self.until_us = self.until_us.max(asked_us.saturating_add(terms.used_us()));
    }

    /// The number of the lease, and when it ends.
    pub fn number_and_end(&self) -> (u64, u64) {
        (self.number, self.until_us)
    }

    /// True while the lease is valid.
    pub fn is_held(&self, now_us: u64) -> bool {
        now_us < self.until_us
    }

    /// The number of the lease, if it is valid: the same number at two moments means that it was valid at all moments
    /// between them.
    pub fn number(&self, now_us: u64) -> Option<u64> {
        self.is_held(now_us).then_some(self.number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_lease_with_a_gap_has_another_number() {
        let terms = Terms::new(1_000_000, 500, 100_000).unwrap();
        let mut lease = Lease::default();
        assert_eq!(lease.number(0), None);
        lease.extend(10, 5, &terms);
        let first = lease.number(10);
        assert!(first.is_some() && lease.number(5 + terms.used_us()).is_none());
        lease.extend(500_000, 500_000, &terms);
        assert_eq!(lease.number(1_000_000), first);
        // A late answer to an early question shortens nothing.
        lease.extend(600_000, 7, &terms);
        assert_eq!(lease.number(1_000_000), first);
        lease.extend(2_000_000, 1_999_999, &terms);
        assert_ne!(lease.number(2_000_000), first);
    }

    #[test]
    fn terms_without_a_lease_are_refused() {
        assert!(Terms::new(1000, 500, 999).is_err() && Terms::new(1000, 500, 997).is_ok());
        assert!(Terms::new(u64::MAX, 500, 0).is_err() && Terms::new(1000, 200_000, 0).is_err());
    }

    proptest! {
        /// Whatever the clocks do within their bounds, the node stops first, by the margin at least.
        #[test]
        fn a_node_stops_before_the_coordinator(
            length_us in 10_000u64..LENGTH_US_MAX, drift_ppm in 0u64..1000, margin_us in 0u64..5000,
            node_ppm in -1.0f64..=1.0, coordinator_ppm in -1.0f64..=1.0, way_us in 0u64..1_000_000,
        ) {
            let terms = Terms::new(length_us, drift_ppm, margin_us).unwrap();
            let rate = |part: f64| 1.0 + part * drift_ppm as f64 / 1e6;
            let node_ends = terms.used_us() as f64 / rate(node_ppm);
            let coordinator_ends = way_us as f64 + terms.honoured_us() as f64 / rate(coordinator_ppm);
            let margin = margin_us as f64 / rate(node_ppm);
            prop_assert!(node_ends + margin <= coordinator_ends, "{node_ends} {coordinator_ends}");
        }
    }
}
