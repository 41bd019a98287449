//! The words of a region as its readers see them: they can be loaded and not stored.

use crate::offset::Offset;
use minos_sync::{ReadWord, prefetch};
use std::{
    fmt,
    ptr::{self, NonNull},
    slice,
};

/// The words of a region by their places, as readers and as writers see them.
macro_rules! word_access {
    ($word:ty) => {
        /// `count` words from `offset` on.
        ///
        /// # Panics
        /// If they do not lie within the region.
        #[inline]
        pub fn words(&self, offset: Offset, count: usize) -> &[$word] {
            &self.all()[offset.words() as usize..][..count]
        }

        /// As [`Self::words`], for a place that a reader without a lock has read and that may be garbage:
        /// `None` if they do not lie within the region.
        #[inline]
        pub fn try_words(&self, offset: Offset, count: usize) -> Option<&[$word]> {
            self.all().get(offset.words() as usize..)?.get(..count)
        }

        /// All words from `offset` on; `None` if it does not lie within the region.
        #[inline]
        pub fn try_from_on(&self, offset: Offset) -> Option<&[$word]> {
            self.all().get(offset.words() as usize..)
        }

        /// As [`Self::words`], for a number of words that is known beforehand.
        ///
        /// # Panics
        /// If they do not lie within the region.
        #[inline]
        pub fn array<const COUNT: usize>(&self, offset: Offset) -> &[$word; COUNT] {
            self.all()[offset.words() as usize..].first_chunk().expect("within the region")
        }

        /// As [`Self::array`], for a place that a reader without a lock has read and that may be garbage:
        /// `None` if the words do not lie within the region.
        #[inline]
        pub fn try_array<const COUNT: usize>(&self, offset: Offset) -> Option<&[$word; COUNT]> {
            self.all().get(offset.words() as usize..)?.first_chunk()
        }

        /// As [`Self::word`], for a place that may be garbage: `None` if it does not lie within the region.
        #[inline]
        pub fn try_word(&self, offset: Offset) -> Option<&$word> {
            self.all().get(offset.words() as usize)
        }

        /// The word at `offset`.
        ///
        /// # Panics
        /// If it does not lie within the region.
        #[inline]
        pub fn word(&self, offset: Offset) -> &$word {
            &self.all()[offset.words() as usize]
        }
    };
}
pub(crate) use word_access;

/// The words of a mapped region, without the right to store.
///
/// Readers take this, so that they work on a region that another process lets them read only. A reference to it is
/// base and length themselves: they stay in registers, where those behind a reference would be loaded again after each
/// acquire load.
#[repr(transparent)]
pub struct View([ReadWord]);

/// Words that stay mapped as long as this exists.
#[derive(Debug)]
pub(crate) struct Mapped {
    base: NonNull<ReadWord>,
    len_words: usize,
}

// SAFETY: words are shared as atomics, and belong to no thread.
unsafe impl Send for Mapped {}
// SAFETY: as above.
unsafe impl Sync for Mapped {}

impl Mapped {
    /// The `len_words` words from `base` on.
    ///
    /// # Safety
    /// They are mapped, aligned and initialised as long as the value exists.
    pub(crate) const unsafe fn new(base: NonNull<ReadWord>, len_words: usize) -> Self {
        Self { base, len_words }
    }

    #[inline(always)]
    pub(crate) fn view(&self) -> &View {
        // SAFETY: `Mapped::new` was promised it; atomics may be shared.
        let words = unsafe { slice::from_raw_parts(self.base.as_ptr(), self.len_words) };
        // SAFETY: a `View` is such a slice and nothing else.
        unsafe { &*(ptr::from_ref(words) as *const View) }
    }
}

impl View {
    /// Size in words.
    #[inline]
    pub fn len_words(&self) -> u64 {
        self.0.len() as u64
    }

    word_access!(ReadWord);

    /// Asks for the cache line at `offset`; nothing happens if that is outside.
    #[inline]
    pub fn prefetch(&self, offset: Offset) {
        if let Some(word) = self.all().get(offset.words() as usize) {
            prefetch(word);
        }
    }

    #[inline(always)]
    pub(crate) fn all(&self) -> &[ReadWord] {
        &self.0
    }
}

impl fmt::Debug for View {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("View").field("len_words", &self.len_words()).finish_non_exhaustive()
    }
}
