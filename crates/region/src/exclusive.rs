//! Memory that one owner may write as plain bytes.

use crate::{offset::Offset, region::Region};
use minos_sync::words::WORD_BYTES;

/// A chunk that no other thread can reach: a large value is received into it.
///
/// Only [`crate::Memory::allocate_settled`] makes one, for memory that was never shared with lock-free
/// readers, and the heap does not allocate it again before it is freed. It can be neither copied nor cloned,
/// and [`Exclusive::share`] consumes it.
#[derive(Debug)]
pub struct Exclusive {
    /// The region's [`Region::number`].
    region: u64,
    chunk: Offset,
    words: u64,
}

impl Exclusive {
    pub(crate) fn new(region: &Region, chunk: Offset, words: u64) -> Self {
        Self { region: region.number(), chunk, words }
    }

    /// Where the chunk's payload begins.
    pub fn chunk(&self) -> Offset {
        self.chunk
    }

    /// The chunk's bytes from `at` to `at + len`, for this owner alone.
    ///
    /// # Panics
    /// If they do not lie within the chunk, or the chunk does not lie in `region`.
    pub fn bytes_mut<'a>(&'a mut self, region: &'a Region, at: usize, len: usize) -> &'a mut [u8] {
        assert!(self.region == region.number(), "a chunk of another region");
        let end = at.checked_add(len).filter(|&end| end <= self.words as usize * WORD_BYTES);
        assert!(end.is_some(), "outside of the chunk");
        let words = region.words(self.chunk, self.words as usize);
        // SAFETY: the bytes lie within `words`, which are interior mutable, mapped and initialised
        // while `region` is borrowed. Nobody else touches them: the heap gave the chunk to this
        // owner, which is borrowed mutably, and no lock-free reader ever knew this memory.
        unsafe { std::slice::from_raw_parts_mut(words.as_ptr().cast::<u8>().cast_mut().add(at), len) }
    }

    /// Gives exclusivity up, before the chunk is linked or freed.
    pub fn share(self) -> Offset {
        self.chunk
    }
}
