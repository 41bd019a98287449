//! A reader without a lock beside a split of the bucket that it searches, in the
//! order of the engine's `chain::split`.

use super::{beside, explore};
use crate::version;
use loom::sync::{
    Arc,
    atomic::{
        AtomicU64,
        Ordering::{Acquire, Relaxed, Release},
    },
};

const SLOT: u64 = 7;

/// An index of one bucket that is to have two; the key belongs to the second one then.
struct Index {
    buckets: AtomicU64,
    versions: [AtomicU64; 2],
    slots: [AtomicU64; 2],
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Answer {
    Found,
    Missing,
    Disturbed,
}

impl Index {
    fn new() -> Arc<Self> {
        let words = |words: [u64; 2]| words.map(AtomicU64::new);
        Arc::new(Self { buckets: AtomicU64::new(1), versions: words([0, 0]), slots: words([SLOT, 0]) })
    }

    fn split(&self) {
        version::begin_write(&self.versions[0]);
        self.slots[1].store(SLOT, Relaxed);
        self.buckets.store(2, Release);
        self.slots[0].store(0, Relaxed);
        version::end_write(&self.versions[0]);
    }

    /// As [`Index::split`], but the new bucket is in use before it is filled.
    fn split_too_early(&self) {
        version::begin_write(&self.versions[0]);
        self.buckets.store(2, Release);
        self.slots[1].store(SLOT, Relaxed);
        self.slots[0].store(0, Relaxed);
        version::end_write(&self.versions[0]);
    }

    /// As [`Index::split`], but without a version.
    fn split_unnoticed(&self) {
        self.slots[1].store(SLOT, Relaxed);
        self.buckets.store(2, Release);
        self.slots[0].store(0, Relaxed);
    }

    /// Searches for the key; with `looks_again`, reads the number of buckets again when it is missing.
    fn look(&self, looks_again: bool) -> Answer {
        let buckets = self.buckets.load(Acquire);
        let bucket = buckets as usize - 1;
        let Some(seen) = version::begin_read(&self.versions[bucket]) else { return Answer::Disturbed };
        let is_found = self.slots[bucket].load(Relaxed) == SLOT;
        let is_whole = version::still(&self.versions[bucket], seen);
        match (is_whole, is_found) {
            (false, _) => Answer::Disturbed,
            (true, true) => Answer::Found,
            (true, false) if looks_again && self.buckets.load(Acquire) != buckets => Answer::Disturbed,
            (true, false) => Answer::Missing,
        }
    }

    fn read(&self) -> Answer {
        self.look(true)
    }

    /// As [`Index::read`], but the key may have moved before the version was read.
    fn read_without_second_count(&self) -> Answer {
        self.look(false)
    }
}

fn reader_beside_split(split: fn(&Index), read: fn(&Index) -> Answer) {
    explore(move || {
        let index = Index::new();
        let writer = beside(&index, move |index| split(index));
        assert_ne!(read(&index), Answer::Missing, "the key was there all the time");
        writer.join().unwrap();
        assert_eq!(index.read(), Answer::Found);
    });
}

#[test]
fn loom_a_split_hides_no_key() {
    reader_beside_split(Index::split, Index::read);
}

#[test]
#[should_panic(expected = "the key was there all the time")]
fn loom_control_split_published_too_early() {
    reader_beside_split(Index::split_too_early, Index::read);
}

#[test]
#[should_panic(expected = "the key was there all the time")]
fn loom_control_split_without_version() {
    reader_beside_split(Index::split_unnoticed, Index::read);
}

#[test]
#[should_panic(expected = "the key was there all the time")]
fn loom_control_split_without_second_count() {
    reader_beside_split(Index::split, Index::read_without_second_count);
}
