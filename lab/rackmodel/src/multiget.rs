//! The fewest nodes that can answer a multiget ("Using vector interfaces", §6.1).
//!
//! Keys lie on `replicas` nodes each, at random. The fewest nodes that hold all keys of a request are a minimum set
//! cover: greedily, the node with the most keys that are left goes first; exactly, by branch and bound.
//!
//! In RackOut one node of a unit can read for the whole unit, and replicas lie in different units. So units
//! take the place of nodes.

use minos_rack::{BadParameter, unit_count};

use crate::Random;

/// Most keys of a request: a bit each.
pub const WIDTH_MAX: u32 = 128;
/// Most keys for which the exact search is done.
pub const EXACT_WIDTH_MAX: u32 = 64;
/// Most branches that the exact search visits.
const BRANCHES_MAX: u64 = 20_000_000;
const TRIALS_MAX: u32 = 10_000_000;

/// One experiment, many times.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spec {
    /// Keys of a request.
    pub width: u32,
    /// Nodes.
    pub nodes: u32,
    /// Nodes of a unit.
    pub gf: u32,
    /// Copies of each key, in different units.
    pub replicas: u32,
    /// Number of trials.
    pub trials: u32,
    /// True if the fewest nodes are also searched for exactly.
    pub exact: bool,
    /// The seed of all random choices.
    pub seed: u64,
}

/// Averages over the trials.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Outcome {
    /// Nodes per request, chosen greedily.
    pub nodes: f64,
    /// Half the width of its 95 % confidence interval.
    pub nodes_plus_minus: f64,
    /// Keys per node: the width over the nodes.
    pub rpc_width: f64,
    /// The fewest nodes, where that was searched for.
    pub exact_nodes: Option<f64>,
    /// In how many trials the greedy choice was not the best.
    pub greedy_worse: u32,
    /// In how many trials the exact search was given up, so that the greedy choice counts.
    pub given_up: u32,
}

impl Spec {
    /// Checks that all parameters are within bounds.
    ///
    /// # Errors
    /// The parameter that is not.
    pub fn check(&self) -> Result<(), BadParameter> {
        let width_max = if self.exact { EXACT_WIDTH_MAX } else { WIDTH_MAX };
        let within = |name, value: u32, max: u32| {
            let fault = || BadParameter::new(name, value, format_args!("1 to {max}"));
            (1..=max).contains(&value).then_some(()).ok_or_else(fault)
        };
        within("width", self.width, width_max)?;
        within("trials", self.trials, TRIALS_MAX)?;
        within("replicas", self.replicas, unit_count(self.nodes, self.gf)?)
    }
}

/// The average number of nodes for keys that lie on one node each: balls into bins.
pub fn nodes_expected(width: u32, nodes: u32) -> f64 {
    let nodes = f64::from(nodes);
    nodes * (1.0 - libm::pow(1.0 - 1.0 / nodes, f64::from(width)))
}

/// Runs an experiment.
///
/// # Errors
/// A parameter is out of bounds.
pub fn run(spec: &Spec) -> Result<Outcome, BadParameter> {
    spec.check()?;
    let units = unit_count(spec.nodes, spec.gf)? as usize;
    let mut random = Random::new(spec.seed, 3);
    let (mut sum, mut squares, mut exact_sum) = (0.0, 0.0, 0.0);
    let (mut greedy_worse, mut given_up) = (0, 0);
    let mut held = vec![0u128; units];
    for _ in 0..spec.trials {
        scatter(spec, &mut held, &mut random);
        let all = u128::MAX >> (128 - spec.width);
        let sets: Vec<u128> = held.iter().copied().filter(|keys| *keys != 0).collect();
        let greedy = cover_greedily(&sets, all);
        sum += f64::from(greedy);
        squares += f64::from(greedy).powi(2);
        if spec.exact {
            let exact = cover_exactly(&sets, all);
            exact_sum += f64::from(exact.unwrap_or(greedy));
            greedy_worse += u32::from(exact.is_some_and(|exact| exact < greedy));
            given_up += u32::from(exact.is_none());
        }
    }
    let trials = f64::from(spec.trials);
    let nodes = sum / trials;
    let variance = (squares / trials - nodes * nodes).max(0.0);
    Ok(Outcome {
        nodes,
        nodes_plus_minus: 1.96 * libm::sqrt(variance / trials),
        rpc_width: f64::from(spec.width) / nodes,
        exact_nodes: spec.exact.then_some(exact_sum / trials),
        greedy_worse,
        given_up,
    })
}

/// Which keys each unit holds: every key in `replicas` different ones.
fn scatter(spec: &Spec, held: &mut [u128], random: &mut Random) {
    held.fill(0);
    for key in 0..spec.width {
        for taken in 0..spec.replicas as usize {
            // Floyd's way of choosing without replacement: at each step one more place is open.
            let last = held.len() - spec.replicas as usize + taken;
            let chosen = random.below(last + 1);
            let unit = if held[chosen] >> key & 1 == 1 { last } else { chosen };
            held[unit] |= 1 << key;
        }
    }
}

/// The sets that are needed if the one with the most keys that are left is always taken; the first of equals.
pub fn cover_greedily(sets: &[u128], all: u128) -> u32 {
    let (mut left, mut taken) = (all, 0);
    while left != 0 {
        let best = sets.iter().map(|set| set & left).max_by_key(|keys| keys.count_ones()).unwrap_or(0);
        if best == 0 {
            return taken;
        }
        // max_by_key gives the last of equals.
        let best = sets.iter().map(|set| set & left).find(|keys| keys.count_ones() == best.count_ones());
        left &= !best.unwrap_or(0);
        taken += 1;
    }
    taken
}

/// The fewest sets that hold all keys; none if the search was given up or they do not.
pub fn cover_exactly(sets: &[u128], all: u128) -> Option<u32> {
    let held = sets.iter().fold(0, |held, set| held | set);
    if held & all != all {
        return None;
    }
    let sets = undominated(sets);
    let mut search = Search { sets: &sets, best: cover_greedily(&sets, all), branches: BRANCHES_MAX };
    search.descend(all, 0);
    (search.branches > 0).then_some(search.best)
}

/// Without sets whose keys another one has, too.
fn undominated(sets: &[u128]) -> Vec<u128> {
    let mut sets = sets.to_vec();
    sets.sort_unstable_by_key(|set| (std::cmp::Reverse(set.count_ones()), *set));
    let mut kept: Vec<u128> = Vec::with_capacity(sets.len());
    for set in sets {
        if kept.iter().all(|other| set & !other != 0) {
            kept.push(set);
        }
    }
    kept
}

struct Search<'a> {
    sets: &'a [u128],
    best: u32,
    branches: u64,
}

impl Search<'_> {
    fn descend(&mut self, left: u128, taken: u32) {
        if left == 0 {
            self.best = self.best.min(taken);
            return;
        }
        let largest = self.sets.iter().map(|set| (set & left).count_ones()).max().unwrap_or(0).max(1);
        if taken + left.count_ones().div_ceil(largest) >= self.best || self.branches == 0 {
            return;
        }
        self.branches -= 1;
        // One of the sets with the rarest key must be taken; the largest first.
        let rarest = self.rarest(left);
        let mut with: Vec<u128> =
            self.sets.iter().map(|set| set & left).filter(|keys| keys & rarest != 0).collect();
        with.sort_unstable_by_key(|keys| (std::cmp::Reverse(keys.count_ones()), *keys));
        with.dedup();
        for keys in with {
            self.descend(left & !keys, taken + 1);
        }
    }

    /// Of the keys that are left, one that the fewest sets have.
    fn rarest(&self, left: u128) -> u128 {
        let keys = (0..128).map(|bit| 1u128 << bit).filter(|key| left & key != 0);
        keys.min_by_key(|key| self.sets.iter().filter(|set| *set & key != 0).count()).unwrap_or(0)
    }
}
