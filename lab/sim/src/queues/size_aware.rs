//! Minos, by the server's policy code.

use std::collections::VecDeque;

use minos_base::SizeClass;
use minos_sched::{ControlConfig, Cost, Design, Options, Policy, Role, SizeHistogram, WorkerId};

use super::{
    Spec,
    floor::{Floor, Job},
    models::Model,
};
use crate::{ServiceTimes, Ticks};

/// Size in bytes assigned to a request of the mean service time. Requests of a hundredth of that are
/// still distinguished to 3 %; the longest request is 250 000 times as long.
const BYTES_A_MEAN: f64 = 4096.0;

/// Small requests where they arrive, or by chance at a small worker if that is a large one; large ones
/// where the plan says.
pub(super) struct SizeAware {
    policy: Policy,
    requests: SizeHistogram,
    bytes_a_tick: f64,
    helping: bool,
    small: Vec<VecDeque<Job>>,
    large: Vec<VecDeque<Job>>,
    /// Workers that are not permanently large.
    small_workers: usize,
}

impl SizeAware {
    pub(super) fn new(spec: &Spec, times: &ServiceTimes, helping: bool) -> Self {
        let config = ControlConfig {
            percentile: spec.small_percentile,
            // A size is a service time here, and so is a cost.
            cost: Cost::Bytes,
            ..ControlConfig::new(spec.workers)
        };
        let policy = Policy::new(Design::SizeAware, config, Options::default());
        let policy = policy.expect("the parameters have been checked");
        Self {
            small_workers: policy.plan().small_workers(),
            policy,
            requests: SizeHistogram::new(),
            bytes_a_tick: BYTES_A_MEAN / times.mean_ticks(),
            helping,
            small: vec![VecDeque::new(); spec.workers],
            large: vec![VecDeque::new(); spec.workers],
        }
    }

    fn class(&self, ticks: Ticks) -> SizeClass {
        SizeClass::of((ticks as f64 * self.bytes_a_tick + 0.5) as u64)
    }

    fn role(&self, worker: usize) -> Role {
        self.policy.plan().role(WorkerId(worker as u16))
    }

    /// The worker whose small request this is: small workers come first, the standby is their last.
    fn small_home(&self, floor: &mut Floor) -> usize {
        let home = floor.random.below(self.small_workers);
        if self.standby_is_large(home, floor) { floor.random.below(self.small_workers - 1) } else { home }
    }

    /// True if `worker` is on standby, has large requests and is not the only small worker. While it has
    /// them it is a large worker, and the others serve its small requests.
    fn standby_is_large(&self, worker: usize, floor: &Floor) -> bool {
        let serves_large =
            || floor.serving(worker).is_some_and(|job| self.class(job.ticks) > self.policy.plan().threshold);
        self.small_workers > 1
            && self.role(worker) == Role::Standby
            && (!self.large[worker].is_empty() || serves_large())
    }

    fn arrive_small(&mut self, job: Job, floor: &mut Floor) {
        let home = self.small_home(floor);
        if floor.is_free(home) {
            return floor.begin(home, job);
        }
        match floor.any_free() {
            // Only a large worker looks into the queues of others.
            Some(helper) if self.helping && self.role(helper) == Role::Large => floor.begin(helper, job),
            _ => self.small[home].push_back(job),
        }
    }

    fn arrive_large(&mut self, job: Job, home: usize, floor: &mut Floor) {
        if floor.is_free(home) {
            floor.begin(home, job);
        } else {
            self.large[home].push_back(job);
        }
        if self.standby_is_large(home, floor) {
            self.deal_out_small(home, floor);
        }
    }

    /// Distributes the small requests that wait at `worker` to the others.
    fn deal_out_small(&mut self, worker: usize, floor: &mut Floor) {
        for job in std::mem::take(&mut self.small[worker]) {
            self.arrive_small(job, floor);
        }
    }

    /// Takes the oldest small request of the first queue that has one, from a random queue on.
    fn take_small_elsewhere(&mut self, floor: &mut Floor) -> Option<Job> {
        let (first, workers) = (floor.random_worker(), self.small.len());
        (first..first + workers).find_map(|queue| self.small[queue % workers].pop_front())
    }
}

impl Model for SizeAware {
    const HAS_EPOCHS: bool = true;

    fn arrive(&mut self, job: Job, floor: &mut Floor) {
        let class = self.class(job.ticks);
        self.requests.record(class, 1);
        match self.policy.plan().worker_for(class, WorkerId(0)) {
            None => self.arrive_small(job, floor),
            Some(home) => self.arrive_large(job, home.index(), floor),
        }
    }

    fn freed(&mut self, worker: usize, floor: &mut Floor) {
        // One large worker of many has a large request first. One that is small again serves what it was
        // left with as a large worker first; a lone worker, small ones.
        let lone = floor.workers() == 1;
        let mut job = if lone { self.small[worker].pop_front() } else { None };
        job = job.or_else(|| self.large[worker].pop_front());
        job = job.or_else(|| self.small[worker].pop_front());
        if job.is_none() && self.helping && self.role(worker) == Role::Large {
            job = self.take_small_elsewhere(floor);
        }
        if let Some(job) = job {
            floor.begin(worker, job);
        }
    }

    fn epoch(&mut self, floor: &mut Floor) {
        self.policy.epoch(&self.requests);
        self.requests = SizeHistogram::new();
        self.small_workers = self.policy.plan().small_workers();
        // Small requests that wait at a worker that is now large are served by the others.
        for worker in self.small_workers..floor.workers() {
            self.deal_out_small(worker, floor);
        }
    }

    fn large_workers(&self) -> usize {
        self.policy.plan().large_workers()
    }
}
