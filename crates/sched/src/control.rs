//! From costs by size to roles and ranges (Minos §3.1).

use minos_base::SizeClass;

use crate::{Cost, Role, SizeRange, WorkerId};

/// Largest value whose fetch from flash is dealt although it is large, in bytes: to send it takes about as long as to
/// send a small one.
const DEALT_BYTES_MAX: u64 = 16 << 10;

/// The largest class whose fetches are dealt among large workers, and do not go by size.
pub(crate) fn dealt_max(threshold: SizeClass) -> SizeClass {
    threshold.max(SizeClass::of(DEALT_BYTES_MAX))
}

/// The cost of an epoch's requests.
#[derive(Clone, Debug)]
pub(crate) struct Costs {
    /// Of each class, with its fetches from flash unless those are dealt.
    pub(crate) classes: Vec<f64>,
    /// Of requests whose items large workers fetch from flash and deal among them.
    pub(crate) fetches: f64,
}

impl Costs {
    /// Costs without fetches by class, and with those of `fetched` items.
    pub(crate) fn new(
        mut classes: Vec<f64>,
        fetched: impl Iterator<Item = (SizeClass, f64)>,
        cost: Cost,
        threshold: SizeClass,
    ) -> Self {
        let mut fetches = 0.0;
        // If nothing is large, requests fetch where they arrive.
        for (class, items) in fetched.filter(|_| threshold < SizeClass::MAX) {
            let (of_class, fetch) = (&mut classes[class.index()], items * cost.of_fetch(class));
            if class > dealt_max(threshold) {
                *of_class += fetch;
            } else {
                // An item that changes meanwhile is no request of this class.
                let moved = (items * cost.of(class)).min(*of_class);
                *of_class -= moved;
                fetches += moved + fetch;
            }
        }
        Self { classes, fetches }
    }

    fn large(&self, threshold: SizeClass) -> f64 {
        self.classes[threshold.index() + 1..].iter().sum::<f64>() + self.fetches
    }

    /// Share of the cost that small requests cause; 1 when there is no cost.
    pub(crate) fn small_share(&self, threshold: SizeClass) -> f64 {
        let (small, large) = (self.classes[..=threshold.index()].iter().sum::<f64>(), self.large(threshold));
        if small + large > 0.0 { small / (small + large) } else { 1.0 }
    }

    /// The number of `homes` of large requests among which fetches are dealt, at least one.
    pub(crate) fn fetchers(&self, threshold: SizeClass, homes: usize) -> usize {
        let each = self.large(threshold) / homes as f64;
        let exact = if self.fetches > 0.0 { self.fetches / each } else { 0.0 };
        // Less a hair, as in `small_workers`.
        ((exact - 1e-9).ceil() as usize).clamp(1, homes)
    }
}

/// The rounding of a fractional number of small workers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Split {
    /// Rounded up (Minos §3.1).
    Up,
    /// One less than that, so that the large workers have spare time to help (Minos §6.1).
    OneMoreLarge,
}

/// Roles under `split`.
pub(crate) fn split_roles(split: Split, workers: usize, small_cost_share: f64) -> Vec<Role> {
    if split == Split::Up || workers == 1 {
        return roles(workers, small_cost_share);
    }
    small_and_large(small_workers(workers, small_cost_share).saturating_sub(1).max(1), workers)
}

/// `small` small workers, then large ones.
fn small_and_large(small: usize, workers: usize) -> Vec<Role> {
    let mut roles = vec![Role::Small; workers];
    roles[small..].fill(Role::Large);
    roles
}

/// Small workers come first, large ones last; when all are small, the last is the standby.
pub(crate) fn roles(workers: usize, small_cost_share: f64) -> Vec<Role> {
    let small = small_workers(workers, small_cost_share);
    let mut roles = small_and_large(small, workers);
    if small == workers {
        roles[workers - 1] = Role::Standby;
    }
    roles
}

/// The ceiling of the small share of the workers, at least one: a worker must drain the queues.
fn small_workers(workers: usize, small_cost_share: f64) -> usize {
    // Less a hair, or a share of exactly 1/4 that was computed as a bit more takes another worker.
    let exact = small_cost_share * workers as f64 - 1e-9;
    (exact.ceil() as usize).clamp(1, workers)
}

/// Deals the classes above `threshold` to the large workers in contiguous ranges of equal cost.
///
/// Each worker gets at least one class while there are enough, and the last range always ends with
/// the largest class. A range is off by at most the cost of one class, because a class has one home.
/// Workers that fetches are dealt to get a smaller part. Returns their number, too.
pub(crate) fn ranges(costs: &Costs, threshold: SizeClass, roles: &[Role]) -> (Vec<SizeRange>, usize) {
    let first = threshold.index() + 1;
    let large = &costs.classes[first..];
    let homes: Vec<WorkerId> = homes(roles).take(large.len()).collect();
    if homes.is_empty() {
        return (Vec::new(), 1);
    }
    let fetchers = costs.fetchers(threshold, homes.len());
    let fetching = costs.fetches * homes.len() as f64 / (fetchers as f64 * costs.large(threshold));
    let fetches = |number: usize| costs.fetches > 0.0 && number < fetchers;
    let weight = |number| if fetches(number) { (1.0 - fetching).max(0.0) } else { 1.0 };
    let weights: Vec<f64> = (0..homes.len()).map(weight).collect();
    let ends = cost_ends(large, &weights);
    let mut begin = 0;
    let mut ranges = Vec::with_capacity(homes.len());
    for (end, worker) in ends.into_iter().zip(homes) {
        let class = |index: usize| SizeClass::from_index(first + index).unwrap_or(SizeClass::MAX);
        ranges.push(SizeRange { first: class(begin), last: class(end - 1), worker });
        begin = end;
    }
    (ranges, fetchers)
}

/// The workers that large requests go to.
fn homes(roles: &[Role]) -> impl Iterator<Item = WorkerId> + '_ {
    let positions = roles.iter().enumerate().filter(|&(_, &role)| role != Role::Small);
    positions.map(|(index, _)| WorkerId(index as u16))
}

/// Cuts `costs` into non-empty pieces that are as near to `weights` as can be; the end of each piece.
fn cost_ends(costs: &[f64], weights: &[f64]) -> Vec<usize> {
    let (total, parts) = (costs.iter().sum::<f64>(), weights.len());
    // If all weights are zero, all count the same.
    let all_weights = weights.iter().sum::<f64>();
    let mut ends = Vec::with_capacity(parts);
    let (mut end, mut sum, mut weight) = (0, 0.0, 0.0);
    for part in 1..=parts {
        let (smallest, largest) = (end + 1, costs.len() - (parts - part));
        weight += weights[part - 1];
        let part_of_all = if all_weights > 0.0 { weight / all_weights } else { part as f64 / parts as f64 };
        let wanted = total * part_of_all;
        // A class goes to the side on which it does less harm.
        while end < smallest || (end < largest && sum + costs[end] / 2.0 <= wanted) {
            sum += costs[end];
            end += 1;
        }
        if part == parts {
            end = costs.len();
        }
        ends.push(end);
    }
    ends
}

#[cfg(test)]
mod tests {
    use super::*;

    fn equal_cost_ends(costs: &[f64], parts: usize) -> Vec<usize> {
        cost_ends(costs, &vec![1.0; parts])
    }

    #[test]
    fn one_more_worker_is_large_unless_there_is_one() {
        let (small, large) = (Role::Small, Role::Large);
        assert_eq!(split_roles(Split::OneMoreLarge, 4, 0.6), [small, small, large, large]);
        assert_eq!(split_roles(Split::OneMoreLarge, 1, 0.6), [Role::Standby]);
    }

    #[test]
    fn pieces_are_as_large_as_their_weights() {
        assert_eq!(cost_ends(&[1.0; 16], &[0.6, 1.0]), [6, 16]);
    }

    #[test]
    fn equal_costs_are_cut_equally() {
        assert_eq!(equal_cost_ends(&[1.0; 9], 3), [3, 6, 9]);
        assert_eq!(equal_cost_ends(&[1.0, 1.0, 2.0, 4.0], 2), [3, 4]);
    }

    #[test]
    fn a_heavy_class_leaves_something_to_everybody() {
        assert_eq!(equal_cost_ends(&[100.0, 0.0, 0.0], 3), [1, 2, 3]);
        assert_eq!(equal_cost_ends(&[0.0, 0.0, 100.0], 3), [1, 2, 3]);
        assert_eq!(equal_cost_ends(&[0.0; 4], 2).last(), Some(&4));
    }

    #[test]
    fn the_small_share_is_rounded_up() {
        for (workers, share, small) in [
            (8, 0.5, 4),
            (8, 0.51, 5),
            (8, 0.0, 1),
            (8, 1.0, 8),
            (1, 0.3, 1),
            (2, 0.5, 1),
            (4, 0.1 + 0.2 - 0.05, 1),
        ] {
            assert_eq!(small_workers(workers, share), small, "{share} of {workers}");
        }
    }

    #[test]
    fn a_lone_worker_is_the_standby() {
        assert_eq!(roles(1, 0.1), [Role::Standby]);
        assert_eq!(roles(2, 0.6), [Role::Small, Role::Standby]);
        assert_eq!(roles(2, 0.5), [Role::Small, Role::Large]);
    }
}
