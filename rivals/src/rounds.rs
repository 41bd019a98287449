//! Rounds of a fixed number of operations, all contestants in turn, each thread on its own processor.

use crate::{
    contestant::{Contestant, Tally, Worker},
    workload::{Mix, Op, operations},
};
use anyhow::ensure;
use std::{
    sync::Barrier,
    thread,
    time::{Duration, Instant},
};

/// Before so many operations that are timed, one is run untimed in each round, because the contestant before
/// has left other things in the caches.
const WARM_UP_SHARE: usize = 2;

/// How much is measured.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Effort {
    /// Items that are loaded.
    pub(crate) items: u64,
    /// Operations of each thread in each round.
    pub(crate) operations: usize,
    /// Rounds that count; one before them does not.
    pub(crate) rounds: usize,
}

/// What one contestant has done with one mix.
#[derive(Clone, Debug, Default)]
pub(crate) struct Samples {
    /// Million operations a second of all threads together, in ascending order.
    pub(crate) mops: Vec<f64>,
    /// What was read in the last round.
    pub(crate) tally: Tally,
}

impl Samples {
    /// The middle one; the lower of two.
    pub(crate) fn median(&self) -> f64 {
        self.mops.get(self.mops.len().saturating_sub(1) / 2).copied().unwrap_or(f64::NAN)
    }

    /// The smallest and the largest.
    pub(crate) fn spread(&self) -> (f64, f64) {
        let end = |value: Option<&f64>| value.copied().unwrap_or(f64::NAN);
        (end(self.mops.first()), end(self.mops.last()))
    }

    /// The share of the reads that found something.
    pub(crate) fn hit_ratio(&self) -> f64 {
        self.tally.hits as f64 / self.tally.gets as f64
    }
}

/// Measures all contestants with one mix: A B C A B C.
///
/// Each runs operations in each round that nobody has run before, lest it find in the caches what the one
/// before it, or it itself in the round before, has brought there.
pub(crate) fn measure<const KEY: usize>(
    contestants: &mut [Contestant<KEY>],
    mix: Mix,
    effort: Effort,
) -> anyhow::Result<Vec<Samples>> {
    let mut samples = vec![Samples::default(); contestants.len()];
    for round in 0..=effort.rounds {
        let first_seed = (round * contestants.len()) as u64;
        for (seed, (contestant, samples)) in (first_seed..).zip(contestants.iter_mut().zip(&mut samples)) {
            let Outcome { time, tally, expected } = run(contestant, mix, effort, seed);
            check(contestant, &tally, &expected)?;
            if round > 0 {
                let operations = effort.operations * contestant.workers.len();
                samples.mops.push(operations as f64 / time.as_secs_f64() / 1e6);
            }
            samples.tally = tally;
        }
    }
    samples.iter_mut().for_each(|samples| samples.mops.sort_by(f64::total_cmp));
    Ok(samples)
}

/// What one contestant has done in one round.
struct Outcome {
    /// From the moment in which the first thread begins to that in which the last one ends.
    time: Duration,
    tally: Tally,
    expected: Tally,
}

fn run<const KEY: usize>(contestant: &mut Contestant<KEY>, mix: Mix, effort: Effort, seed: u64) -> Outcome {
    let (routing, threads) = (contestant.routing, contestant.workers.len());
    let barrier = Barrier::new(threads);
    let one = |thread: usize, worker: &mut dyn Worker<KEY>| {
        pin_to(thread);
        let count = effort.operations + effort.operations / WARM_UP_SHARE;
        let ops = operations(mix, effort.items, count, routing, (thread, threads), seed);
        timed(worker, ops.split_at(count - effort.operations), &barrier)
    };
    let one = &one;
    let results: Vec<_> = thread::scope(|scope| {
        let workers = contestant.workers.iter_mut().enumerate();
        let start = workers.map(|(thread, worker)| scope.spawn(move || one(thread, worker.as_mut())));
        let running: Vec<_> = start.collect();
        running.into_iter().map(|thread| thread.join().expect("a worker ends well")).collect()
    });
    let begin = results.iter().map(|(begin, ..)| *begin).min();
    let end = results.iter().map(|(_, end, ..)| *end).max();
    let (mut tally, mut expected) = (Tally::default(), Tally::default());
    results.iter().for_each(|(.., found, wanted)| {
        tally.add(found);
        expected.add(wanted);
    });
    Outcome { time: begin.zip(end).map_or(Duration::ZERO, |(begin, end)| end - begin), tally, expected }
}

/// Runs some operations, waits for the other threads, and runs those that count: when they began and ended,
/// what they found and what they should have found.
fn timed<const KEY: usize>(
    worker: &mut dyn Worker<KEY>,
    (warm_up, ops): (&[Op<KEY>], &[Op<KEY>]),
    barrier: &Barrier,
) -> (Instant, Instant, Tally, Tally) {
    let expected = Tally::expected(ops);
    worker.run(warm_up);
    barrier.wait();
    let begin = Instant::now();
    let tally = worker.run(ops);
    (begin, Instant::now(), tally, expected)
}

/// Binds the calling thread to the `number`th processor it may run on. Without permission it runs unbound.
fn pin_to(number: usize) {
    use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
    let Ok(allowed) = sched_getaffinity(None) else { return };
    if let Some(cpu) = (0..CpuSet::MAX_CPU).filter(|&cpu| allowed.is_set(cpu)).nth(number) {
        let mut set = CpuSet::new();
        set.set(cpu);
        let _ = sched_setaffinity(None, &set);
    }
}

/// Tables must find everything with the right value; caches may lose items, but do as many reads.
fn check<const KEY: usize>(
    contestant: &Contestant<KEY>,
    tally: &Tally,
    expected: &Tally,
) -> anyhow::Result<()> {
    let name = &contestant.name;
    let is_right = contestant.is_lossy && (tally.hits < expected.hits || tally.gets > expected.gets);
    ensure!(is_right || tally == expected, "{name} read {tally:?}, but should have read {expected:?}");
    Ok(())
}
