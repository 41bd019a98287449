//! Measuring several subjects in turn, so that a temporary disturbance of the machine hits all of them a
//! little.

use std::{
    sync::OnceLock,
    time::{Duration, Instant},
};

use anyhow::Result;

use super::stats::{Figure, Line, median};

/// Clock reads from which the time of one is known.
const LOOKS: usize = 1001;

/// A subject of measurement, at one place or at several.
pub(super) trait Subject {
    /// Its name, for errors and progress.
    fn name(&self) -> &'static str;

    /// Its places: the numbers over which a line is fitted, such as packets or bytes. One place means no
    /// line.
    fn places(&self) -> &[f64] {
        &[0.0]
    }

    /// One sample at the place of this index: the cost of an operation, in the unit of the subject.
    fn sample(&mut self, place: usize) -> Result<f64>;
}

/// Times groups of operations. The median over the groups counts, so that a group in which the thread was
/// preempted does not.
#[derive(Debug, Default)]
pub(super) struct Stopwatch {
    /// Nanoseconds of an operation, by group.
    groups: Vec<f64>,
}

impl Stopwatch {
    /// Times `group`, a group of so many operations.
    pub(super) fn time<R>(&mut self, operations: usize, group: impl FnOnce() -> R) -> R {
        let start = Instant::now();
        let result = group();
        self.note(start.elapsed(), operations);
        result
    }

    /// Adds the time of a group.
    pub(super) fn note(&mut self, elapsed: Duration, operations: usize) {
        let ns = (elapsed.as_nanos() as f64 - look_ns()).max(0.0);
        self.groups.push(ns / operations.max(1) as f64);
    }

    /// Nanoseconds of an operation, the median over the groups.
    pub(super) fn typical_ns(&self) -> f64 {
        median(&self.groups)
    }
}

/// The time of a clock read, in nanoseconds.
fn look_ns() -> f64 {
    static LOOK_NS: OnceLock<f64> = OnceLock::new();
    *LOOK_NS.get_or_init(|| {
        let looks: Vec<f64> = (0..LOOKS).map(|_| Instant::now().elapsed().as_nanos() as f64).collect();
        median(&looks)
    })
}

#[derive(Clone, Debug)]
pub(super) struct Samples {
    places: Vec<f64>,
    by_place: Vec<Vec<f64>>,
}

impl Samples {
    /// The figure at the place of this index.
    pub(super) fn at(&self, place: usize) -> Figure {
        self.by_place.get(place).map_or_else(Figure::default, |samples| Figure::of(samples))
    }

    /// The maximum over the rounds at the place of this index, for figures that disturbances can only lower.
    pub(super) fn most_at(&self, place: usize) -> Figure {
        let samples = self.by_place.get(place).map_or(&[][..], Vec::as_slice);
        Figure { value: samples.iter().copied().fold(0.0, f64::max), ..Figure::of(samples) }
    }

    /// The line over all places.
    pub(super) fn line(&self) -> Line {
        Line::through(&self.places, &self.by_place)
    }

    pub(super) fn rounds(&self) -> usize {
        self.by_place.iter().map(Vec::len).min().unwrap_or(0)
    }
}

/// Measures each of `subjects` at each place once a round: one warm-up round, then `rounds` rounds. `tick` is
/// called after each round.
pub(super) fn measure<const N: usize>(
    mut subjects: [&mut dyn Subject; N],
    rounds: usize,
    tick: impl Fn(),
) -> Result<[Samples; N]> {
    let mut measured = subjects.each_ref().map(|subject| Samples {
        places: subject.places().to_vec(),
        by_place: vec![Vec::with_capacity(rounds); subject.places().len()],
    });
    for round in 0..=rounds {
        for (subject, samples) in subjects.iter_mut().zip(&mut measured) {
            for (place, samples) in samples.by_place.iter_mut().enumerate() {
                let sample = subject.sample(place).map_err(|error| error.context(subject.name()))?;
                if round > 0 {
                    samples.push(sample);
                }
            }
        }
        tick();
    }
    Ok(measured)
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Counting<'a>(&'static str, &'a std::cell::RefCell<Vec<(&'static str, usize)>>);

    impl Subject for Counting<'_> {
        fn name(&self) -> &'static str {
            self.0
        }

        fn places(&self) -> &[f64] {
            &[10.0, 20.0]
        }

        fn sample(&mut self, place: usize) -> Result<f64> {
            self.1.borrow_mut().push((self.0, place));
            Ok(5.0 + 3.0 * self.places()[place])
        }
    }

    #[test]
    fn a_group_that_was_held_up_does_not_count() {
        let mut watch = Stopwatch::default();
        for elapsed in [64_000, 64_000, 50_000_000] {
            watch.note(Duration::from_nanos(elapsed), 64);
        }
        let typical_ns = watch.typical_ns();
        // The time of a clock read is subtracted.
        assert!(typical_ns > 500.0 && typical_ns <= 1000.0, "{typical_ns}");
        assert_eq!(watch.time(1, || 7), 7);
    }

    #[test]
    fn subjects_take_turns_and_the_first_round_does_not_count() {
        let order = std::cell::RefCell::new(Vec::new());
        let (mut a, mut b) = (Counting("a", &order), Counting("b", &order));
        let [samples, _] = measure([&mut a, &mut b], 2, || ()).unwrap();
        assert_eq!(order.take(), [("a", 0), ("a", 1), ("b", 0), ("b", 1)].repeat(3));
        assert_eq!(samples.rounds(), 2);
        assert_eq!(samples.at(1), Figure::exact(65.0));
        assert_eq!(samples.most_at(0), Figure::exact(35.0));
        assert_eq!((samples.line().slope.value, samples.line().intercept.value), (3.0, 5.0));
    }
}
