//! The words that a region keeps beside index and items, so that another process can reopen it.
//!
//! ```text
//! word 0   the clock's base          word 4   next CAS unique     word 6   next bucket of the sweep
//! word 1   whether versions are kept word 5   items               word 7   generation when its pass began
//! word 2   how keys and values lie   word 8   oldest generation that may be there
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
pub(crate) const SHAPE: u64 = 2;
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

/// The shift of the shard bits in the word that describes how keys and values lie.
const SHARD_SHIFT: u32 = 32;

/// How keys and values lie: the bits of the hash before a partition's number, and the largest class of values
/// that lie beside their keys.
pub(crate) fn shape_of(shard_bits: u32, inline_class_max: SizeClass) -> u64 {
    u64::from(shard_bits) << SHARD_SHIFT | inline_class_max.index() as u64
}

pub(crate) fn shard_bits_of(shape: u64) -> u32 {
    (shape >> SHARD_SHIFT) as u32
}

/// The second part of a [`shape_of`]; `None` if there is no such class.
pub(crate) fn inline_class_of(shape: u64) -> Option<SizeClass> {
    SizeClass::from_index((shape & u64::from(u32::MAX)) as usize)
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
