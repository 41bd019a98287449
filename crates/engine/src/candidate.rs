//! Items that were found without a lock, before it is known that they are still linked.

use crate::{index::BUCKET_WORDS, slot::Slot, versions::Seen};
use minos_base::SizeClass;
use minos_region::{Offset, View};
use minos_sync::ReadWord;

pub(crate) enum Attempt<T> {
    Found(T),
    Missing,
    /// A writer was there.
    Disturbed,
}

impl Candidate<'_> {
    /// True if the slot is in the first bucket of its chain.
    #[inline]
    pub(crate) fn is_in_first_bucket(&self) -> bool {
        let [first, cell] = [self.version, self.cell].map(|word| std::ptr::from_ref(word).addr());
        cell.wrapping_sub(first) < BUCKET_WORDS * size_of::<ReadWord>()
    }
}

impl<T> Attempt<T> {
    #[inline]
    pub(crate) fn and_then<U>(self, next: impl FnOnce(T) -> Attempt<U>) -> Attempt<U> {
        match self {
            Self::Found(found) => next(found),
            Self::Missing => Attempt::Missing,
            Self::Disturbed => Attempt::Disturbed,
        }
    }
}

/// An item found without a lock, with the data to check that it is still linked.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Candidate<'a> {
    pub(crate) version: &'a ReadWord,
    pub(crate) seen: Seen,
    pub(crate) slot: Slot,
    /// Where the slot was.
    pub(crate) cell: &'a ReadWord,
    pub(crate) item: Offset,
}

/// The candidate that the second stage found for a key.
#[derive(Clone, Copy, Debug)]
pub struct Staged<'a> {
    /// A slot with the key's tag in the first bucket, and its item.
    pub(crate) candidate: Option<Candidate<'a>>,
}

impl Staged<'_> {
    /// The size class of the value, if the key's tag was found in its first bucket: see
    /// [`crate::Engine::size_class`].
    #[inline]
    pub fn size_class(&self) -> Option<SizeClass> {
        self.candidate.and_then(|candidate| candidate.slot.class())
    }
}

/// The words of a bucket, as an array so that walking it needs no further checks.
#[inline]
pub(crate) fn bucket_words(region: &View, bucket: Offset) -> &[ReadWord; BUCKET_WORDS] {
    region.array(bucket)
}
