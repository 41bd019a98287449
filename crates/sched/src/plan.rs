//! The plan published once an epoch: the small workers, the large workers, and the worker of each large size.

use minos_base::SizeClass;

use std::ops::Range;

use crate::{Domains, WorkerId, WorkerSet, control::dealt_max};

/// The role of a worker during an epoch (Minos §3.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Drains RX queues and serves small requests.
    Small,
    /// Serves the large requests of its size range.
    Large,
    /// Serves small requests, and large ones in the way that [`Standby`](crate::Standby) gives.
    Standby,
}

/// A contiguous range of size classes and the large worker that serves it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SizeRange {
    /// Smallest class of the range.
    pub first: SizeClass,
    /// Largest class of the range, included.
    pub last: SizeClass,
    /// The home of these classes.
    pub worker: WorkerId,
}

impl SizeRange {
    /// The same range at a worker `first` further on.
    pub(crate) fn moved_by(self, first: usize) -> Self {
        Self { worker: WorkerId(self.worker.0 + first as u16), ..self }
    }
}

/// The roles and size ranges of the workers until the next plan.
///
/// The ranges of a domain are in order and without gaps: together they hold every class above the threshold,
/// so that each request has exactly one home in the domain in which it arrives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Epochs with requests before this plan; a plan with the same number is the same plan.
    pub epoch: u64,
    /// The largest small class.
    pub threshold: SizeClass,
    /// The role of each worker.
    pub roles: Vec<Role>,
    /// The domains that the workers are in.
    pub domains: Domains,
    /// The homes of the large classes, domain by domain, smallest class first.
    pub ranges: Vec<SizeRange>,
    /// The number of workers, domain by domain, among which fetches from flash are dealt: the first ones of those that the
    /// ranges name.
    pub fetchers: Vec<u16>,
}

impl Plan {
    /// A plan under which each of `workers`, in one domain, serves all requests that arrive at it.
    pub(crate) fn all_small(workers: usize) -> Self {
        Self {
            epoch: 0,
            threshold: SizeClass::MAX,
            roles: vec![Role::Small; workers],
            domains: Domains::default(),
            ranges: Vec::new(),
            fetchers: Vec::new(),
        }
    }

    /// The large worker that serves a request of `class` which has arrived at worker `at`; `None` when it is small and
    /// served where it is.
    #[inline]
    pub fn worker_for(&self, class: SizeClass, at: WorkerId) -> Option<WorkerId> {
        if class <= self.threshold {
            return None;
        }
        self.large_worker_for(class, at)
    }

    /// Off the small path: looks `class` up in the ranges of the domain.
    fn large_worker_for(&self, class: SizeClass, at: WorkerId) -> Option<WorkerId> {
        let domain = self.domain_of(at);
        let is_before = |range: &SizeRange| {
            let home = range.worker.index();
            home < domain.start || (home < domain.end && range.last < class)
        };
        let position = self.ranges.partition_point(is_before);
        self.ranges.get(position).map(|range| range.worker).filter(|home| domain.contains(&home.index()))
    }

    /// The least class that is large.
    pub(crate) fn large_min(&self) -> SizeClass {
        SizeClass::of(self.threshold_bytes().saturating_add(1))
    }

    /// The worker that fetches an item of `class` or more from flash for a request which has arrived at worker `at`: one for
    /// large requests, because a fetch takes longer than any small request may. All but the largest items are dealt by
    /// `number`.
    pub fn fetcher_for(&self, class: SizeClass, number: u64, at: WorkerId) -> Option<WorkerId> {
        if class > dealt_max(self.threshold) {
            return self.large_worker_for(class, at);
        }
        let first = self.large_worker_for(self.large_min(), at)?;
        let domain = self.domains().position(|domain| domain.contains(&at.index()))?;
        let fetchers = self.fetchers.get(domain).map_or(1, |&fetchers| u64::from(fetchers.max(1)));
        Some(WorkerId(first.0 + (number % fetchers) as u16))
    }

    /// The domains, as positions among the workers.
    pub fn domains(&self) -> impl Iterator<Item = Range<usize>> + use<> {
        self.domains.ranges(self.workers())
    }

    /// The domain of `worker`; that of a worker that does not exist is empty.
    pub fn domain_of(&self, worker: WorkerId) -> Range<usize> {
        self.domains().find(|domain| domain.contains(&worker.index())).unwrap_or_default()
    }

    /// All workers.
    pub fn ids(&self) -> impl Iterator<Item = WorkerId> + Clone + use<> {
        (0..self.workers() as u16).map(WorkerId)
    }

    /// Number of workers.
    pub fn workers(&self) -> usize {
        self.roles.len()
    }

    /// The role of `worker`; a worker that does not exist is small.
    #[inline]
    pub fn role(&self, worker: WorkerId) -> Role {
        self.roles.get(worker.index()).copied().unwrap_or(Role::Small)
    }

    /// Workers that drain RX queues: the small ones and the standby.
    pub fn small_workers(&self) -> usize {
        self.roles.iter().filter(|&&role| role != Role::Large).count()
    }

    /// Workers in `role`.
    pub fn workers_in(&self, role: Role) -> WorkerSet {
        let positions = self.roles.iter().enumerate().filter(|&(_, &had)| had == role);
        positions.map(|(index, _)| WorkerId(index as u16)).collect()
    }

    /// Workers that serve nothing but large requests.
    pub fn large_workers(&self) -> usize {
        self.workers() - self.small_workers()
    }

    /// The worker on standby, if it is not the only worker. A single worker serves
    /// slices between two polls of its RX queue.
    pub fn standby(&self) -> Option<WorkerId> {
        let standby = self.ids().find(|&worker| self.role(worker) == Role::Standby);
        standby.filter(|_| self.workers() > 1)
    }

    /// Largest size that is small, in bytes.
    pub fn threshold_bytes(&self) -> u64 {
        self.threshold.bytes_max()
    }
}
