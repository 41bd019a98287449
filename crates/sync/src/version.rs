//! Versions: odd while a writer is inside, so that readers need no lock (MICA §4.3.2).
//!
//! A version is the low half of a word; the high half belongs to the caller and is kept. Writers
//! exclude each other by a lock. The orderings (Boehm, "Can seqlocks get along with programming language
//! memory models?"; crossbeam's `seq_lock`):
//!
//! ```text
//! reader                                   writer (holds a lock)
//! a = version.load(Acquire)                version.store(odd, Relaxed)
//!   pairs with the writer's Release        fence(Release)
//! data loads, Relaxed, whole words         data stores, Relaxed, whole words
//! fence(Acquire)                           version.store(even, Release)
//! b = version.load(Relaxed)
//! ```
//!
//! If a data load sees a data store of a writer, then the two fences synchronise, and `b` is that
//! writer's odd number or a later one: `b != a`. If it sees none, the data is that of version `a`.

use crate::{
    facade::{AtomicU64, Ordering, fence},
    word::Word,
};
use minos_base::is_left_out;

/// The bits of a word that hold the version; the others are the caller's.
pub const VERSION_MASK: u64 = 0xffff_ffff;

/// The version that a reader saw before it read the data.
///
/// A reader is deceived only if the version recurs while it sleeps, after 2^31 writes to one word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seen(u64);

impl Seen {
    /// The caller's half of the word, as it stood when the reading began.
    #[inline]
    pub fn payload(self) -> u32 {
        (self.0 >> 32) as u32
    }
}

/// Begins to read; `None` while a writer is inside.
#[inline]
pub fn begin_read(word: &impl Word) -> Option<Seen> {
    // Acquire: the data loads that follow see at least what the writer of this number stored.
    let seen = word.load(Ordering::Acquire);
    (seen & 1 == 0).then_some(Seen(seen))
}

/// As [`begin_read`], where no writer runs beside the reader.
#[inline]
pub fn read_alone(word: &impl Word) -> Seen {
    Seen(word.load(Ordering::Relaxed))
}

/// True if all words read since [`begin_read`] are consistent.
///
/// In the control `version-check` the answer is always true, and the engine's stress test must find errors.
#[inline]
pub fn still(word: &impl Word, seen: Seen) -> bool {
    // Acquire fence: orders the data loads before the load below, see above.
    fence(Ordering::Acquire);
    word.load(Ordering::Relaxed) == seen.0 || is_left_out("version-check")
}

/// Begins to write. The caller holds the lock of all writers.
///
/// A number that is odd already, although no other writer is inside, stays:
/// readers see when this write has ended.
#[inline]
pub fn begin_write(word: &AtomicU64) {
    let now = word.load(Ordering::Relaxed);
    word.store(now | 1, Ordering::Relaxed);
    // Release fence: a thread that sees one of the data stores that follow also sees the odd number.
    fence(Ordering::Release);
}

/// Ends the writing and publishes it.
#[inline]
pub fn end_write(word: &AtomicU64) {
    let now = word.load(Ordering::Relaxed);
    debug_assert!(now & 1 == 1, "no writer is inside");
    // Release: a thread that reads the even number sees the data stores.
    word.store(next(now), Ordering::Release);
}

/// Replaces the caller's half. Only between [`begin_write`] and [`end_write`].
#[inline]
pub fn set_payload(word: &AtomicU64, payload: u32) {
    let now = word.load(Ordering::Relaxed);
    word.store(u64::from(payload) << 32 | now & VERSION_MASK, Ordering::Relaxed);
}

/// The next version; it wraps within its half.
fn next(word: u64) -> u64 {
    word & !VERSION_MASK | word.wrapping_add(1) & VERSION_MASK
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn readers_notice_writers() {
        let word = AtomicU64::new(7 << 32);
        let seen = begin_read(&word).unwrap();
        assert_eq!(seen.payload(), 7);
        assert!(still(&word, seen));
        begin_write(&word);
        assert_eq!(begin_read(&word), None);
        set_payload(&word, 9);
        end_write(&word);
        assert!(!still(&word, seen) || is_left_out("version-check"));
        assert_eq!(begin_read(&word).unwrap().payload(), 9);
    }

    #[test]
    fn a_number_that_was_left_odd_is_even_after_the_next_write() {
        let word = AtomicU64::new(7 << 32 | 3);
        assert_eq!(begin_read(&word), None);
        begin_write(&word);
        assert_eq!(begin_read(&word), None);
        end_write(&word);
        assert_eq!(word.into_inner(), 7 << 32 | 4);
    }

    #[test]
    fn wrapping_leaves_the_payload_alone() {
        let word = AtomicU64::new(7 << 32 | 0xffff_fffe);
        begin_write(&word);
        end_write(&word);
        assert_eq!(word.into_inner(), 7 << 32);
    }
}
