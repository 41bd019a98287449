//! From costs by size to roles and ranges (Minos §3.1).

use minos_base::SizeClass;

use crate::{Role, SizeRange, Threshold, WorkerId};

/// The automatic threshold while no request has been seen yet, in bytes: what is served in one
/// slice is small until the sizes speak for themselves.
pub const THRESHOLD_BEFORE_FIRST_EPOCH_BYTES: u64 = minos_base::limits::SLICE_BYTES as u64;

/// The threshold before the first epoch with requests.
pub(crate) fn initial_threshold(threshold: Threshold) -> SizeClass {
    match threshold {
        Threshold::Auto => SizeClass::of(THRESHOLD_BEFORE_FIRST_EPOCH_BYTES),
        Threshold::Static(bytes) => SizeClass::of(bytes),
    }
}

/// Share of the cost that is caused by classes up to `threshold`; 1 when there is no cost.
pub(crate) fn small_cost_share(costs: &[f64], threshold: SizeClass) -> f64 {
    let small: f64 = costs[..=threshold.index()].iter().sum();
    let large: f64 = costs[threshold.index() + 1..].iter().sum();
    if small + large > 0.0 { small / (small + large) } else { 1.0 }
}

/// Small workers come first, large ones last; when all are small, the last is the standby.
pub(crate) fn roles(workers: usize, small_cost_share: f64) -> Vec<Role> {
    let small = small_workers(workers, small_cost_share);
    let mut roles = vec![Role::Small; workers];
    roles[small..].fill(Role::Large);
    if small == workers {
        roles[workers - 1] = Role::Standby;
    }
    roles
}

/// The ceiling of the small share of the workers, at least one: somebody must drain the queues.
fn small_workers(workers: usize, small_cost_share: f64) -> usize {
    // Less a hair, or a share of exactly 1/4 that was computed as a bit more takes another worker.
    let exact = small_cost_share * workers as f64 - 1e-9;
    (exact.ceil() as usize).clamp(1, workers)
}

/// Deals the classes above `threshold` to the large workers in contiguous ranges of equal cost.
///
/// Each worker gets at least one class while there are enough, and the last range always ends with
/// the largest class. A range is off by at most the cost of one class, because a class has one home.
pub(crate) fn ranges(costs: &[f64], threshold: SizeClass, roles: &[Role]) -> Vec<SizeRange> {
    let first = threshold.index() + 1;
    let large = &costs[first..];
    let homes: Vec<WorkerId> = homes(roles).take(large.len()).collect();
    let ends = equal_cost_ends(large, homes.len());
    let mut begin = 0;
    let mut ranges = Vec::with_capacity(homes.len());
    for (end, worker) in ends.into_iter().zip(homes) {
        let class = |index: usize| SizeClass::from_index(first + index).unwrap_or(SizeClass::MAX);
        ranges.push(SizeRange { first: class(begin), last: class(end - 1), worker });
        begin = end;
    }
    ranges
}

/// The workers that large requests go to.
fn homes(roles: &[Role]) -> impl Iterator<Item = WorkerId> + '_ {
    let positions = roles.iter().enumerate().filter(|&(_, &role)| role != Role::Small);
    positions.map(|(index, _)| WorkerId(index as u16))
}

/// Cuts `costs` into `parts` non-empty pieces as equal as can be; the end of each piece.
fn equal_cost_ends(costs: &[f64], parts: usize) -> Vec<usize> {
    let total: f64 = costs.iter().sum();
    let mut ends = Vec::with_capacity(parts);
    let (mut end, mut sum) = (0, 0.0);
    for part in 1..=parts {
        let (smallest, largest) = (end + 1, costs.len() - (parts - part));
        let wanted = total * part as f64 / parts as f64;
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
