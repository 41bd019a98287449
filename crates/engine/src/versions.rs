//! Versions for access modes that have readers beside the writer; nothing for the others.

use minos_sync::{Access, Word, version};
use std::sync::atomic::AtomicU64;

pub(crate) use minos_sync::version::Seen;

/// Runs `write` under the version in `word`.
#[inline]
pub(crate) fn write<A: Access>(word: &AtomicU64, write: impl FnOnce()) {
    let unfinished = Unfinished::begin::<A>(word);
    write();
    unfinished.end::<A>();
}

/// A write under a version.
///
/// Aborts the process when dropped: after a panic, locks open by themselves, and the next writer would
/// publish half a write. The next start drops the unfinished chain.
#[must_use = "to be ended"]
pub(crate) struct Unfinished<'a>(&'a AtomicU64);

impl<'a> Unfinished<'a> {
    #[inline(always)]
    pub(crate) fn begin<A: Access>(word: &'a AtomicU64) -> Self {
        if A::IS_SHARED {
            version::begin_write(word);
        }
        Self(word)
    }

    #[inline(always)]
    pub(crate) fn end<A: Access>(self) {
        if A::IS_SHARED {
            version::end_write(self.0);
        }
        std::mem::forget(self);
    }
}

impl Drop for Unfinished<'_> {
    fn drop(&mut self) {
        std::process::abort();
    }
}

/// Begins to read; `None` while a writer is inside.
#[inline]
pub(crate) fn begin_read<A: Access>(word: &impl Word) -> Option<Seen> {
    if A::IS_SHARED { version::begin_read(word) } else { Some(version::read_alone(word)) }
}

/// True if all words read since [`begin_read`] are consistent.
#[inline]
pub(crate) fn still<A: Access>(word: &impl Word, seen: Seen) -> bool {
    !A::IS_SHARED || version::still(word, seen)
}
