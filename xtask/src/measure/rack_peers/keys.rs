//! Keys with a zipf popularity, who owns them, and the requests that a node gets.

use std::{
    fmt::Write as _,
    hash::{DefaultHasher, Hash as _, Hasher as _},
};

use minos_rackmodel::Random;

use super::NODES;

const KEYS: u32 = 500_000;
/// Sets of names. Chance decides whether the hottest keys come together.
pub(super) const SETS: u32 = 11;
const ALPHA: f64 = 0.99;
pub(super) const VALUE_BYTES: usize = 32;

/// All keys, the hottest first, each with its share of all requests.
pub(in crate::measure) struct Keys {
    pub(super) names: Vec<String>,
    shares: Vec<f64>,
}

/// Keys that a node is asked for.
pub(in crate::measure) struct Mix<'a> {
    names: Vec<&'a str>,
    /// The share of all requests of all keys up to each one.
    sums: Vec<f64>,
}

impl Keys {
    /// Keys under the names of a set.
    fn of_set(set: u32) -> Self {
        Self::of(set, KEYS)
    }

    fn of(set: u32, count: u32) -> Self {
        // CRC-16 is linear: names that differ in a number alone would spread alike in every set.
        let name = |rank: u32| {
            let mut hasher = DefaultHasher::new();
            (set, rank).hash(&mut hasher);
            format!("{:016x}", hasher.finish())
        };
        let powers: Vec<f64> = (1..=count).map(|rank| f64::from(rank).powf(-ALPHA)).collect();
        let sum: f64 = powers.iter().sum();
        Self {
            names: (1..=count).map(name).collect(),
            shares: powers.iter().map(|power| power / sum).collect(),
        }
    }

    /// Keys of the set whose imbalance is the median.
    pub(in crate::measure) fn median(imbalances: &[f64]) -> Self {
        let mut order: Vec<usize> = (0..imbalances.len()).collect();
        order.sort_by(|&one, &other| imbalances[one].total_cmp(&imbalances[other]));
        Self::of_set(order[order.len() / 2] as u32)
    }

    /// The share of all requests that are for keys of each node.
    pub(super) fn shares(&self, owners: &[usize]) -> [f64; NODES] {
        let mut shares = [0.0; NODES];
        owners.iter().zip(&self.shares).for_each(|(&owner, share)| shares[owner] += share);
        shares
    }

    /// The busiest node over the mean, if each key is asked from its owner, for each set.
    pub(in crate::measure) fn imbalances(
        owner: impl Fn(&str) -> anyhow::Result<usize>,
    ) -> anyhow::Result<Vec<f64>> {
        let imbalance = |set| {
            let keys = Self::of_set(set);
            let owners = keys.names.iter().map(|name| owner(name)).collect::<anyhow::Result<Vec<_>>>()?;
            Ok(keys.shares(&owners).into_iter().fold(0.0, f64::max) * NODES as f64)
        };
        (0..SETS).map(imbalance).collect()
    }

    /// All keys.
    pub(super) fn all(&self) -> Mix<'_> {
        self.mix(|_| true)
    }

    /// The keys of one node.
    pub(super) fn of_node(&self, owners: &[usize], node: usize) -> Mix<'_> {
        self.mix(|at| owners[at] == node)
    }

    fn mix(&self, is_in: impl Fn(usize) -> bool) -> Mix<'_> {
        let (mut names, mut sums, mut sum) = (Vec::new(), Vec::new(), 0.0);
        for (at, share) in self.shares.iter().enumerate().filter(|(at, _)| is_in(*at)) {
            sum += share;
            names.push(self.names[at].as_str());
            sums.push(sum);
        }
        Mix { names, sums }
    }
}

impl Mix<'_> {
    /// A trace that stores each key.
    pub(super) fn load(&self) -> String {
        self.names.iter().fold(String::new(), |text, name| line(text, 0.0, "set", name))
    }

    /// A trace of so many GETs, with Poisson arrivals at a rate, or all at once for a closed loop.
    pub(in crate::measure) fn trace(
        &self,
        requests: usize,
        rate: Option<f64>,
        random: &mut Random,
    ) -> String {
        let (mut text, mut at_s) = (String::new(), 0.0);
        for _ in 0..requests {
            at_s += rate.map_or(0.0, |rate| random.exponential() / rate);
            text = line(text, at_s, "get", self.draw(random));
        }
        text
    }

    /// A key, in proportion to its share.
    pub(super) fn draw(&self, random: &mut Random) -> &str {
        let wanted = random.unit() * self.sums.last().copied().unwrap_or(0.0);
        let at = self.sums.partition_point(|sum| *sum <= wanted);
        self.names[at.min(self.names.len() - 1)]
    }
}

fn line(mut text: String, at_s: f64, verb: &str, name: &str) -> String {
    // It cannot fail.
    let _ = writeln!(text, "{at_s:.9},{verb},{name},{VALUE_BYTES}");
    text
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::{super::cluster, *};

    #[test]
    fn a_node_gets_its_keys_in_proportion() {
        let keys = Keys::of(7, 4);
        let owners = [0, 1, 0, 1];
        let shares = keys.shares(&owners);
        assert!((shares.iter().sum::<f64>() - 1.0).abs() < 1e-9);
        let random = &mut Random::new(1, 0);
        let trace = keys.of_node(&owners, 1).trace(20_000, None, random);
        let count = |name: &str| trace.lines().filter(|line| line.contains(name)).count() as f64;
        let [second, fourth] = [1, 3].map(|at: usize| count(&keys.names[at]));
        assert_eq!(second + fourth, 20_000.0);
        assert!((second / fourth / 2f64.powf(ALPHA) - 1.0).abs() < 0.05, "{second} {fourth}");
    }

    #[test]
    fn requests_arrive_at_their_rate() {
        let trace = Keys::of(7, 4).all().trace(20_000, Some(1e5), &mut Random::new(1, 0));
        let last = trace.lines().last().and_then(|line| line.split(',').next()).unwrap();
        assert!((last.parse::<f64>().unwrap() / 0.2 - 1.0).abs() < 0.05, "{last}");
        let keys = Keys::of(7, 2);
        let first = format!("0.000000000,set,{},32", keys.names[0]);
        assert_eq!(keys.all().load().lines().next(), Some(&*first));
    }

    #[test]
    fn each_set_spreads_its_keys_over_a_cluster_in_another_way() {
        let firsts_owner = |set| cluster::owner(&Keys::of(set, 1).names[0]);
        let seconds_owner = |set| cluster::owner(&Keys::of(set, 2).names[1]);
        let distances: BTreeSet<_> = (0..SETS).map(|set| firsts_owner(set) ^ seconds_owner(set)).collect();
        assert!(distances.len() > 2, "{distances:?}");
    }
}
