//! What the log tells of a device that fails: at most a line of each kind in a second.

use minos_flash::Counters;

const EVERY_US: u64 = 1_000_000;

/// A count that was told up to here, not long ago.
#[derive(Debug, Default)]
struct Told {
    at_us: Option<u64>,
    counts: [u64; 2],
}

impl Told {
    /// What is to be told now of these counts, which only rise, the first of them by what it is about.
    fn news(&mut self, now_us: u64, counts: [u64; 2]) -> Option<[u64; 2]> {
        let is_early = self.at_us.is_some_and(|at| now_us < at + EVERY_US);
        if is_early || counts[0] == self.counts[0] {
            return None;
        }
        self.at_us = Some(now_us);
        let before = std::mem::replace(&mut self.counts, counts);
        Some([counts[0] - before[0], counts[1] - before[1]])
    }
}

/// Lines about the device.
#[derive(Debug, Default)]
pub(super) struct Teller {
    writes: Told,
    lost: Told,
}

impl Teller {
    pub(super) fn tell(&mut self, now_us: u64, counters: &Counters) {
        let failed = [counters.failed_writes, counters.failed_segments];
        if let Some([writes, segments]) = self.writes.news(now_us, failed) {
            tracing::warn!(writes, segments, "writes to flash failed, and segments with them");
        }
        if let Some([records, _]) = self.lost.news(now_us, [counters.lost_records, 0]) {
            tracing::warn!(records, "records on flash are lost: they cannot be read, or do not verify");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_a_second_tells_of_all() {
        let mut told = Told::default();
        assert_eq!(told.news(5, [0, 0]), None);
        // Four failures a millisecond for 2.5 seconds, each fourth with a segment; then none.
        let counts = |ms: u64| [4 * ms.min(2500), ms.min(2500)];
        let lines = (1..10_000).filter_map(|ms| Some((ms, told.news(ms * 1000, counts(ms))?)));
        let expected = [(1, [4, 1]), (1001, [4000, 1000]), (2001, [4000, 1000]), (3001, [1996, 499])];
        assert_eq!(lines.collect::<Vec<_>>(), expected);
    }
}
