//! The words that a region keeps beside index and items, so that another process can reopen it.
//!
//! ```text
//! word 0   the clock's base          word 4   next CAS unique     word 6   next bucket of the sweep
//! word 1   whether versions are kept word 5   items               word 7   generation when its pass began
//! word 2   largest class beside keys word 8   oldest generation that may be there
//! word 3   bits of the key hash      word 9   next bucket that is freed of what dangles
//!                                    word 10  records on flash up to this sequence were flushed
//!                                    word 11  newest journal on flash; the table's, right at any time
//!                                    word 12  number of the last process; the table's, right at any time
//! ```
//!
//! Words 0 to 3 are the table's, and only those of the first partition are used; they are right at any time.
//! The others are written when the table is closed.

use minos_base::SizeClass;
use minos_region::{Offset, Region, View};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

pub(crate) const SAVED_WORDS: u64 = 16;

pub(crate) const CLOCK_BASE: u64 = 0;
pub(crate) const VERSIONS: u64 = 1;
pub(crate) const INLINE_CLASS_MAX: u64 = 2;
pub(crate) const HASH_MASK: u64 = 3;
pub(crate) const CAS_NEXT: u64 = 4;
pub(crate) const ITEMS: u64 = 5;
pub(crate) const SWEEP: [u64; 3] = [6, 7, 8];
pub(crate) const SCANNED: u64 = 9;
pub(crate) const FLUSHED: u64 = 10;
pub(crate) const FLASH_JOURNAL: u64 = 11;
pub(crate) const PROCESS: u64 = 12;

/// Chains have versions, so that it is known which of them were being written.
pub(crate) const KEPT: u64 = 1;
/// One thread alone has written, without versions.
pub(crate) const NOT_KEPT: u64 = 2;

/// The class of values in [`INLINE_CLASS_MAX`]; `None` if there is no such class.
pub(crate) fn inline_class_of(word: u64) -> Option<SizeClass> {
    SizeClass::from_index(usize::try_from(word).ok()?)
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Saved {
    start: Offset,
}

impl Saved {
    pub(crate) fn at(start: Offset) -> Self {
        Self { start }
    }

    /// True if the versions show which chains were being written.
    pub(crate) fn has_versions(self, region: &View) -> bool {
        self.seen(region, VERSIONS) == KEPT
    }

    pub(crate) fn place(self, at: u64) -> Offset {
        self.start.plus(at)
    }

    pub(crate) fn seen(self, region: &View, at: u64) -> u64 {
        region.word(self.start.plus(at)).load(Relaxed)
    }

    pub(crate) fn word(self, region: &Region, at: u64) -> &AtomicU64 {
        region.word(self.start.plus(at))
    }
}
