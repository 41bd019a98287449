//! Randomness that is the same on every machine.

use rand_xoshiro::{
    Xoshiro256PlusPlus,
    rand_core::{Rng, SeedableRng},
};

/// A seeded generator: xoshiro256++, whose output is specified, with logarithms that do not come from
/// the machine's mathematical library.
#[derive(Clone, Debug)]
pub struct Random(Xoshiro256PlusPlus);

impl Random {
    /// The `stream`th of many independent generators of one `seed`.
    ///
    /// Arrivals, service times and choices have a stream each, so that two designs that are compared
    /// under one seed see the same requests at the same times.
    pub fn new(seed: u64, stream: u64) -> Self {
        let mut outer = Xoshiro256PlusPlus::seed_from_u64(seed);
        let mixed = outer.next_u64() ^ stream.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        Self(Xoshiro256PlusPlus::seed_from_u64(mixed))
    }

    /// 64 random bits.
    #[inline]
    pub fn bits(&mut self) -> u64 {
        self.0.next_u64()
    }

    /// Above 0, at most 1.
    #[inline]
    pub fn unit(&mut self) -> f64 {
        ((self.bits() >> 11) + 1) as f64 * (1.0 / (1u64 << 53) as f64)
    }

    /// At least 0, below `bound`, which is at most 2^32.
    #[inline]
    pub fn below(&mut self, bound: usize) -> usize {
        // Off by at most `bound` in 2^32, which no run is long enough to show.
        (((self.bits() >> 32) * bound as u64) >> 32) as usize
    }

    /// Exponential with mean 1.
    #[inline]
    pub fn exponential(&mut self) -> f64 {
        -libm::log(self.unit())
    }

    /// Normal with mean 0 and variance 1, by Marsaglia's polar method.
    pub fn normal(&mut self) -> f64 {
        loop {
            let (x, y) = (2.0 * self.unit() - 1.0, 2.0 * self.unit() - 1.0);
            let square = x * x + y * y;
            if square > 0.0 && square < 1.0 {
                return x * libm::sqrt(-2.0 * libm::log(square) / square);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_on_every_machine() {
        // The generator's first outputs. Other values would mean that old results can no longer be repeated.
        let mut random = Random::new(1, 2);
        let drawn = [random.bits(), random.exponential().to_bits(), random.normal().to_bits()];
        assert_eq!(drawn, [5021438485817027901, 4598973228874215950, 13830162122806250353]);
        assert_ne!(Random::new(1, 3).bits(), Random::new(1, 2).bits());
        assert_ne!(Random::new(2, 2).bits(), Random::new(1, 2).bits());
    }

    #[test]
    fn moments_are_those_of_the_distributions() {
        let mut random = Random::new(7, 0);
        let draws = 1_000_000;
        let mut mean_of = |draw: &mut dyn FnMut(&mut Random) -> f64| {
            (0..draws).map(|_| draw(&mut random)).sum::<f64>() / f64::from(draws)
        };
        assert!((mean_of(&mut Random::unit) - 0.5).abs() < 0.002);
        assert!((mean_of(&mut |r| r.below(8) as f64) - 3.5).abs() < 0.01);
        assert!((mean_of(&mut Random::exponential) - 1.0).abs() < 0.005);
        assert!(mean_of(&mut Random::normal).abs() < 0.005);
        assert!((mean_of(&mut |r| r.normal().powi(2)) - 1.0).abs() < 0.01);
    }
}
