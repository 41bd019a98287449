//! Ranks by Zipf's law.

use rand::{Rng, RngExt};

/// An exponent this near to 1 counts as 1, where the integral is a logarithm.
const NEAR_ONE: f64 = 1e-8;

/// Zipf's distribution: rank `k` of 1 to `count` in proportion to `k` to the power of minus `theta`.
///
/// Exact, by rejection-inversion (Hörmann and Derflinger, ACM TOMACS 6:3, 1996). A draw takes little more
/// than one power; those of `rand_distr::Zipf` were a quarter of what an operation cost the driver.
#[derive(Clone, Debug)]
pub(super) struct Zipf {
    count: u64,
    theta: f64,
    /// 1 less the exponent: that of the integral.
    power: f64,
    /// The integral up to the end of the first rank, less that rank's share, and up to the end of the last.
    integrals: (f64, f64),
    /// A point this near below its rank is always accepted.
    near: f64,
}

impl Zipf {
    /// Ranks of 1 to `count`, which must not be 0.
    ///
    /// # Errors
    /// The exponent is negative or no number.
    pub(super) fn new(count: u64, theta: f64) -> Result<Self, String> {
        if !(0.0..f64::INFINITY).contains(&theta) {
            return Err(format!("the exponent of a popularity is {theta}, not 0 or more"));
        }
        let mut zipf = Self { count, theta, power: 1.0 - theta, integrals: (0.0, 0.0), near: 0.0 };
        zipf.integrals = (zipf.integral(1.5) - 1.0, zipf.integral(count as f64 + 0.5));
        zipf.near = 2.0 - zipf.inverse(zipf.integral(2.5) - zipf.share(2.0));
        Ok(zipf)
    }

    /// Draws a rank from 1.
    pub(super) fn draw(&self, rng: &mut impl Rng) -> u64 {
        let (low, high) = self.integrals;
        loop {
            let at = high + rng.random::<f64>() * (low - high);
            let point = self.inverse(at);
            // Rounding may leave the ends of the ranks.
            let rank = ((point + 0.5) as i64).clamp(1, self.count as i64);
            let middle = rank as f64;
            if middle - point <= self.near || at >= self.integral(middle + 0.5) - self.share(middle) {
                return rank as u64;
            }
        }
    }

    fn share(&self, rank: f64) -> f64 {
        rank.powf(-self.theta)
    }

    /// The integral of the shares, but for a constant.
    fn integral(&self, point: f64) -> f64 {
        let power = self.power;
        if power.abs() < NEAR_ONE { point.ln() } else { (point.powf(power) - 1.0) / power }
    }

    /// The point up to which the integral is `at`.
    fn inverse(&self, at: f64) -> f64 {
        let power = self.power;
        if power.abs() < NEAR_ONE { at.exp() } else { (1.0 + at * power).max(0.0).powf(1.0 / power) }
    }
}

#[cfg(test)]
mod tests {
    use minos_base::seeded;

    use super::*;

    #[test]
    fn every_rank_has_its_share() {
        const DRAWS: usize = 200_000;
        for theta in [0.0, 0.5, 0.99, 1.0, 1.0 + 1e-6, 2.5] {
            let zipf = Zipf::new(50, theta).unwrap();
            let (mut seen, mut rng) = ([0usize; 50], seeded(5));
            (0..DRAWS).for_each(|_| seen[zipf.draw(&mut rng) as usize - 1] += 1);
            let share = |rank: usize| ((rank + 1) as f64).powf(-theta);
            let all: f64 = (0..50).map(share).sum();
            for (rank, &seen) in seen.iter().enumerate() {
                let expected = DRAWS as f64 * share(rank) / all;
                let off = (seen as f64 - expected).abs();
                assert!(off < 4.5 * expected.sqrt() + 1.0, "theta {theta} rank {rank}: {seen} of {expected}");
            }
        }
    }

    #[test]
    fn ranks_stay_within_their_bounds() {
        for (count, theta) in [(1, 0.99), (2, 0.0), (1 << 40, 0.99), (1 << 40, 1.0), (3, 40.0)] {
            let zipf = Zipf::new(count, theta).unwrap();
            let mut rng = seeded(6);
            assert!((0..10_000).all(|_| (1..=count).contains(&zipf.draw(&mut rng))), "{count} {theta}");
        }
        for theta in [-0.1, f64::NAN, f64::INFINITY] {
            assert!(Zipf::new(10, theta).is_err());
        }
    }
}
