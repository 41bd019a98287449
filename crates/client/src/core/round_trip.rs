//! Round-trip estimate and retry time-outs.

use rand::{RngExt, rngs::SmallRng};

/// The estimate before the first answer, in nanoseconds.
const FIRST_NS: u64 = 50_000_000;
/// Maximum doublings of the time-out; it reaches the longest wait long before.
const DOUBLINGS_MAX: u32 = 20;

/// The estimate of RFC 6298. Each answer echoes the stamp of its datagram, so that answers to repeated
/// requests count, too, without Karn's rule.
#[derive(Debug)]
pub(super) struct RoundTrip {
    smooth_ns: Option<u64>,
    deviation_ns: u64,
    min_ns: u64,
    max_ns: u64,
}

impl RoundTrip {
    pub(super) fn new(min_ns: u64, max_ns: u64) -> Self {
        Self { smooth_ns: None, deviation_ns: 0, min_ns, max_ns }
    }

    /// Adds the round trip of an answer.
    pub(super) fn observe(&mut self, sample_ns: u64) {
        match self.smooth_ns {
            None => {
                self.smooth_ns = Some(sample_ns);
                self.deviation_ns = sample_ns / 2;
            }
            Some(smooth_ns) => {
                let off_ns = smooth_ns.abs_diff(sample_ns);
                self.deviation_ns = self.deviation_ns - self.deviation_ns / 4 + off_ns / 4;
                self.smooth_ns = Some(smooth_ns - smooth_ns / 8 + sample_ns / 8);
            }
        }
    }

    /// The time after which try number `attempts` (the first is 1) counts as lost. Up to a quarter is added
    /// at random, so that clients do not repeat at the same time.
    pub(super) fn wait_ns(&self, attempts: u32, dice: &mut SmallRng) -> u64 {
        let likely_ns = self
            .smooth_ns
            .map_or(FIRST_NS, |smooth_ns| smooth_ns.saturating_add(self.deviation_ns.saturating_mul(4)));
        let doublings = attempts.saturating_sub(1).min(DOUBLINGS_MAX);
        let wait_ns =
            likely_ns.clamp(self.min_ns, self.max_ns).saturating_mul(1 << doublings).min(self.max_ns);
        wait_ns + below(wait_ns / 4 + 1, dice)
    }
}

/// A random number below `bound`.
pub(crate) fn below(bound: u64, dice: &mut SmallRng) -> u64 {
    // The bias is far below what anybody could measure.
    ((u128::from(bound) * u128::from(dice.random::<u64>())) >> u64::BITS) as u64
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;

    use super::*;

    #[test]
    fn waits_follow_the_round_trips_and_double() {
        let mut round_trip = RoundTrip::new(1_000, 1_000_000_000);
        let mut dice = SmallRng::seed_from_u64(1);
        for _ in 0..100 {
            round_trip.observe(100_000);
        }
        let waits =
            |attempts, round_trip: &RoundTrip, dice: &mut SmallRng| round_trip.wait_ns(attempts, dice);
        let first_ns = waits(1, &round_trip, &mut dice);
        assert!((100_000..=130_000).contains(&first_ns), "{first_ns}");
        let third_ns = waits(3, &round_trip, &mut dice);
        assert!((400_000..=520_000).contains(&third_ns), "{third_ns}");
        assert!(waits(1000, &round_trip, &mut dice) <= 1_250_000_000);
    }

    #[test]
    fn waits_stay_within_their_bounds() {
        let mut round_trip = RoundTrip::new(5_000, 7_000);
        let mut dice = SmallRng::seed_from_u64(2);
        round_trip.observe(1);
        assert!(round_trip.wait_ns(1, &mut dice) >= 5_000);
        round_trip.observe(u64::MAX / 2);
        assert!(round_trip.wait_ns(1, &mut dice) <= 7_000 * 5 / 4);
    }
}
