//! A horizon: memory behind it may be overwritten at any time, so readers check it twice (MICA §4.3.2).
//!
//! A word that only its writer moves. Memory before the horizon still holds the contents that readers expect.
//! The orderings, and their reasons, are as in [`crate::version`]:
//!
//! ```text
//! reader                                   writer (one at a time)
//! is it before the horizon? (Relaxed)      horizon.store(further, Relaxed)
//! data loads, Relaxed, whole words         fence(Release)
//! fence(Acquire)                           data stores, Relaxed, whole words, where it is free now
//! is it still before the horizon? (Relaxed)
//! ```
//!
//! If a data load sees one of the data stores, then the two fences synchronise, and the second check sees the
//! horizon moved. The first check only saves work: its value may be old.
//!
//! Another thread may write to memory behind the horizon if it got the memory from the writer through a lock
//! of this crate, because taking one ends with a release fence.

use crate::{
    facade::{AtomicU64, Ordering, fence},
    word::Word,
};

/// Moves the horizon; from here on, memory behind it may be overwritten.
#[inline]
pub fn raise(word: &AtomicU64, further: u64) {
    word.store(further, Ordering::Relaxed);
    // Release fence: a thread that sees one of the data stores that follow also sees the horizon moved.
    fence(Ordering::Release);
}

/// Where the horizon is, before anything is read.
#[inline]
pub fn look(word: &impl Word) -> u64 {
    // Relaxed: data read by it is valid only after the second check.
    word.load(Ordering::Relaxed)
}

/// Where the horizon is, after everything was read.
#[inline]
pub fn look_again(word: &impl Word) -> u64 {
    // Acquire fence: orders the data loads before the load below, see above.
    fence(Ordering::Acquire);
    word.load(Ordering::Relaxed)
}
