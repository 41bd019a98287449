//! When prepared reads are submitted: the direct pattern, or the intermediate queue (Vector Interfaces §4.2).

use std::time::{Duration, Instant};

use crate::server::config::{Gathering, VectorWidth};

/// Decides when a worker submits the reads that it has prepared.
pub(super) struct Gather {
    gathering: Gathering,
    /// When the first of them was seen.
    since: Option<Instant>,
}

/// Reads at which a vector no longer waits for those under way: the cost of its call is a fifth of theirs.
const FULL: usize = 32;

/// The reads of a worker.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Reads {
    /// Prepared.
    pub(super) prepared: usize,
    /// At the device.
    pub(super) in_flight: usize,
    /// Reads have ended since the last look.
    pub(super) has_ended: bool,
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

    /// True if the prepared reads are to be submitted now.
    ///
    /// A width that follows the load has the device as its clock: what comes while reads are under way leaves with the
    /// next that end, in one call instead of one each.
    pub(super) fn is_due(&mut self, reads: Reads, now: Instant) -> bool {
        let Reads { prepared, in_flight, has_ended } = reads;
        let is_enough = match self.gathering.width {
            VectorWidth::Direct => true,
            VectorWidth::Queue { min: 1, .. } => in_flight == 0 || has_ended || prepared >= FULL,
            VectorWidth::Queue { min, .. } => prepared >= min,
        };
        let since = *self.since.get_or_insert(now);
        let is_late = now.saturating_duration_since(since) >= self.gathering.delay;
        let is_due = prepared > 0 && (is_enough || is_late);
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

    fn reads(prepared: usize, in_flight: usize, has_ended: bool) -> Reads {
        Reads { prepared, in_flight, has_ended }
    }

    #[test]
    fn reads_wait_until_there_are_enough_or_the_time_has_passed() {
        let (start, mut gather) = (Instant::now(), queue(4, 8));
        let at = |us| start + Duration::from_micros(us);
        let mut is_due = |prepared, us| {
            let is_due = gather.is_due(reads(prepared, 0, false), at(us));
            (is_due, gather.sleep_max().is_some())
        };
        assert_eq!(is_due(0, 0), (false, false));
        assert_eq!(is_due(3, 10), (false, true));
        assert_eq!(is_due(4, 11), (true, false), "enough");
        assert_eq!(is_due(1, 40), (false, true), "its own time begins with it");
        assert_eq!(is_due(3, 59), (false, true));
        assert_eq!(is_due(3, 60), (true, false), "late");
        assert_eq!(gather.width_max(), 8);
    }

    #[test]
    fn a_width_that_follows_the_load_waits_for_reads_under_way_alone() {
        let (start, mut gather) = (Instant::now(), queue(1, 1024));
        assert!(gather.is_due(reads(1, 0, false), start) && gather.is_due(reads(500, 0, false), start));
        assert!(!gather.is_due(reads(1, 1, false), start), "one is under way");
        assert!(gather.sleep_max().is_some());
        assert!(gather.is_due(reads(2, 1, true), start), "another has ended");
        assert!(!gather.is_due(reads(FULL - 1, 1, false), start));
        assert!(gather.is_due(reads(FULL, 1, false), start), "enough");
        assert!(!gather.is_due(reads(1, 1, false), start));
        assert!(gather.is_due(reads(1, 1, false), start + Duration::from_micros(20)), "late");
    }
}
