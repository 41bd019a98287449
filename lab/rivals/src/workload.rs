//! Items and operations, made before anything is timed.

use clap::ValueEnum;
use minos_base::{KeyHash, hash_key, seeded_stream};
use rand::{Rng, RngExt};
use rand_distr::{Distribution, Zipf};
use serde::{Deserialize, Serialize};

/// Skew of the popularities, as in YCSB and in MICA §5.1.
const ZIPF_EXPONENT: f64 = 0.99;

/// 2^64 divided by the golden ratio, made odd: multiplication by it maps no two numbers to the same.
const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;

/// One operation, with everything that a table may need to know in advance.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Op<const KEY: usize> {
    /// The hash of the key for Minos, which takes it from its caller.
    pub(crate) hash: KeyHash,
    pub(crate) key: [u8; KEY],
    /// True if the item is replaced, false if it is read.
    pub(crate) is_put: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
pub(crate) enum Popularity {
    /// The item of rank r is drawn in proportion to 1 / r^0.99.
    Zipf,
    /// All items are equally popular.
    Uniform,
}

/// The operations that each thread may run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Routing {
    /// Any thread reads and writes any key (CRCW).
    Any,
    /// Any thread reads any key; only the owner of one of so many partitions writes its keys (CREW).
    OwnerWrites(usize),
    /// Only the owner reads and writes them (EREW).
    Owner(usize),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Mix {
    pub(crate) popularity: Popularity,
    /// Share of the reads in percent; the others replace items.
    pub(crate) get_percent: u32,
}

impl Routing {
    /// True if thread `thread` of `threads` may run this operation.
    fn allows(self, hash: KeyHash, is_put: bool, (thread, threads): (usize, usize)) -> bool {
        // As Minos deals its partitions.
        let is_owner = |partitions: usize| hash.partition(partitions.ilog2()) % threads == thread;
        match self {
            Self::Any => true,
            Self::OwnerWrites(partitions) => !is_put || is_owner(partitions),
            Self::Owner(partitions) => is_owner(partitions),
        }
    }
}

/// The key of the item of a rank. Keys of neighbouring ranks are unrelated.
pub(crate) fn key<const KEY: usize>(rank: u64) -> [u8; KEY] {
    let mut bytes = [0; KEY];
    for (number, chunk) in (1..).zip(bytes.chunks_mut(8)) {
        let word = mixed(rank.wrapping_add(SPREAD.wrapping_mul(number)));
        chunk.copy_from_slice(&word.to_le_bytes()[..chunk.len()]);
    }
    bytes
}

/// The value of a key, always the same, so that reads can be checked.
#[inline]
pub(crate) fn value<const KEY: usize, const VALUE: usize>(key: &[u8; KEY]) -> [u8; VALUE] {
    let word = (!first_word(key)).to_le_bytes();
    let mut bytes = [0; VALUE];
    for chunk in bytes.chunks_mut(8) {
        chunk.copy_from_slice(&word[..chunk.len()]);
    }
    bytes
}

/// The first eight bytes, which identify keys and values.
#[inline]
pub(crate) fn first_word(bytes: &[u8]) -> u64 {
    bytes.first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes))
}

/// The keys of all items, in an order that is unrelated to their popularity.
pub(crate) fn load_order<const KEY: usize>(items: u64) -> impl Iterator<Item = [u8; KEY]> {
    let step = (items / 3 * 2 + 1..).find(|&step| gcd(step, items) == 1).unwrap_or(1);
    (0..items).map(move |at| key((u128::from(at) * u128::from(step) % u128::from(items)) as u64))
}

/// `count` operations of one thread among several, given in `place`; determined by the arguments alone.
pub(crate) fn operations<const KEY: usize>(
    mix: Mix,
    items: u64,
    count: usize,
    routing: Routing,
    place: (usize, usize),
    seed: u64,
) -> Vec<Op<KEY>> {
    let mut random = seeded_stream(seed, place.0 as u64);
    let ranks = Ranks::new(mix.popularity, items);
    let mut next = || {
        let is_put = random.random_range(0..100) >= mix.get_percent;
        loop {
            let key = key(ranks.draw(&mut random));
            let hash = hash_key(&key, 0);
            if routing.allows(hash, is_put, place) {
                return Op { hash, key, is_put };
            }
        }
    };
    (0..count).map(|_| next()).collect()
}

/// Draws ranks, the most popular one being 0.
pub(crate) enum Ranks {
    /// Of a popularity that falls.
    Zipf(Zipf<f64>),
    /// Of so many items that are equally popular.
    Uniform(u64),
}

impl Ranks {
    /// Ranks of so many items.
    pub(crate) fn new(popularity: Popularity, items: u64) -> Self {
        match (popularity, Zipf::new(items as f64, ZIPF_EXPONENT)) {
            (Popularity::Zipf, Ok(zipf)) => Self::Zipf(zipf),
            _ => Self::Uniform(items),
        }
    }

    pub(crate) fn draw(&self, random: &mut impl Rng) -> u64 {
        match self {
            Self::Zipf(zipf) => zipf.sample(random) as u64 - 1,
            Self::Uniform(items) => random.random_range(0..*items),
        }
    }
}

/// The finaliser of SplitMix64, which maps no two numbers to the same.
fn mixed(number: u64) -> u64 {
    let number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ (number >> 31)
}

fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn every_item_is_loaded_once() {
        for items in [1, 2, 3, 10, 999, 1 << 12] {
            let keys: HashSet<[u8; 8]> = load_order(items).collect();
            assert_eq!(keys.len() as u64, items);
            assert_eq!(keys, (0..items).map(key).collect());
        }
    }

    #[test]
    fn operations_keep_to_mix_and_routing() {
        for routing in [Routing::Any, Routing::OwnerWrites(8), Routing::Owner(8)] {
            let mix = Mix { popularity: Popularity::Zipf, get_percent: 95 };
            let ops: Vec<Op<16>> = operations(mix, 1000, 20_000, routing, (1, 2), 1);
            let puts = ops.iter().filter(|op| op.is_put).count();
            assert!((800..1200).contains(&puts), "{puts}");
            let strange = ops.iter().filter(|op| op.hash.partition(3) % 2 != 1);
            let strange_puts = strange.clone().filter(|op| op.is_put).count();
            assert_eq!(strange_puts == 0, routing != Routing::Any);
            assert_eq!(strange.count() == 0, routing == Routing::Owner(8));
        }
    }

    #[test]
    fn popular_items_are_popular() {
        let share = |popularity| {
            let ops: Vec<Op<8>> =
                operations(Mix { popularity, get_percent: 50 }, 1000, 20_000, Routing::Any, (0, 1), 1);
            ops.iter().filter(|op| op.key == key(0)).count()
        };
        // 1 / H(1000, 0.99) is 13 %.
        assert!((2300..2900).contains(&share(Popularity::Zipf)), "{}", share(Popularity::Zipf));
        assert!((5..50).contains(&share(Popularity::Uniform)));
    }
}
