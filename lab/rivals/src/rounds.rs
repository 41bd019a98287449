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

/// Timed operations for each untimed one before them in a round: the previous contestant has filled the
/// caches with other data.
const WARM_UP_SHARE: usize = 2;

/// The amount of measuring.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Effort {
    pub(crate) items: u64,
    /// Operations of each thread in each round.
    pub(crate) operations: usize,
    /// Rounds that count, after one that does not.
    pub(crate) rounds: usize,
}

/// The measurements of one contestant with one mix.
#[derive(Clone, Debug, Default)]
pub(crate) struct Samples {
    /// Million operations a second of all threads together, in ascending order.
    pub(crate) mops: Vec<f64>,
    /// The results of the reads in the last round.
    pub(crate) tally: Tally,
}

impl Samples {
    /// The median; the lower one of two.
    pub(crate) fn median(&self) -> f64 {
        self.mops.get(self.mops.len().saturating_sub(1) / 2).copied().unwrap_or(f64::NAN)
    }

    /// The minimum and the maximum.
    pub(crate) fn spread(&self) -> (f64, f64) {
        let end = |value: Option<&f64>| value.copied().unwrap_or(f64::NAN);
        (end(self.mops.first()), end(self.mops.last()))
    }

    /// The share of the reads that found a value.
    pub(crate) fn hit_ratio(&self) -> f64 {
        self.tally.hits as f64 / self.tally.gets as f64
    }
}

/// Measures all contestants with one mix: A B C A B C.
///
/// In each round, every contestant runs new operations, so that no earlier run has brought their items into
/// the caches.
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

/// The results of one contestant in one round.
struct Outcome {
    /// From the start of the first thread to the end of the last one.
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

/// Runs the warm-up, waits for the other threads, and runs the operations that count. Returns their start and
/// end, and the results found and expected.
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

/// Binds the calling thread to the `number`th processor that it may run on. Without permission it stays
/// unbound.
fn pin_to(number: usize) {
    use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
    let Ok(allowed) = sched_getaffinity(None) else { return };
    if let Some(cpu) = (0..CpuSet::MAX_CPU).filter(|&cpu| allowed.is_set(cpu)).nth(number) {
        let mut set = CpuSet::new();
        set.set(cpu);
        let _ = sched_setaffinity(None, &set);
    }
}

/// Checks that tables found every item with the right value; caches may lose items, but must do as many
/// reads.
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
