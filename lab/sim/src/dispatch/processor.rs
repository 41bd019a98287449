//! Processors whose speed varies and which pause now and then: for a tick of the kernel, or while a
//! hypervisor runs others on them.

use std::sync::Arc;

use super::{costs::Pause, link::TICKS_A_NS};
use crate::{Random, Ticks};

/// The speed of a processor, span by span.
#[derive(Clone, Debug)]
pub(super) struct Speed {
    span: Ticks,
    /// Factors by which the costs are multiplied, one a span. Always 1 if empty.
    times: Arc<[f64]>,
}

impl Speed {
    pub(super) fn new(span_us: f64, times: &[f64]) -> Self {
        Self { span: (1e3 * span_us * TICKS_A_NS) as Ticks, times: times.into() }
    }

    /// Duration of work of `ticks` that begins at `now`. All of it runs at the speed of that span.
    fn of(&self, now: Ticks, ticks: Ticks) -> Ticks {
        if self.times.is_empty() {
            return ticks;
        }
        let span = (now / self.span) as usize % self.times.len();
        (ticks as f64 * self.times[span] + 0.5) as Ticks
    }
}

#[derive(Clone, Debug)]
pub(super) struct Kinds {
    /// For each kind: pauses per tick of this kind and all before it, and the length of one.
    up_to: Vec<(f64, Ticks)>,
}

impl Kinds {
    pub(super) fn new(pauses: &[Pause]) -> Self {
        let mut a_tick = 0.0;
        let kind = |pause: &Pause| {
            a_tick += pause.per_s / (1e9 * TICKS_A_NS);
            (a_tick, (pause.ns * TICKS_A_NS) as Ticks)
        };
        Self { up_to: pauses.iter().map(kind).collect() }
    }

    /// Time until the next pause, and its length; `None` without pauses.
    fn draw(&self, random: &mut Random) -> Option<(Ticks, Ticks)> {
        let &(all_a_tick, longest) = self.up_to.last()?;
        let gap = random.exponential() / all_a_tick;
        let which = random.unit() * all_a_tick;
        let kind = self.up_to.iter().find(|(up_to, _)| which <= *up_to);
        Some((gap as Ticks, kind.map_or(longest, |&(_, length)| length)))
    }
}

#[derive(Clone, Debug)]
pub(super) struct Processor {
    speed: Speed,
    kinds: Arc<Kinds>,
    random: Random,
    /// Bounds of the next pause, or of the current one.
    begins: Ticks,
    ends: Ticks,
}

impl Processor {
    pub(super) fn new(speed: &Speed, kinds: &Arc<Kinds>, random: Random) -> Self {
        let mut processor =
            Self { speed: speed.clone(), kinds: Arc::clone(kinds), random, begins: 0, ends: 0 };
        processor.advance();
        processor
    }

    fn advance(&mut self) {
        (self.begins, self.ends) = match self.kinds.draw(&mut self.random) {
            Some((gap, length)) => (self.ends + gap, self.ends + gap + length),
            None => (Ticks::MAX, Ticks::MAX),
        };
    }

    /// Duration of work that costs `ticks` and begins at `now`, with pauses. Calls are in order of time.
    pub(super) fn stretch(&mut self, now: Ticks, ticks: Ticks) -> Ticks {
        let mut end = now + self.speed.of(now, ticks);
        while self.begins < end {
            end += self.ends.saturating_sub(self.begins.max(now));
            self.advance();
        }
        end - now
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pauses(of: &[Pause]) -> Processor {
        Processor::new(&Speed::new(0.0, &[]), &Arc::new(Kinds::new(of)), Random::new(1, 1))
    }

    #[test]
    fn speeds_follow_each_other_and_begin_again() {
        let speed = Speed::new(1.0, &[1.0, 2.5]);
        let mut processor = Processor::new(&speed, &Arc::new(Kinds::new(&[])), Random::new(1, 1));
        let ticks = [0, 999, 1000, 1999, 2000, 3500].map(|ns| processor.stretch(1000 * ns, 100));
        assert_eq!(ticks, [100, 100, 250, 250, 100, 250]);
    }

    #[test]
    fn without_pauses_nothing_takes_longer() {
        assert_eq!(pauses(&[]).stretch(1 << 50, 7), 7);
    }

    #[test]
    fn what_waits_for_the_end_of_a_pause_waits_for_no_more() {
        let mut pauses = pauses(&[Pause { per_s: 100.0, ns: 1000.0 }]);
        let (begins, ends) = (pauses.begins, pauses.ends);
        assert_eq!(ends - begins, 1_000_000);
        assert_eq!(pauses.stretch(begins - 10, 10), 10, "it is over before");
        assert_eq!(pauses.stretch(begins + 400_000, 10), 600_010);
        assert!(pauses.begins >= ends, "the next one comes behind it");
        assert_eq!(pauses.stretch(pauses.ends + 5, 0), 0, "nobody was there");
    }

    #[test]
    fn they_take_their_share_of_the_time() {
        let of = [Pause { per_s: 250.0, ns: 30_000.0 }, Pause { per_s: 10.0, ns: 500_000.0 }];
        let mut pauses = pauses(&of);
        let (mut now, mut worked, mut waited) = (0, 0_u64, 0_u64);
        for _ in 0..400_000 {
            let ticks = pauses.stretch(now, 5_000_000);
            now += ticks + 1_000_000;
            worked += 5_000_000;
            waited += ticks - 5_000_000;
        }
        // Pauses during idle time do not count: the rate is per second of work.
        let share = waited as f64 / worked as f64;
        let expected = 250.0 * 30e-6 + 10.0 * 500e-6;
        assert!((share / expected - 1.0).abs() < 0.2, "{share} instead of {expected}");
    }
}
