//! Reads in stages, so that the cache misses of several overlap (MICA §4.3.2, multi-stage prefetching).

use super::Reader;
use crate::{
    candidate::{Candidate, Staged},
    chain::following,
    item::HEADER_WORDS,
    places::Places,
    slot::Slot,
    versions,
};
use minos_base::KeyHash;
use minos_region::Offset;
use minos_sync::{Access, ReadWord, tags};
use std::sync::atomic::Ordering::Relaxed;

impl<'a, M: Places, A: Access, const IS_FOREIGN: bool> Reader<'a, M, A, IS_FOREIGN> {
    /// Stage 1: asks for the key's bucket, the first of its chain.
    #[inline(always)]
    pub(crate) fn prefetch_bucket(self, hash: KeyHash) -> Offset {
        let head = self.head(hash);
        self.region.prefetch(head);
        head
    }

    /// Asks for the lines of the key's item, whose bucket should be near by now.
    #[inline(always)]
    pub(crate) fn prefetch_item(self, hash: KeyHash) {
        // No version check: prefetching a line is harmless whatever the slot holds.
        if let Some(slot) = self.chain_tag_match(self.head(hash), hash.tag()) {
            self.prefetch_slot(slot);
        }
    }

    /// Asks for the lines of the item of a slot.
    #[inline(always)]
    pub(crate) fn prefetch_slot(self, slot: Slot) {
        if let Some(item) = M::locate(self.space, self.region, slot) {
            self.prefetch_lines(item);
        }
    }

    /// Prefetches the lines of an item: header and key, and often the value, lie on one or two.
    #[inline(always)]
    fn prefetch_lines(self, item: Offset) {
        self.region.prefetch(item);
        self.region.prefetch(item.plus(HEADER_WORDS as u64 + 1));
    }

    /// Stage 2: finds the key's tag in the first bucket of its chain, and asks for the item.
    #[inline(always)]
    pub(crate) fn stage(self, head: Offset, hash: KeyHash) -> Staged<'a> {
        let Some(bucket) = self.bucket(head) else { return Staged { candidate: None } };
        let version = &bucket[0];
        let word = tags::matching(bucket, hash.tag()).first().unwrap_or(0);
        let candidate = versions::begin_read::<A>(version).filter(|_| word > 0).and_then(|seen| {
            let (slot, cell) = (Slot(bucket[word].load(Relaxed)), &bucket[word]);
            let item = M::locate(self.space, self.region, slot)?;
            Some(Candidate { version, seen, slot, cell, item })
        });
        match candidate {
            Some(candidate) => self.prefetch_lines(candidate.item),
            // The rest of a chain is walked when the key is read; its first bucket can be asked for now.
            None => {
                if let Some(spare) = following(version.load(Relaxed)) {
                    self.region.prefetch(spare);
                }
            }
        }
        Staged { candidate }
    }

    /// As [`Reader::stage`], for a key that was not in the first bucket of its
    /// chain: the second one is cached by now.
    ///
    /// Only for callers that let nothing be deleted before stage 3: a spare bucket may join another chain
    /// later, and where no versions are kept nothing would show it.
    #[cold]
    pub(crate) fn stage_spare(self, head: Offset, hash: KeyHash) -> Option<Candidate<'a>> {
        let version = &self.bucket(head)?[0];
        let seen = versions::begin_read::<A>(version)?;
        let bucket = self.region.try_array(following(version.load(Relaxed))?)?;
        let cell = &bucket[tags::matching(bucket, hash.tag()).first()?];
        let slot = Slot(cell.load(Relaxed));
        let item = M::locate(self.space, self.region, slot)?;
        self.prefetch_lines(item);
        Some(Candidate { version, seen, slot, cell, item })
    }

    /// True if a candidate with this version was found in the chain of this hash, which is the same now.
    #[inline]
    pub(crate) fn is_chain_of(self, hash: KeyHash, version: &ReadWord) -> bool {
        self.bucket(self.head(hash)).is_some_and(|bucket| std::ptr::eq(&bucket[0], version))
    }

    /// True if a staged candidate may still be linked. Where no versions are kept, only this check shows that
    /// the same thread has deleted, replaced or evicted the item since it was staged.
    #[inline(always)]
    pub(crate) fn may_be_linked(self, candidate: &Candidate<'_>) -> bool {
        let is_there = || M::locate(self.space, self.region, candidate.slot).is_some();
        A::IS_SHARED || candidate.cell.load(Relaxed) == candidate.slot.0 && is_there()
    }
}
