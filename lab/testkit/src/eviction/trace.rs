//! Requests whose popularity follows Zipf's law.

use rand::rngs::StdRng;
use rand_distr::{Distribution, Zipf, ZipfError};

use minos_base::seeded;

/// One request of a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// Which item.
    pub key: u64,
    /// Its size in the cache, in bytes.
    pub bytes: u64,
}

/// An endless trace: keys from 0, each with the probability that its rank has by Zipf's law.
///
/// The same seed gives the same trace.
#[derive(Debug)]
pub struct ZipfTrace<S> {
    ranks: Zipf<f64>,
    keys: u64,
    rng: StdRng,
    bytes_of: S,
}

impl<S: FnMut(u64) -> u64> ZipfTrace<S> {
    /// Requests for `keys` items with exponent `theta`; `bytes_of` returns each key's size in bytes.
    ///
    /// # Errors
    /// There are no keys, or the exponent is negative or not a number.
    pub fn new(keys: u64, theta: f64, seed: u64, bytes_of: S) -> Result<Self, ZipfError> {
        Ok(Self { ranks: Zipf::new(keys as f64, theta)?, keys, rng: seeded(seed), bytes_of })
    }
}

impl<S: FnMut(u64) -> u64> Iterator for ZipfTrace<S> {
    type Item = Request;

    fn next(&mut self) -> Option<Request> {
        let key = (self.ranks.sample(&mut self.rng) as u64).clamp(1, self.keys) - 1;
        Some(Request { key, bytes: (self.bytes_of)(key) })
    }
}

/// The size of `keys` items together, in bytes: that of a cache that holds them all.
pub fn trace_bytes(keys: u64, bytes_of: impl FnMut(u64) -> u64) -> u64 {
    (0..keys).map(bytes_of).sum()
}
