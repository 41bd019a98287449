//! The models that are blind to size.

use std::collections::VecDeque;

use super::floor::{Floor, Job};

/// Assigns requests to workers.
///
/// A worker that becomes free, or that is free when a request arrives, may begin to serve at once.
pub(super) trait Model {
    /// True if `epoch` must be called.
    const HAS_EPOCHS: bool = false;

    /// A request arrives.
    fn arrive(&mut self, job: Job, floor: &mut Floor);

    /// `worker` has become free.
    fn freed(&mut self, worker: usize, floor: &mut Floor);

    /// A control epoch ends.
    fn epoch(&mut self, _: &mut Floor) {}

    /// Workers that serve only large requests.
    fn large_workers(&self) -> usize {
        0
    }
}

/// n x M/G/1.
pub(super) struct Early {
    queues: Vec<VecDeque<Job>>,
}

impl Early {
    pub(super) fn new(workers: usize) -> Self {
        Self { queues: vec![VecDeque::new(); workers] }
    }
}

impl Model for Early {
    #[inline]
    fn arrive(&mut self, job: Job, floor: &mut Floor) {
        let home = floor.random_worker();
        if floor.is_free(home) {
            floor.begin(home, job);
        } else {
            self.queues[home].push_back(job);
        }
    }

    #[inline]
    fn freed(&mut self, worker: usize, floor: &mut Floor) {
        if let Some(job) = self.queues[worker].pop_front() {
            floor.begin(worker, job);
        }
    }
}

/// M/G/n.
pub(super) struct Late {
    queue: VecDeque<Job>,
}

impl Late {
    pub(super) fn new() -> Self {
        Self { queue: VecDeque::new() }
    }
}

impl Model for Late {
    #[inline]
    fn arrive(&mut self, job: Job, floor: &mut Floor) {
        match floor.any_free() {
            Some(worker) => floor.begin(worker, job),
            None => self.queue.push_back(job),
        }
    }

    #[inline]
    fn freed(&mut self, worker: usize, floor: &mut Floor) {
        if let Some(job) = self.queue.pop_front() {
            floor.begin(worker, job);
        }
    }
}

/// n x M/G/1, where an idle worker takes the oldest request of a random queue.
pub(super) struct Stealing {
    queues: Vec<VecDeque<Job>>,
    waiting: usize,
}

impl Stealing {
    pub(super) fn new(workers: usize) -> Self {
        Self { queues: vec![VecDeque::new(); workers], waiting: 0 }
    }

    fn take(&mut self, queue: usize) -> Option<Job> {
        let job = self.queues[queue].pop_front()?;
        self.waiting -= 1;
        Some(job)
    }
}

impl Model for Stealing {
    #[inline]
    fn arrive(&mut self, job: Job, floor: &mut Floor) {
        let home = floor.random_worker();
        let taker = if floor.is_free(home) { Some(home) } else { floor.any_free() };
        match taker {
            Some(worker) => floor.begin(worker, job),
            None => {
                self.waiting += 1;
                self.queues[home].push_back(job);
            }
        }
    }

    #[inline]
    fn freed(&mut self, worker: usize, floor: &mut Floor) {
        if self.waiting == 0 {
            return;
        }
        let own = self.take(worker);
        let job = own.or_else(|| {
            let (first, workers) = (floor.random_worker(), floor.workers());
            (first..first + workers).find_map(|queue| self.take(queue % workers))
        });
        if let Some(job) = job {
            floor.begin(worker, job);
        }
    }
}
