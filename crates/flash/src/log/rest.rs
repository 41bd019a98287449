//! The pause after a failed batch. Each attempt costs a segment where every write fails.

/// The first pause; each attempt that fails doubles it.
const FIRST_US: u64 = 100_000;
/// The longest pause.
const LONGEST_US: u64 = 5_000_000;

/// Whether records are packed, after batches that failed.
#[derive(Debug, Default)]
pub(super) struct Rest {
    /// The last pause; 0: a batch succeeded since.
    us: u64,
    phase: Phase,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Phase {
    /// Writes succeed, as far as is known.
    #[default]
    No,
    /// A pause begins at the next poll.
    Asked,
    /// Nothing is packed before this time.
    Until(u64),
    /// One more segment may be opened, until a batch succeeds.
    Trial { has_opened: bool },
}

impl Rest {
    /// A batch failed. Those that were under way at the same time are no further attempts.
    pub(super) fn failed(&mut self) {
        if !self.is_on() {
            self.us = (self.us * 2).clamp(FIRST_US, LONGEST_US);
            self.phase = Phase::Asked;
        }
    }

    pub(super) fn succeeded(&mut self) {
        self.us = 0;
        if self.is_trial() {
            self.phase = Phase::No;
        }
    }

    pub(super) fn poll(&mut self, now_us: u64) {
        self.phase = match self.phase {
            Phase::Asked => Phase::Until(now_us + self.us),
            Phase::Until(end_us) if end_us <= now_us && self.us == 0 => Phase::No,
            Phase::Until(end_us) if end_us <= now_us => Phase::Trial { has_opened: false },
            phase => phase,
        };
    }

    /// True while nothing is packed.
    pub(super) fn is_on(&self) -> bool {
        matches!(self.phase, Phase::Asked | Phase::Until(_))
    }

    /// True if a segment is opened to see whether writes succeed again.
    pub(super) fn is_trial(&self) -> bool {
        matches!(self.phase, Phase::Trial { .. })
    }

    pub(super) fn may_open(&self) -> bool {
        matches!(self.phase, Phase::No | Phase::Trial { has_opened: false })
    }

    pub(super) fn opened(&mut self) {
        if self.is_trial() {
            self.phase = Phase::Trial { has_opened: true };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The lengths of pauses in which attempt after attempt fails.
    fn pauses(rest: &mut Rest, now_us: &mut u64, attempts: usize) -> Vec<u64> {
        let mut pause = || {
            rest.failed();
            // One that was under way.
            rest.failed();
            let begun_us = *now_us;
            rest.poll(*now_us);
            while rest.is_on() {
                assert!(!rest.may_open());
                *now_us += 50_000;
                rest.poll(*now_us);
            }
            (*now_us - begun_us) / 1000
        };
        (0..attempts).map(|_| pause()).collect()
    }

    #[test]
    fn pauses_double_until_a_batch_succeeds() {
        let (mut rest, mut now_us) = (Rest::default(), 7);
        assert_eq!(pauses(&mut rest, &mut now_us, 8), [100, 200, 400, 800, 1600, 3200, 5000, 5000]);
        rest.succeeded();
        assert!(rest.may_open());
        assert_eq!(pauses(&mut rest, &mut now_us, 2), [100, 200]);
    }

    #[test]
    fn an_attempt_opens_one_segment_until_it_succeeds() {
        let mut rest = Rest::default();
        rest.opened();
        assert!(rest.may_open());
        pauses(&mut rest, &mut 0, 1);
        assert!(rest.is_trial() && rest.may_open());
        rest.opened();
        assert!(!rest.may_open() && !rest.is_on());
        rest.succeeded();
        assert!(rest.may_open());
    }
}
