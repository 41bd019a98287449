//! The share of all requests of each micro-shard (RackOut §2.2, §4.1).

use std::{
    ops::RangeInclusive,
    sync::atomic::{AtomicU64, Ordering},
};

use minos_base::hash_key;
use minos_rack::{BadParameter, MicroShards};

use crate::{
    Random,
    zipf::{powers, sum_max},
};

/// Most keys of a dataset.
pub const KEYS_MAX: u64 = 1 << 40;
const ALPHAS: RangeInclusive<f64> = 0.0..=2.0;
const THREADS_MAX: usize = 64;
/// Keys that a thread takes at a time.
const SLICE: u64 = 1 << 22;
/// The sum of all weights stays below two to this power.
const SUM_BITS: i32 = 62;

/// The keys of a dataset and their popularity.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PopularitySpec {
    /// Keys.
    pub keys: u64,
    /// A key's popularity is its rank to the power of minus this.
    pub alpha: f64,
    /// Number of micro-shards that keys are hashed into.
    pub micro_shards: u32,
    /// The seed: selects one of many datasets of this kind.
    pub seed: u64,
}

/// The popularity of each micro-shard.
///
/// Weights are whole numbers, each key's rounded to 2^-62 of the sum at worst, so that the sum does not depend on
/// the order in which they are added: any number of threads gives the same bits. Keys are not kept.
#[derive(Clone, Debug, PartialEq)]
pub struct Popularity {
    spec: PopularitySpec,
    weights: Vec<u64>,
}

impl PopularitySpec {
    /// Checks that all parameters are within bounds.
    ///
    /// # Errors
    /// The parameter that is not.
    pub fn check(&self) -> Result<(), BadParameter> {
        MicroShards::new(self.micro_shards)?;
        if !(1..=KEYS_MAX).contains(&self.keys) {
            return Err(BadParameter::new("keys", self.keys, format_args!("1 to {KEYS_MAX}")));
        }
        if !ALPHAS.contains(&self.alpha) {
            return Err(BadParameter::new("zipf", self.alpha, "0 to 2"));
        }
        Ok(())
    }

    /// The micro-shard of the key with this rank: the key is a random number, hashed as a server would.
    #[inline]
    pub fn micro_shard(&self, micro_shards: MicroShards, rank: u64) -> u32 {
        // Odd multiples are a bijection: no two ranks have one key.
        let key = rank.wrapping_mul(0xd134_2543_de82_ef95).wrapping_add(self.seed);
        micro_shards.of(hash_key(&key.to_le_bytes(), self.seed)).0
    }

    /// The whole number that stands for a weight of one.
    fn scale(&self) -> f64 {
        libm::ldexp(1.0, SUM_BITS - libm::ceil(libm::log2(sum_max(self.keys, self.alpha))) as i32)
    }
}

impl Popularity {
    /// Computes all keys, in `threads` threads. Reports to `progress` how many keys were added.
    ///
    /// # Errors
    /// A parameter is out of bounds.
    pub fn exact(
        spec: PopularitySpec,
        threads: usize,
        progress: impl Fn(u64) + Sync,
    ) -> Result<Self, BadParameter> {
        spec.check()?;
        if !(1..=THREADS_MAX).contains(&threads) {
            return Err(BadParameter::new("threads", threads, format_args!("1 to {THREADS_MAX}")));
        }
        let next = AtomicU64::new(1);
        let parts: Vec<Vec<u64>> = std::thread::scope(|scope| {
            let worker = || scope.spawn(|| part(&spec, &next, &progress));
            let workers: Vec<_> = (0..threads).map(|_| worker()).collect();
            workers.into_iter().map(|worker| worker.join().expect("adding numbers does not panic")).collect()
        });
        let mut parts = parts.into_iter();
        let mut weights = parts.next().unwrap_or_default();
        for part in parts {
            weights.iter_mut().zip(part).for_each(|(sum, weight)| *sum += weight);
        }
        Ok(Self { spec, weights })
    }

    /// Computes the `head` most popular keys exactly. The weight of the others in each micro-shard is drawn
    /// from the normal distribution with their mean and variance.
    ///
    /// It takes a thousandth of the work for nearly the same loads, for comparing hundreds of datasets.
    ///
    /// # Errors
    /// A parameter is out of bounds.
    pub fn sketch(spec: PopularitySpec, head: u64) -> Result<Self, BadParameter> {
        spec.check()?;
        let head = head.min(spec.keys);
        let next = AtomicU64::new(1);
        let mut weights = part(&PopularitySpec { keys: head, ..spec }, &next, &|_| ());
        // The head was scaled for itself.
        let shrink = spec.scale() / PopularitySpec { keys: head, ..spec }.scale();
        let tail = |alpha: f64| sum(spec.keys, alpha) - sum(head, alpha);
        let shards = f64::from(spec.micro_shards);
        let mean = tail(spec.alpha).max(0.0) / shards;
        // Each key is in this micro-shard or is not.
        let variance = tail(2.0 * spec.alpha).max(0.0) / shards * (1.0 - 1.0 / shards);
        let (deviation, mut random) = (libm::sqrt(variance), Random::new(spec.seed, 0x7a11));
        for weight in &mut weights {
            let drawn = (mean + deviation * random.normal()).max(0.0) * spec.scale();
            *weight = (*weight as f64 * shrink + drawn) as u64;
        }
        Ok(Self { spec, weights })
    }

    /// Creates a popularity from weights that were computed before.
    pub(crate) fn from_weights(spec: PopularitySpec, weights: Vec<u64>) -> Self {
        Self { spec, weights }
    }

    /// The keys it was computed for.
    pub fn spec(&self) -> &PopularitySpec {
        &self.spec
    }

    /// The whole numbers that popularities are kept as.
    pub fn weights(&self) -> &[u64] {
        &self.weights
    }

    /// The sum of all weights.
    pub fn total(&self) -> u64 {
        self.weights.iter().sum()
    }

    /// The share of all requests of the key with this rank.
    pub fn key_share(&self, rank: u64) -> f64 {
        libm::pow(rank as f64, -self.spec.alpha) * self.spec.scale() / self.total() as f64
    }

    /// The share of all requests of each micro-shard.
    pub fn shares(&self) -> impl ExactSizeIterator<Item = f64> + '_ {
        let total = self.total() as f64;
        self.weights.iter().map(move |weight| *weight as f64 / total)
    }
}

/// The weights summed by one thread.
fn part(spec: &PopularitySpec, next: &AtomicU64, progress: &(impl Fn(u64) + Sync)) -> Vec<u64> {
    let micro_shards = MicroShards::new(spec.micro_shards).expect("the specification was checked");
    let mut weights = vec![0u64; spec.micro_shards as usize];
    let scale = spec.scale();
    loop {
        // Only hands out numbers.
        let first = next.fetch_add(SLICE, Ordering::Relaxed);
        if first > spec.keys {
            return weights;
        }
        let last = spec.keys.min(first + SLICE - 1);
        powers(first..=last, spec.alpha, |rank, power| {
            weights[spec.micro_shard(micro_shards, rank) as usize] += (power * scale + 0.5) as u64;
        });
        progress(last - first + 1);
    }
}

/// The sum of all powers: exact up to a million, and from there by Euler and Maclaurin.
fn sum(keys: u64, alpha: f64) -> f64 {
    const EXACT: u64 = 1_000_000;
    let mut sum = 0.0;
    powers(1..=keys.min(EXACT), alpha, |_, power| sum += power);
    if keys > EXACT {
        let (from, to) = (EXACT as f64, keys as f64);
        sum += sum_max(keys, alpha) - sum_max(EXACT, alpha);
        sum += (libm::pow(to, -alpha) - libm::pow(from, -alpha)) / 2.0;
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;

    const SPEC: PopularitySpec = PopularitySpec { keys: 10_000_000, alpha: 0.99, micro_shards: 64, seed: 5 };

    #[test]
    fn any_number_of_threads_gives_the_same_bits() {
        let one = Popularity::exact(SPEC, 1, |_| ()).unwrap();
        let added = AtomicU64::new(0);
        let three = Popularity::exact(SPEC, 3, |keys| {
            let _ = added.fetch_add(keys, Ordering::Relaxed);
        })
        .unwrap();
        assert_eq!(one, three);
        assert_eq!(added.into_inner(), SPEC.keys);
        assert!(one.total() < 1 << 62);
    }

    #[test]
    fn weights_are_those_of_the_keys() {
        let spec = PopularitySpec { keys: 1_000, micro_shards: 7, ..SPEC };
        let shards = MicroShards::new(7).unwrap();
        let mut expected = vec![0.0; 7];
        (1..=1_000u64)
            .for_each(|rank| expected[spec.micro_shard(shards, rank) as usize] += (rank as f64).powf(-0.99));
        let sum: f64 = expected.iter().sum();
        let popularity = Popularity::exact(spec, 2, |_| ()).unwrap();
        for (share, expected) in popularity.shares().zip(expected) {
            assert!((share - expected / sum).abs() < 1e-12);
        }
        assert!((popularity.key_share(1) - 1.0 / sum).abs() < 1e-12);
    }

    #[test]
    fn uniform_keys_have_uniform_shares() {
        let popularity = Popularity::exact(PopularitySpec { alpha: 0.0, ..SPEC }, 2, |_| ()).unwrap();
        assert!(popularity.shares().all(|share| (share * 64.0 - 1.0).abs() < 0.01));
        assert!((popularity.key_share(77) * 1e7 - 1.0).abs() < 1e-9);
    }

    #[test]
    fn a_sketch_is_near() {
        let exact = Popularity::exact(SPEC, 2, |_| ()).unwrap();
        let sketch = Popularity::sketch(SPEC, 100_000).unwrap();
        for (exact, sketch) in exact.shares().zip(sketch.shares()) {
            assert!((sketch / exact - 1.0).abs() < 0.01, "{exact} {sketch}");
        }
    }

    #[test]
    fn bad_parameters_are_named() {
        let fault = |spec: PopularitySpec| spec.check().unwrap_err().to_string();
        assert!(
            fault(PopularitySpec { keys: 0, ..SPEC }).starts_with("keys: 0 is not allowed; allowed is 1 to")
        );
        assert_eq!(
            fault(PopularitySpec { alpha: -0.1, ..SPEC }),
            "zipf: -0.1 is not allowed; allowed is 0 to 2"
        );
        assert!(fault(PopularitySpec { micro_shards: 0, ..SPEC }).starts_with("micro-shards: 0"));
        assert!(Popularity::exact(SPEC, 0, |_| ()).unwrap_err().to_string().starts_with("threads: 0"));
    }
}
