//! Hand-overs between workers (rings and wakers), and a worker's histogram.

use std::{
    hint::black_box,
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use minos_base::SizeClass;
use minos_net::{Wait, Waker, wait_readable};
use minos_sched::SharedHistogram;
use minos_sim::Random;
use minos_sync::Ring;

use super::{
    Scale,
    cpus::Cpus,
    samples::{Stopwatch, Subject},
    stats::median,
};

const CAPACITY: usize = 64;
/// Groups of polls or counts.
const GROUPS: usize = 16;
/// Round trips between two clock reads.
const TIMES_IN_GROUP: usize = 10;
/// A time after which an idle thread surely sleeps.
const ASLEEP_AFTER: Duration = Duration::from_micros(100);

pub(super) struct EmptyPops {
    ring: Ring<u64>,
    batch: usize,
}

impl EmptyPops {
    pub(super) fn new(scale: &Scale) -> Self {
        Self { ring: Ring::new(CAPACITY), batch: scale.batch }
    }
}

impl Subject for EmptyPops {
    fn name(&self) -> &'static str {
        "looks at an empty ring"
    }

    /// Nanoseconds of a poll.
    fn sample(&mut self, _place: usize) -> Result<f64> {
        let mut watch = Stopwatch::default();
        for _ in 0..GROUPS {
            watch.time(self.batch, || {
                for _ in 0..self.batch {
                    black_box(black_box(&self.ring).pop());
                }
            });
        }
        Ok(watch.typical_ns())
    }
}

/// Counts of sizes in a worker's histogram.
pub(super) struct Counts {
    histogram: Box<SharedHistogram>,
    classes: Vec<SizeClass>,
}

impl Counts {
    /// Counts of random sizes.
    pub(super) fn new(scale: &Scale, mut random: Random) -> Self {
        let classes =
            (0..GROUPS * scale.batch).map(|_| SizeClass::of(1 + random.below(1400) as u64)).collect();
        Self { histogram: Box::default(), classes }
    }
}

impl Subject for Counts {
    fn name(&self) -> &'static str {
        "counts of a size"
    }

    /// Nanoseconds of a count.
    fn sample(&mut self, _place: usize) -> Result<f64> {
        let mut watch = Stopwatch::default();
        for group in self.classes.chunks(self.classes.len() / GROUPS) {
            watch.time(group.len(), || group.iter().for_each(|&class| self.histogram.record(class)));
        }
        Ok(watch.typical_ns())
    }
}

/// A value that goes back and forth between two polling threads.
pub(super) struct HandOffs {
    cpus: Cpus,
    times: usize,
}

impl HandOffs {
    pub(super) fn new(cpus: Cpus, scale: &Scale) -> Self {
        Self { cpus, times: scale.round_trips.next_multiple_of(TIMES_IN_GROUP) }
    }

    fn to_and_fro(&self, there: &Ring<u64>, back: &Ring<u64>) -> Result<f64> {
        let pinned = self.cpus.pin_first();
        let mut watch = Stopwatch::default();
        for _ in 0..self.times / TIMES_IN_GROUP {
            watch.time(TIMES_IN_GROUP, || {
                for number in 0..TIMES_IN_GROUP as u64 {
                    ensure!(there.push(number).is_ok(), "a ring with nothing in it is full");
                    self.cpus.poll(|| back.pop());
                }
                Ok(())
            })?;
        }
        // After a failed pin the exchange goes on: the other thread waits for it.
        pinned.map(|()| watch.typical_ns())
    }

    fn return_all(&self, there: &Ring<u64>, back: &Ring<u64>) -> Result<()> {
        let pinned = self.cpus.pin_second();
        for _ in 0..self.times {
            let number = self.cpus.poll(|| there.pop());
            ensure!(back.push(number).is_ok(), "a ring with nothing in it is full");
        }
        pinned
    }
}

impl Subject for HandOffs {
    fn name(&self) -> &'static str {
        "hand-offs"
    }

    /// Nanoseconds one way.
    fn sample(&mut self, _place: usize) -> Result<f64> {
        let (there, back) = (Ring::new(CAPACITY), Ring::new(CAPACITY));
        let to_and_fro_ns = thread::scope(|scope| {
            scope.spawn(|| self.return_all(&there, &back));
            // In a thread of its own, so that the caller is not pinned.
            scope.spawn(|| self.to_and_fro(&there, &back)).join().expect("no thread panics")
        })?;
        Ok(to_and_fro_ns / 2.0)
    }
}

/// Values handed to a sleeping thread.
pub(super) struct WakeUps {
    cpus: Cpus,
    times: usize,
}

/// The state that the two threads of a wake-up share.
struct Bed {
    ring: Ring<Instant>,
    waker: Waker,
    is_going_to_sleep: AtomicBool,
}

impl WakeUps {
    /// The place that measures the time until the sleeper runs.
    pub(super) const UNTIL_AWAKE: usize = 0;
    /// The place that measures the time of the waking call.
    pub(super) const CALL: usize = 1;

    pub(super) fn new(cpus: Cpus, scale: &Scale) -> Self {
        Self { cpus, times: scale.wakes }
    }

    /// Sleeps until it is woken, again and again; the times from push to pop.
    fn sleep(&self, bed: &Bed) -> Result<Vec<f64>> {
        let pinned = self.cpus.pin_second();
        let mut times = Vec::with_capacity(self.times);
        while times.len() < self.times {
            bed.waker.prepare();
            bed.is_going_to_sleep.store(true, Ordering::Release);
            if bed.ring.is_empty() {
                use std::os::fd::AsFd as _;
                wait_readable(&[bed.waker.as_fd()], Wait::For(Duration::from_secs(1))).context("sleep")?;
            }
            bed.waker.awake();
            while let Some(pushed) = bed.ring.pop() {
                times.push(pushed.elapsed().as_nanos() as f64);
            }
            bed.waker.drain();
        }
        pinned.map(|()| times)
    }

    /// Wakes the sleeper again and again; the times of the calls.
    fn wake(&self, bed: &Bed) -> Result<Vec<f64>> {
        let pinned = self.cpus.pin_first();
        let mut times = Vec::with_capacity(self.times);
        for _ in 0..self.times {
            self.cpus.poll(|| bed.is_going_to_sleep.swap(false, Ordering::Acquire).then_some(()));
            let announced = Instant::now();
            self.cpus.poll(|| (announced.elapsed() >= ASLEEP_AFTER).then_some(()));
            let start = Instant::now();
            ensure!(bed.ring.push(start).is_ok(), "a ring with nothing in it is full");
            bed.waker.wake();
            times.push(start.elapsed().as_nanos() as f64);
        }
        pinned.map(|()| times)
    }
}

impl Subject for WakeUps {
    fn name(&self) -> &'static str {
        "wake-ups"
    }

    fn places(&self) -> &[f64] {
        &[0.0, 1.0]
    }

    /// Nanoseconds, the median of a batch: single wake-ups vary too much for a mean.
    fn sample(&mut self, place: usize) -> Result<f64> {
        let bed = Bed {
            ring: Ring::new(CAPACITY),
            waker: Waker::new().context("an eventfd")?,
            is_going_to_sleep: AtomicBool::new(false),
        };
        let (slept, called) = thread::scope(|scope| {
            let sleeper = scope.spawn(|| self.sleep(&bed));
            let waker = scope.spawn(|| self.wake(&bed));
            let called = waker.join().expect("no thread panics");
            (sleeper.join().expect("no thread panics"), called)
        });
        Ok(median(&if place == Self::UNTIL_AWAKE { slept? } else { called? }))
    }
}
