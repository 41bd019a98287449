//! Tenure: a word says who owns something, and readers of another process look at it twice.
//!
//! Versions and horizons show readers that a writer is at work, but a restart repairs memory without them, and
//! an owner may have given its part away. The orderings are those of [`crate::horizon`]:
//!
//! ```text
//! reader                                   owner
//! look: word.load(Acquire)                 end: word.store(nobody, Relaxed)
//!   pairs with the Release of `begin`      fence(Release)
//! data loads, Relaxed, whole words         data stores, Relaxed, in any order
//! look again: fence(Acquire)               begin: word.store(next, Release)
//! word.load(Relaxed)
//! ```
//!
//! If a data load sees one of the stores, the two fences synchronise, and the second look sees that the tenure
//! has ended. If the first look sees the next tenure, the data is that of the next tenure. So an unchanged word
//! means that owner and data held at one moment, provided that no word of an ended tenure comes again.

use crate::{
    facade::{AtomicU64, Ordering, fence},
    word::Word,
};
use minos_base::is_left_out;

/// Begins a tenure, or changes it: readers that see `next` see everything written before.
#[inline]
pub fn begin(word: &AtomicU64, next: u64) {
    word.store(next, Ordering::Release);
    // Release fence: for the case that `next` ends a tenure, as in `end`.
    fence(Ordering::Release);
}

/// Ends all tenures: each word becomes what `nobody` makes of it.
pub fn end(words: &[AtomicU64], nobody: impl Fn(u64) -> u64) {
    for word in words {
        word.store(nobody(word.load(Ordering::Relaxed)), Ordering::Relaxed);
    }
    // Release fence: a thread that sees one of the data stores that follow also sees that nobody owns them.
    fence(Ordering::Release);
}

/// The tenure before anything is read.
#[inline]
pub fn look(word: &impl Word) -> u64 {
    // Acquire: the data loads that follow see at least what was stored before this tenure began.
    word.load(Ordering::Acquire)
}

/// The tenure after everything was read: one that ended meanwhile, or before, shows.
pub fn look_again(word: &impl Word) -> u64 {
    // Acquire fence: orders the data loads before the load below, see above.
    fence(Ordering::Acquire);
    word.load(Ordering::Relaxed)
}

/// True if the tenure that was `seen` has lasted until everything was read.
///
/// In the control `version-check` the answer is always true, as that of `version::still`.
#[inline]
pub fn still(word: &impl Word, seen: u64) -> bool {
    // Acquire fence: orders the data loads before the load below, see above.
    fence(Ordering::Acquire);
    word.load(Ordering::Relaxed) == seen || is_left_out("version-check")
}
