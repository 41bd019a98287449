//! The workers and what they are doing.

use crate::{Calendar, Random, Service, Ticks};

/// An event other than an arrival.
#[derive(Clone, Copy, Debug)]
pub(super) enum Event {
    /// A worker has served its request.
    Done(u8),
    /// A control epoch ends.
    Epoch,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Job {
    pub(super) arrived: Ticks,
    pub(super) ticks: Ticks,
    pub(super) large: bool,
    /// It came after the warm-up.
    pub(super) counts: bool,
}

impl Job {
    pub(super) fn new(arrived: Ticks, service: Service, counts: bool) -> Self {
        Self { arrived, ticks: service.ticks, large: service.large, counts }
    }
}

/// The workers, each with at most one request, and the calendar.
#[derive(Debug)]
pub(super) struct Floor {
    pub(super) calendar: Calendar<Event>,
    pub(super) random: Random,
    /// Ticks for which each worker was busy.
    pub(super) busy: Vec<Ticks>,
    serving: Vec<Job>,
    free: u128,
}

impl Floor {
    pub(super) fn new(workers: usize, random: Random) -> Self {
        let nothing = Job { arrived: 0, ticks: 0, large: false, counts: false };
        Self {
            calendar: Calendar::new(),
            random,
            busy: vec![0; workers],
            serving: vec![nothing; workers],
            free: u128::MAX >> (128 - workers),
        }
    }

    pub(super) fn workers(&self) -> usize {
        self.serving.len()
    }

    #[inline]
    pub(super) fn is_free(&self, worker: usize) -> bool {
        self.free >> worker & 1 == 1
    }

    /// The request that `worker` serves; `None` if it is free.
    #[inline]
    pub(super) fn serving(&self, worker: usize) -> Option<&Job> {
        (!self.is_free(worker)).then(|| &self.serving[worker])
    }

    /// The first free worker.
    #[inline]
    pub(super) fn any_free(&self) -> Option<usize> {
        (self.free != 0).then(|| self.free.trailing_zeros() as usize)
    }

    /// A free worker starts with `job`.
    #[inline]
    pub(super) fn begin(&mut self, worker: usize, job: Job) {
        debug_assert!(self.is_free(worker));
        self.free &= !(1 << worker);
        self.busy[worker] += job.ticks;
        self.serving[worker] = job;
        self.calendar.after(job.ticks, Event::Done(worker as u8));
    }

    /// A worker becomes free of the request that it has served.
    #[inline]
    pub(super) fn end(&mut self, worker: usize) -> Job {
        self.free |= 1 << worker;
        self.serving[worker]
    }

    #[inline]
    pub(super) fn random_worker(&mut self) -> usize {
        let workers = self.workers();
        self.random.below(workers)
    }
}
