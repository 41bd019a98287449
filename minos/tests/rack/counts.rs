//! Counters that one client increments, and what others see of them. A count that was acknowledged is seen from then on,
//! whatever becomes of the increments whose outcome is not known.

use std::{
    sync::{
        Mutex,
        atomic::{AtomicU64, Ordering::SeqCst},
    },
    time::{Duration, Instant},
};

/// Number of the counters.
pub(crate) const KEYS: usize = 8;

/// A key, a count of it that was acknowledged, and when.
type Counted = (usize, u64, Instant);

/// A read of a count; a missing one is zero.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Seen {
    key: usize,
    asked: Instant,
    count: u64,
}

#[derive(Default)]
pub(crate) struct Counters {
    begun: [AtomicU64; KEYS],
    counted: Mutex<Vec<Counted>>,
    seen: Mutex<Vec<Seen>>,
}

/// The name of a counter.
pub(crate) fn name(key: usize) -> String {
    format!("count{key}")
}

impl Counters {
    /// Lets `increment` count, which gets the number of increments begun and returns the count if it is told. Only one thread
    /// does so.
    pub(crate) fn count(&self, key: usize, increment: impl FnOnce(u64) -> Option<u64>) -> bool {
        let begun = self.begun[key].fetch_add(1, SeqCst) + 1;
        let count = increment(begun);
        if let Some(count) = count {
            self.counted.lock().unwrap().push((key, count, Instant::now()));
        }
        count.is_some()
    }

    /// Lets `find` look, which returns what is found if that is told.
    pub(crate) fn read(&self, key: usize, find: impl FnOnce() -> Option<Option<Vec<u8>>>) -> bool {
        let asked = Instant::now();
        let Some(found) = find() else { return false };
        let count = found.map_or(0, |value| String::from_utf8(value).unwrap().trim().parse().unwrap());
        self.seen.lock().unwrap().push(Seen { key, asked, count });
        true
    }

    /// Counts of each key that were acknowledged.
    pub(crate) fn acknowledged(&self) -> [usize; KEYS] {
        let mut counts = [0; KEYS];
        self.counted.lock().unwrap().iter().for_each(|(key, _, _)| counts[*key] += 1);
        counts
    }

    /// The number of reads, all of which saw what had been acknowledged longer ago than `old`.
    pub(crate) fn check(&self, old: Duration) -> usize {
        let (counted, seen) = (self.counted.lock().unwrap(), self.seen.lock().unwrap());
        let wrong = find_wrong(&counted, &seen, old);
        assert!(wrong.is_none(), "{wrong:?}");
        seen.len()
    }
}

/// A read that misses a count which was acknowledged longer before it than `old`, and that count.
fn find_wrong(counted: &[Counted], seen: &[Seen], old: Duration) -> Option<(Seen, u64)> {
    let due = |read: &Seen| {
        // One client counts, so that they are in order.
        let end = counted.partition_point(|(_, _, at)| *at + old < read.asked);
        counted[..end].iter().rev().find(|(key, _, _)| *key == read.key).map_or(0, |(_, count, _)| *count)
    };
    let mut with_due = seen.iter().map(|read| (*read, due(read)));
    with_due.find(|(read, due)| read.count < *due)
}

#[test]
fn a_count_that_is_too_old_is_found_out() {
    let now = Instant::now();
    let at = |ms| now + Duration::from_millis(ms);
    let counted = [(0, 1, at(0)), (1, 9, at(1)), (0, 2, at(10))];
    let read = |ms, count| Seen { key: 0, asked: at(ms), count };
    let right = [read(5, 0), read(305, 1), read(311, 2), read(311, 3)];
    let old = Duration::from_millis(300);
    assert!(find_wrong(&counted, &right, old).is_none());
    for wrong in [read(301, 0), read(311, 1)] {
        assert!(find_wrong(&counted, &[right[0], wrong], old).is_some(), "{wrong:?}");
    }
}
