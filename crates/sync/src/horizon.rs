//! A horizon: what lies behind it may be overwritten at any time, so readers look at it twice (MICA §4.3.2).
//!
//! A word that only its writer moves. It says which memory still holds what readers expect there. Which
//! ordering stands where, and why, as for [`crate::version`]:
//!
//! ```text
//! reader                                   writer (one at a time)
//! is it before the horizon? (Relaxed)      horizon.store(further, Relaxed)
//! data loads, Relaxed, whole words         fence(Release)
//! fence(Acquire)                           data stores, Relaxed, whole words, where it is free now
//! is it still before the horizon? (Relaxed)
//! ```
//!
//! If a data load sees one of the data stores, then the two fences synchronise, and the second look sees
//! the horizon moved. The first look only saves work: it may be too old.
//!
//! Another thread may write to what lies behind the horizon if it got it from the one that moved it
//! through a lock of this crate, because taking one ends with a release fence.

use crate::facade::{AtomicU64, Ordering, fence};

/// Moves the horizon; from here on, what was left behind may be overwritten.
#[inline]
pub fn raise(word: &AtomicU64, further: u64) {
    word.store(further, Ordering::Relaxed);
    // Release fence: whoever sees one of the data stores that follow also sees the horizon moved.
    fence(Ordering::Release);
}

/// Where the horizon is, before anything is read.
#[inline]
pub fn look(word: &AtomicU64) -> u64 {
    // Relaxed: what is read by it counts only after the second look.
    word.load(Ordering::Relaxed)
}

/// Where the horizon is, after everything was read.
#[inline]
pub fn look_again(word: &AtomicU64) -> u64 {
    // Acquire fence: orders the data loads before the load below, see above.
    fence(Ordering::Acquire);
    word.load(Ordering::Relaxed)
}
