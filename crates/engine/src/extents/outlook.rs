//! Whether evictions make room for a large value, before any is made.

use super::Evictable;
use minos_region::HeapStats;

/// What is used of a zone, and what could be freed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ZoneRoom {
    pub(crate) counts: HeapStats,
    pub(crate) evictable: Evictable,
}

/// What evictions in a zone can do for a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Outlook {
    /// The zone has less room, whatever is evicted.
    Never,
    /// There is enough, but what stays may cut it up.
    Perhaps,
    /// There is enough in one piece once all is evicted.
    Surely,
}

impl ZoneRoom {
    /// The outlook for a chunk of so many words, its tag included.
    pub(crate) fn outlook(&self, words: u64) -> Outlook {
        let room = self.counts.free_words + self.evictable.words;
        // The counts are of different moments.
        let staying = self.counts.used_chunks.saturating_sub(self.evictable.chunks);
        if room < words {
            Outlook::Never
        } else if room / (staying + 1) < words {
            Outlook::Perhaps
        } else {
            // The chunks that stay leave one gap more than they are, and not all gaps are smaller than the average.
            Outlook::Surely
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_zone_is_cut_up_by_what_stays() {
        let outlook = |free_words, used_chunks, evictable: (u64, u64), words| {
            let counts = HeapStats { free_words, used_chunks, ..HeapStats::default() };
            let evictable = Evictable { chunks: evictable.0, words: evictable.1 };
            ZoneRoom { counts, evictable }.outlook(words)
        };
        assert_eq!(outlook(0, 0, (0, 0), 1), Outlook::Never);
        assert_eq!(outlook(10, 9, (5, 90), 101), Outlook::Never);
        assert_eq!(outlook(10, 5, (5, 90), 100), Outlook::Surely);
        assert_eq!(outlook(10, 6, (5, 90), 51), Outlook::Perhaps);
        assert_eq!(outlook(10, 6, (5, 90), 50), Outlook::Surely);
        assert_eq!(outlook(10, 4, (5, 90), 100), Outlook::Surely);
    }
}
