//! Versions for access modes that have readers beside the writer; nothing for the others.

use minos_sync::{Access, version};
use std::sync::atomic::AtomicU64;

pub(crate) use minos_sync::version::Seen;

/// Runs `write` under the version in `word`.
#[inline]
pub(crate) fn write<A: Access>(word: &AtomicU64, write: impl FnOnce()) {
    let unfinished = Unfinished;
    if A::IS_SHARED {
        version::begin_write(word);
        write();
        version::end_write(word);
    } else {
        write();
    }
    std::mem::forget(unfinished);
}

/// Aborts the process when dropped: after a panic, locks open by themselves, and the next writer would
/// publish half a write. The next start drops the unfinished chain.
struct Unfinished;

impl Drop for Unfinished {
    fn drop(&mut self) {
        std::process::abort();
    }
}

/// Begins to read; `None` while a writer is inside.
#[inline]
pub(crate) fn begin_read<A: Access>(word: &AtomicU64) -> Option<Seen> {
    if A::IS_SHARED { version::begin_read(word) } else { Some(version::read_alone(word)) }
}

/// True if all words read since [`begin_read`] are consistent.
#[inline]
pub(crate) fn still<A: Access>(word: &AtomicU64, seen: Seen) -> bool {
    !A::IS_SHARED || version::still(word, seen)
}
