//! When prepared reads are submitted: the direct pattern, or the intermediate queue (Vector Interfaces §4.2).

use std::time::{Duration, Instant};

use crate::server::config::{Gathering, VectorWidth};

/// Decides when a worker submits the reads that it has prepared.
pub(super) struct Gather {
    gathering: Gathering,
    /// When the first of them was seen.
    since: Option<Instant>,
}

impl Gather {
    pub(super) fn new(gathering: Gathering) -> Self {
        Self { gathering, since: None }
    }

    /// True if the reads of each request are a vector of their own.
    pub(super) fn is_direct(&self) -> bool {
        self.gathering.width == VectorWidth::Direct
    }

    /// Most reads of a vector.
    pub(super) fn width_max(&self) -> usize {
        match self.gathering.width {
            VectorWidth::Direct => usize::MAX,
            VectorWidth::Queue { max, .. } => max,
        }
    }

    /// True if so many prepared reads are to be submitted now.
    pub(super) fn is_due(&mut self, prepared: usize, now: Instant) -> bool {
        let min = match self.gathering.width {
            VectorWidth::Direct => 1,
            VectorWidth::Queue { min, .. } => min,
        };
        let since = *self.since.get_or_insert(now);
        let is_late = now.saturating_duration_since(since) >= self.gathering.delay;
        let is_due = prepared >= min || (prepared > 0 && is_late);
        if is_due || prepared == 0 {
            self.since = None;
        }
        is_due
    }

    /// Longest sleep, if reads wait for others.
    pub(super) fn sleep_max(&self) -> Option<Duration> {
        self.since.map(|_| self.gathering.delay)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn queue(min: usize, max: usize) -> Gather {
        let delay = Duration::from_micros(20);
        Gather::new(Gathering { width: VectorWidth::Queue { min, max }, delay })
    }

    #[test]
    fn reads_wait_until_there_are_enough_or_the_time_has_passed() {
        let (start, mut gather) = (Instant::now(), queue(4, 8));
        let at = |us| start + Duration::from_micros(us);
        assert!(!gather.is_due(0, at(0)) && gather.sleep_max().is_none());
        assert!(!gather.is_due(3, at(10)) && gather.sleep_max().is_some());
        assert!(gather.is_due(4, at(11)), "enough");
        assert!(!gather.is_due(1, at(40)), "its own time begins with it");
        assert!(!gather.is_due(3, at(59)) && gather.is_due(3, at(60)), "late");
        assert_eq!((gather.sleep_max(), gather.width_max()), (None, 8));
    }

    #[test]
    fn a_width_that_follows_the_load_does_not_wait() {
        let mut gather = queue(1, 1024);
        assert!(gather.is_due(1, Instant::now()) && gather.is_due(500, Instant::now()));
    }
}
