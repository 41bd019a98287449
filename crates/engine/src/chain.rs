//! The chain of buckets behind one version, as readers walk it.
//!
//! The slots of a chain are dense: a slot is only empty if all behind it are. Spare buckets are the
//! links of a chain after its first bucket (bulk chaining, MICA §4.3.3).

use crate::{
    index::{BUCKET_WORDS, SLOTS},
    slot::Slot,
};
use minos_region::{Offset, Region, View};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Buckets of a chain that are walked without a version check.
///
/// A walk that races with a split may wander over spare buckets of other chains; this ends it.
pub(crate) const WALK_BUCKETS: usize = 64;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    /// The first bucket of the chain, whose version covers it.
    pub(crate) head: Offset,
    pub(crate) bucket: Offset,
    /// Word of the bucket, from 1.
    pub(crate) word: usize,
}

impl Place {
    #[inline]
    pub(crate) fn slot(&self, region: &View) -> Slot {
        Slot(region.words(self.bucket, BUCKET_WORDS)[self.word].load(Relaxed))
    }

    #[inline]
    pub(crate) fn cell<'a>(&self, region: &'a Region) -> &'a AtomicU64 {
        &region.words(self.bucket, BUCKET_WORDS)[self.word]
    }
}

/// The bucket that follows in a chain, from the first word of a bucket.
#[inline]
pub(crate) fn following(first_word: u64) -> Option<Offset> {
    let line = first_word >> 32;
    (line != 0).then(|| Offset::from_words(line * BUCKET_WORDS as u64))
}

#[inline]
pub(crate) fn buckets(region: &View, head: Offset) -> impl Iterator<Item = Offset> {
    std::iter::successors(Some(head), |&bucket| following(region.word(bucket).load(Relaxed)))
}

/// The places of all slots in use.
#[inline]
pub(crate) fn places(region: &View, head: Offset) -> impl Iterator<Item = Place> {
    buckets(region, head)
        .flat_map(move |bucket| (1..=SLOTS).map(move |word| Place { head, bucket, word }))
        .take_while(|place| !place.slot(region).is_empty())
}
