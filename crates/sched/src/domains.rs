//! The NUMA domains of the workers.

use std::{cmp::Reverse, ops::Range};

use minos_base::limits::WORKERS_MAX;

use crate::{WorkerId, WorkerSet};

/// The workers of each NUMA domain: runs of consecutive workers. By default all are in one domain.
///
/// Within a domain, workers are small or large, poll each other's RX queues and help each other; they do
/// nothing for the workers of another ("an independent set of small and large cores within each NUMA
/// domain", Minos §3).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Domains {
    /// The first worker of each domain but the first.
    borders: WorkerSet,
}

impl Domains {
    /// Domains of so many workers each. One without workers is none; workers beyond [`WORKERS_MAX`] do not count.
    pub fn of_sizes(sizes: &[usize]) -> Self {
        let firsts = sizes.iter().scan(0, |first, &size| {
            let own = *first;
            *first += size;
            Some((own, size))
        });
        let is_border = |&(first, size): &(usize, usize)| size > 0 && (1..WORKERS_MAX).contains(&first);
        Self { borders: firsts.filter(is_border).map(|(first, _)| WorkerId(first as u16)).collect() }
    }

    /// True if all workers are in one domain.
    pub fn is_one(self) -> bool {
        self.borders.is_empty()
    }

    /// True if each domain has some of `workers` workers.
    pub(crate) fn fits(self, workers: usize) -> bool {
        self.borders.minus(WorkerSet::first(workers)).is_empty()
    }

    /// The domains of `workers` workers, as positions among these.
    pub fn ranges(self, workers: usize) -> impl Iterator<Item = Range<usize>> {
        let borders =
            move || self.borders.iter().map(WorkerId::index).filter(move |&border| border < workers);
        let ends = borders().chain([workers]);
        [0].into_iter().chain(borders()).zip(ends).map(|(first, end)| first..end)
    }
}

/// Deals `workers` workers to nodes in proportion to their `processors`; the number for each node.
///
/// While there are enough processors, no node gets more workers than it has of them. A node with a small part of the
/// processors may get none.
pub fn deal(workers: usize, processors: &[usize]) -> Vec<usize> {
    let all = processors.iter().sum::<usize>().max(1);
    let mut dealt: Vec<usize> = processors.iter().map(|&own| workers * own / all).collect();
    let mut by_rest: Vec<usize> = (0..processors.len()).filter(|&node| processors[node] > 0).collect();
    // The largest remainder first; of equal ones the first.
    by_rest.sort_by_key(|&node| Reverse(workers * processors[node] % all));
    let left = workers - dealt.iter().sum::<usize>();
    by_rest.into_iter().take(left).for_each(|node| dealt[node] += 1);
    dealt
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn domains_are_runs_of_workers() {
        let ranges = |sizes: &[usize], workers| {
            let ranges = Domains::of_sizes(sizes).ranges(workers);
            ranges.map(|range| (range.start, range.end)).collect::<Vec<_>>()
        };
        assert_eq!(ranges(&[], 3), [(0, 3)]);
        assert_eq!(ranges(&[3], 3), [(0, 3)]);
        assert_eq!(ranges(&[0, 2, 0, 1, 0], 3), [(0, 2), (2, 3)]);
        assert_eq!(ranges(&[1, 1, 4], 6), [(0, 1), (1, 2), (2, 6)]);
        assert!(Domains::of_sizes(&[0, 4, 0]).is_one() && !Domains::of_sizes(&[1, 1]).is_one());
        assert!(Domains::of_sizes(&[2, 1]).fits(3) && !Domains::of_sizes(&[2, 1]).fits(2));
        assert_eq!(ranges(&[100, 100], 128), [(0, 100), (100, 128)]);
        assert!(Domains::of_sizes(&[128, 1]).is_one());
    }

    #[test]
    fn workers_are_dealt_in_proportion() {
        assert_eq!(deal(8, &[4, 4]), [4, 4]);
        assert_eq!(deal(3, &[8, 8]), [2, 1]);
        assert_eq!(deal(2, &[30, 2]), [2, 0]);
        assert_eq!(deal(6, &[0, 2, 1]), [0, 4, 2]);
        assert_eq!(deal(1, &[1, 1, 1]), [1, 0, 0]);
        assert_eq!(deal(5, &[]), [0; 0]);
        for (workers, one, two) in (1..40).flat_map(|n| (0..9).map(move |one| (n, one, 9 - one))) {
            let dealt = deal(workers, &[one, two]);
            assert_eq!(dealt.iter().sum::<usize>(), workers);
            assert!(workers > 9 || (dealt[0] <= one && dealt[1] <= two), "{workers} over {one} and {two}");
        }
    }
}
