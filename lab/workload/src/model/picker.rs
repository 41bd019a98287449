//! Which item of a group is asked for.

use rand::{Rng, RngExt};

use super::{spec::Popularity, zipf::Zipf};

/// Draws positions within a group.
#[derive(Clone, Debug)]
pub(super) struct Picker {
    count: u64,
    kind: Kind,
}

#[derive(Clone, Debug)]
enum Kind {
    Uniform,
    /// A stride above 1 spreads the ranks over the group.
    Zipf {
        ranks: Zipf,
        stride: u64,
    },
    Latest(Zipf),
}

/// Items that the requesting thread has added to a group since the load.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Inserted {
    /// Items whose SET has been answered.
    pub(super) answered: u64,
    /// The thread's number and how many there are: inserted items are dealt out in turn.
    pub(super) thread: u64,
    pub(super) threads: u64,
}

impl Picker {
    /// A picker among `count` items, which must not be 0.
    ///
    /// # Errors
    /// Says what is wrong with the exponent.
    pub(super) fn new(count: u64, popularity: Popularity) -> Result<Self, String> {
        let ranks = |theta| Zipf::new(count, theta);
        let kind = match popularity {
            Popularity::Uniform => Kind::Uniform,
            Popularity::Zipf(theta) => Kind::Zipf { ranks: ranks(theta)?, stride: 1 },
            Popularity::ScrambledZipf(theta) => Kind::Zipf { ranks: ranks(theta)?, stride: stride(count) },
            Popularity::Latest(theta) => Kind::Latest(ranks(theta)?),
        };
        Ok(Self { count, kind })
    }

    /// The position of the next item, below `count` unless items were inserted.
    pub(super) fn pick(&self, rng: &mut impl Rng, inserted: Inserted) -> u64 {
        match &self.kind {
            Kind::Uniform => rng.random_range(0..self.count),
            Kind::Zipf { ranks, stride: 1 } => ranks.draw(rng) - 1,
            Kind::Zipf { ranks, stride } => {
                let spread = u128::from(ranks.draw(rng) - 1) * u128::from(*stride);
                (spread % u128::from(self.count)) as u64
            }
            Kind::Latest(ranks) => {
                let age = ranks.draw(rng) - 1;
                match inserted.answered.checked_sub(age + 1) {
                    Some(number) => self.count + inserted.thread + inserted.threads * number,
                    None => self.count - 1 - (age - inserted.answered),
                }
            }
        }
    }
}

/// A number near the golden section of `count` with no common factor, so that multiplying by it
/// permutes the positions.
fn stride(count: u64) -> u64 {
    let mut stride = ((count as f64 * 0.618_033_988_75) as u64).max(1);
    while gcd(stride, count) != 1 {
        stride += 1;
    }
    stride
}

fn gcd(mut a: u64, mut b: u64) -> u64 {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}

#[cfg(test)]
mod tests {
    use minos_base::seeded;

    use super::*;

    const DRAWS: usize = 400_000;

    fn counts(count: u64, popularity: Popularity, inserted: Inserted) -> Vec<f64> {
        let picker = Picker::new(count, popularity).unwrap();
        let mut rng = seeded(11);
        let mut counts = vec![0.0; (count + inserted.answered * inserted.threads) as usize];
        for _ in 0..DRAWS {
            counts[picker.pick(&mut rng, inserted) as usize] += 1.0;
        }
        counts
    }

    /// Chi-square per degree of freedom: near 1 when the draws follow `weights`.
    fn misfit(counts: &[f64], weights: impl Fn(usize) -> f64) -> f64 {
        let total: f64 = (0..counts.len()).map(&weights).sum();
        let terms = counts.iter().enumerate().map(|(position, seen)| {
            let expected = DRAWS as f64 * weights(position) / total;
            (seen - expected).powi(2) / expected
        });
        terms.sum::<f64>() / (counts.len() - 1) as f64
    }

    fn zipf(theta: f64) -> impl Fn(usize) -> f64 {
        move |rank| ((rank + 1) as f64).powf(-theta)
    }

    #[test]
    fn uniform_is_uniform() {
        let counts = counts(1000, Popularity::Uniform, Inserted::default());
        assert!(misfit(&counts, |_| 1.0) < 1.2);
        assert!(misfit(&counts, zipf(0.1)) > 2.0, "the control must not fit");
    }

    #[test]
    fn zipf_has_its_exponent() {
        for theta in [0.5, 0.99, 1.0, 1.2] {
            let counts = counts(500, Popularity::Zipf(theta), Inserted::default());
            assert!(misfit(&counts, zipf(theta)) < 1.25, "theta {theta}");
            assert!(misfit(&counts, zipf(theta + 0.05)) > 2.0, "the control must not fit");
        }
    }

    #[test]
    fn scrambled_zipf_is_a_permutation_of_zipf() {
        let mut counts = counts(500, Popularity::ScrambledZipf(0.99), Inserted::default());
        assert!(misfit(&counts, zipf(0.99)) > 2.0);
        counts.sort_by(|a, b| b.total_cmp(a));
        assert!(misfit(&counts, zipf(0.99)) < 1.25);
    }

    #[test]
    fn every_stride_permutes() {
        for count in [1u64, 2, 3, 10, 97, 1000, 4096] {
            let mut seen: Vec<u64> = (0..count).map(|rank| rank * stride(count) % count).collect();
            seen.sort_unstable();
            assert!(seen.into_iter().eq(0..count), "{count}");
        }
    }

    #[test]
    fn latest_prefers_what_this_thread_inserted_last() {
        let inserted = Inserted { answered: 5, thread: 1, threads: 2 };
        let counts = counts(500, Popularity::Latest(0.99), inserted);
        let newest = 500 + 1 + 2 * 4;
        let most = (0..counts.len()).max_by(|&a, &b| counts[a].total_cmp(&counts[b])).unwrap();
        assert_eq!(most, newest);
        // The other thread's items may not have been answered yet.
        assert!((0..5).all(|number| counts[500 + 2 * number] == 0.0));
        assert!(counts[499] > counts[400] && counts[499] > 0.0);
    }
}
