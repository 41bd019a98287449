//! The NUMA nodes that workers run on.

use std::{fmt, ops::Range};

use minos_net::NumaNode;
use minos_sched::{Domains, deal};

/// The processors and the NUMA node of each worker. By default nothing is known of nodes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Placement {
    nodes: Vec<Placed>,
}

/// A node with workers on it: a domain.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Placed {
    number: usize,
    has_memory: bool,
    workers: Range<usize>,
    /// Those that the process may use; at least one.
    cpus: Vec<usize>,
}

impl Placement {
    /// Deals `workers` workers to the nodes in proportion to the `allowed` processors there. Nothing is placed if these
    /// are on one node.
    pub fn on(nodes: &[NumaNode], allowed: &[usize], workers: usize) -> Self {
        let usable = nodes.iter().map(|node| (node, common(&node.cpus, allowed)));
        let usable: Vec<_> = usable.filter(|(_, cpus)| !cpus.is_empty()).collect();
        if usable.len() < 2 {
            return Self::default();
        }
        let sizes: Vec<usize> = usable.iter().map(|(_, cpus)| cpus.len()).collect();
        let mut first = 0;
        let nodes = usable.into_iter().zip(deal(workers, &sizes)).map(|((node, cpus), count)| {
            let workers = first..first + count;
            first = workers.end;
            Placed { number: node.number, has_memory: node.memory_bytes > 0, workers, cpus }
        });
        Self { nodes: nodes.filter(|node| !node.workers.is_empty()).collect() }
    }

    /// True if nothing is placed.
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// Number of nodes with workers; 1 if nothing is placed.
    pub fn nodes(&self) -> usize {
        self.nodes.len().max(1)
    }

    /// The domains of the workers.
    pub fn domains(&self) -> Domains {
        let sizes: Vec<usize> = self.nodes.iter().map(|node| node.workers.len()).collect();
        Domains::of_sizes(&sizes)
    }

    /// The node of `worker`; `None` if it is not placed.
    #[cfg(test)]
    fn node_of(&self, worker: usize) -> Option<usize> {
        self.of(worker).map(|node| node.number)
    }

    /// The processors that `worker` may run on; none if it is not placed. With `pins` it is one, if the node has enough
    /// for its workers.
    pub fn cpus_of(&self, worker: usize, pins: bool) -> &[usize] {
        let Some(node) = self.of(worker) else { return &[] };
        let place = worker - node.workers.start;
        if pins && node.workers.len() <= node.cpus.len() { &node.cpus[place..=place] } else { &node.cpus }
    }

    /// The nodes with memory of their own that have workers.
    pub fn memory_nodes(&self) -> Vec<usize> {
        self.nodes.iter().filter(|node| node.has_memory).map(|node| node.number).collect()
    }

    fn of(&self, worker: usize) -> Option<&Placed> {
        self.nodes.iter().find(|node| node.workers.contains(&worker))
    }
}

impl fmt::Display for Placement {
    /// One line for the log.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_empty() {
            return f.write_str("one node");
        }
        for (index, node) in self.nodes.iter().enumerate() {
            let Placed { number, has_memory, workers, cpus } = node;
            let (first, last) = (workers.start, workers.end - 1);
            write!(f, "{}node {number} has workers {first} to {last}", if index > 0 { "; " } else { "" })?;
            write!(f, ", {} of the processors{}", cpus.len(), if *has_memory { "" } else { ", no memory" })?;
        }
        Ok(())
    }
}

/// What is in both lists, in the order of the first.
fn common(cpus: &[usize], allowed: &[usize]) -> Vec<usize> {
    cpus.iter().copied().filter(|cpu| allowed.contains(cpu)).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn node(number: usize, cpus: impl IntoIterator<Item = usize>, memory_bytes: u64) -> NumaNode {
        NumaNode { number, cpus: cpus.into_iter().collect(), memory_bytes }
    }

    /// Two sockets whose processors are numbered in turn, and a node of memory alone.
    fn two_sockets() -> [NumaNode; 3] {
        let cpus = |first: usize| (first..16).step_by(2);
        [node(0, cpus(0), 1 << 30), node(2, cpus(1), 1 << 30), node(3, [], 1 << 30)]
    }

    #[test]
    fn workers_are_where_their_processors_are() {
        let all: Vec<usize> = (0..16).collect();
        let placement = Placement::on(&two_sockets(), &all, 4);
        let nodes: Vec<_> = (0..5).map(|worker| placement.node_of(worker)).collect();
        assert_eq!(nodes, [Some(0), Some(0), Some(2), Some(2), None]);
        let pinned: Vec<_> = (0..4).map(|worker| placement.cpus_of(worker, true)).collect();
        assert_eq!(pinned, [&[0], &[2], &[1], &[3]]);
        assert_eq!(placement.cpus_of(3, false), [1, 3, 5, 7, 9, 11, 13, 15]);
        assert_eq!(placement.domains(), Domains::of_sizes(&[2, 2]));
        assert_eq!(placement.memory_nodes(), [0, 2]);
        let text =
            "node 0 has workers 0 to 1, 8 of the processors; node 2 has workers 2 to 3, 8 of the processors";
        assert_eq!(placement.to_string(), text);
        // More workers than processors: the kernel finds the places on their node.
        let many = Placement::on(&two_sockets(), &all, 18);
        assert_eq!((many.node_of(8), many.node_of(9)), (Some(0), Some(2)));
        assert_eq!(many.cpus_of(17, true).len(), 8);
    }

    #[test]
    fn one_node_places_nothing() {
        let even: Vec<usize> = (0..16).step_by(2).collect();
        for placement in [
            Placement::on(&two_sockets(), &even, 4),
            Placement::on(&two_sockets()[..1], &even, 4),
            Placement::on(&[], &even, 4),
            Placement::on(&two_sockets(), &[], 4),
        ] {
            assert!(placement.is_empty() && placement.domains().is_one(), "{placement:?}");
            assert!(placement.cpus_of(0, true).is_empty() && placement.memory_nodes().is_empty());
            assert_eq!(placement.to_string(), "one node");
        }
        // One worker of a machine with two nodes still has a node.
        let lone = Placement::on(&two_sockets(), &[1, 2, 3], 1);
        assert_eq!(
            (lone.node_of(0), lone.cpus_of(0, false), lone.domains().is_one()),
            (Some(2), &[1, 3][..], true)
        );
    }

    #[test]
    fn a_node_without_memory_has_workers_only() {
        let nodes = [node(0, [0], 0), node(1, [1], 4096)];
        let placement = Placement::on(&nodes, &[0, 1], 2);
        assert_eq!(placement.memory_nodes(), [1]);
        assert!(
            placement.to_string().contains("node 0 has workers 0 to 0, 1 of the processors, no memory"),
            "{placement}"
        );
    }

    proptest! {
        #[test]
        fn each_worker_has_a_node_and_processors_of_it(
            owners in prop::collection::vec(0usize..4, 1..40),
            allowed in prop::collection::vec(any::<bool>(), 40),
            workers in 1usize..=128,
        ) {
            let own = |node| (0..owners.len()).filter(|&cpu| owners[cpu] == node).collect::<Vec<_>>();
            let nodes: Vec<_> = (0..4).map(|number| node(number, own(number), 1)).collect();
            let allowed: Vec<usize> = (0..40).filter(|&cpu| allowed[cpu]).collect();
            let placement = Placement::on(&nodes, &allowed, workers);
            if placement.is_empty() {
                return Ok(());
            }
            let domains: Vec<_> = placement.domains().ranges(workers).collect();
            let mut pinned = Vec::new();
            for worker in 0..workers {
                let number = placement.node_of(worker).unwrap();
                let cpus = placement.cpus_of(worker, true);
                prop_assert!(!cpus.is_empty());
                prop_assert!(cpus.iter().all(|cpu| nodes[number].cpus.contains(cpu) && allowed.contains(cpu)));
                pinned.extend((cpus.len() == 1).then(|| cpus[0]));
                let domain = domains.iter().position(|domain| domain.contains(&worker));
                let first = placement.node_of(domains[domain.unwrap()].start);
                prop_assert_eq!(first, Some(number), "a domain is on one node");
            }
            let usable = allowed.iter().filter(|&&cpu| cpu < owners.len()).count();
            if workers <= usable {
                pinned.sort_unstable();
                pinned.dedup();
                prop_assert_eq!(pinned.len(), workers, "each has a processor of its own");
            }
        }
    }
}
