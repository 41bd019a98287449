//! Lock-free reads of one partition, from words that are only loaded (MICA §4.3.2).
//!
//! A [`Reader`] needs a region's [`View`], and where the index and the items lie: nothing of the writer, and no
//! word to store. The engine reads through it, and so can another process that maps the region read only. Its
//! caller retries, counts, records accesses and pins large values, if it may.
//!
//! A reader of a foreign region trusts no word: whatever the region holds, and whenever it changes, a read ends
//! and stays within it. In its own region, garbage from a race leads no farther than versions and lengths allow.

mod stage;

use crate::{
    candidate::{Attempt, Candidate, bucket_words},
    chain::{WALK_BUCKETS, following},
    index::{BUCKET_WORDS, Index},
    item::{HEADER_WORDS, ItemState, ItemView, body},
    places::{Large, Places},
    slot::Slot,
    versions,
};
use minos_base::{KeyHash, Seconds, SizeClass};
use minos_region::{Offset, View};
use minos_sync::{Access, ReadWord, tags, words};
use std::{marker::PhantomData, sync::atomic::Ordering::Relaxed};

/// Attempts of a read before its caller does something else: waits for the writer, or asks it.
pub(crate) const ATTEMPTS_MAX: u32 = 16;

/// Buckets of the longest chain that is walked in a foreign region: where no keys were chosen to collide, a chain
/// has only a few. A chain that this process has made has an end.
pub(crate) const FOREIGN_BUCKETS_MAX: usize = 1 << 10;

/// One partition as its readers see it.
pub(crate) struct Reader<'a, M: Places, A: Access, const IS_FOREIGN: bool = false> {
    pub(crate) region: &'a View,
    pub(crate) index: &'a Index,
    pub(crate) space: &'a M::Space,
    /// Values of larger classes may move or go while they are read, unless their owner is asked to keep them.
    pub(crate) inline_class_max: SizeClass,
    pub(crate) access: PhantomData<A>,
}

/// Where the index and the items of a partition lie.
#[derive(Debug)]
pub(crate) struct Contents<M: Places> {
    pub(crate) index: Index,
    pub(crate) space: M::Space,
}

impl<M: Places, A: Access, const IS_FOREIGN: bool> Clone for Reader<'_, M, A, IS_FOREIGN> {
    #[inline(always)]
    fn clone(&self) -> Self {
        *self
    }
}

impl<M: Places, A: Access, const IS_FOREIGN: bool> Copy for Reader<'_, M, A, IS_FOREIGN> {}

impl<'a, M: Places, A: Access, const IS_FOREIGN: bool> Reader<'a, M, A, IS_FOREIGN> {
    /// The first bucket of the chain of `hash`.
    #[inline(always)]
    pub(crate) fn head(self, hash: KeyHash) -> Offset {
        self.head_among(self.index.buckets(self.region), hash)
    }

    /// The same while there are so many buckets.
    #[inline(always)]
    fn head_among(self, buckets: u64, hash: KeyHash) -> Offset {
        if IS_FOREIGN {
            self.index.seek(self.region, buckets, hash)
        } else {
            self.index.bucket_of(self.region, buckets, hash)
        }
    }

    /// The words of a bucket; `None` if a foreign region refers to one that is not within it.
    #[inline(always)]
    pub(crate) fn bucket(self, at: Offset) -> Option<&'a [ReadWord; BUCKET_WORDS]> {
        if IS_FOREIGN { self.region.try_array(at) } else { Some(bucket_words(self.region, at)) }
    }

    /// True if a value lies apart from its key, or may be written as plain bytes once it is unlinked.
    #[inline(always)]
    pub(crate) fn is_large(self, slot: Slot) -> bool {
        slot.class_index() > self.inline_class_max.index()
    }

    /// The linked item with this key. `header` is [`Reader::header_for`], or takes more care with large items.
    #[inline(always)]
    pub(crate) fn find(
        self,
        hash: KeyHash,
        header: impl Fn(&Candidate<'a>) -> Option<ItemState>,
    ) -> Attempt<(Candidate<'a>, ItemState)> {
        let buckets = self.index.buckets(self.region);
        let Some(mut bucket) = self.bucket(self.head_among(buckets, hash)) else { return Attempt::Disturbed };
        let version = &bucket[0];
        let Some(seen) = versions::begin_read::<A>(version) else { return Attempt::Disturbed };
        let mut first = u64::from(seen.payload()) << 32;
        let mut walked = 0;
        loop {
            for word in tags::matching(bucket, hash.tag()) {
                let (slot, cell) = (Slot(bucket[word].load(Relaxed)), &bucket[word]);
                let Some(item) = M::locate(self.space, self.region, slot) else { continue };
                let candidate = Candidate { version, seen, slot, cell, item };
                if let Some(state) = header(&candidate) {
                    return Attempt::Found((candidate, state));
                }
            }
            // An unchanged chain has an end; a walk that races with a split may continue into other chains.
            if !versions::still::<A>(version, seen) {
                return Attempt::Disturbed;
            }
            let Some(spare) = following(first) else {
                // The key may have moved to a new bucket while this one was searched.
                let is_sure = !A::IS_SHARED || self.index.buckets(self.region) == buckets;
                return if is_sure { Attempt::Missing } else { Attempt::Disturbed };
            };
            walked += 1;
            let Some(words) = self.bucket(spare).filter(|_| !IS_FOREIGN || walked < FOREIGN_BUCKETS_MAX)
            else {
                return Attempt::Disturbed;
            };
            bucket = words;
            first = bucket[0].load(Relaxed);
        }
    }

    /// The header of a candidate, if its key is this one; both may be garbage until it is known that the
    /// candidate [`Reader::is_linked`].
    #[inline(always)]
    pub(crate) fn header_for(self, candidate: &Candidate<'_>, key: &[u8], now: Seconds) -> Option<ItemState> {
        let key_words = words::words_for(key.len());
        // One check that all words lie within the region; they need not if the slot was being written.
        let words = self.region.try_words(candidate.item, HEADER_WORDS + key_words)?;
        let (header, body) = words.split_first_chunk()?;
        let state = ItemState::of(header, now);
        (state.key_bytes() == key.len() && words::eq_key(body, key)).then_some(state)
    }

    /// True if all words read of a candidate are still consistent.
    #[inline(always)]
    pub(crate) fn is_linked(self, candidate: &Candidate<'_>) -> bool {
        // Without other threads, nothing can have changed meanwhile.
        !A::IS_SHARED
            || versions::still::<A>(candidate.version, candidate.seen)
                && M::is_there(self.space, self.region, candidate.slot.link())
    }

    /// The reason why a candidate must not be used; on `None` its header is valid, so its
    /// lengths are those of a linked item.
    #[inline(always)]
    pub(crate) fn unfit<T>(self, candidate: &Candidate<'_>, state: &ItemState) -> Option<Attempt<T>> {
        if !self.is_linked(candidate) {
            return Some(Attempt::Disturbed);
        }
        (!state.is_live(self.index.generation(self.region))).then_some(Attempt::Missing)
    }

    /// A candidate whose value lies beside its key; `None` if a foreign region refers to one that is not within it.
    #[inline(always)]
    fn item(self, candidate: &Candidate<'_>, state: ItemState) -> Option<ItemView<'a>> {
        let (start, count) = (body(candidate.item), state.body_words());
        let words =
            if IS_FOREIGN { self.region.try_words(start, count)? } else { self.region.words(start, count) };
        Some(ItemView::new(state, words, state.key_bytes(), candidate.slot))
    }

    /// Calls `f` with a candidate that has the right key and is not large, and checks afterwards that no
    /// writer interfered.
    #[inline(always)]
    pub(crate) fn finish<R>(
        self,
        candidate: &Candidate<'_>,
        state: ItemState,
        f: &mut impl FnMut(&ItemView<'_>) -> R,
    ) -> Attempt<R> {
        if let Some(unfit) = self.unfit(candidate, &state) {
            return unfit;
        }
        let Some(item) = self.item(candidate, state) else { return Attempt::Disturbed };
        let result = f(&item);
        if self.is_linked(candidate) { Attempt::Found(result) } else { Attempt::Disturbed }
    }

    /// The short way of most reads, to an item that is small, has the right key and no writer beside it. `None` says
    /// nothing: the caller then looks for the key with [`Reader::find`].
    ///
    /// The looks at the version are those of [`Reader::finish`], in its order; only the words are taken at once.
    #[inline(always)]
    pub(crate) fn glance<R>(
        self,
        candidate: &Candidate<'_>,
        key: &[u8],
        now: Seconds,
        f: &mut impl FnMut(&ItemView<'_>) -> R,
    ) -> Option<(R, ItemState)> {
        if self.is_large(candidate.slot) {
            return None;
        }
        let (header, rest) = self.region.try_from_on(candidate.item)?.split_first_chunk()?;
        let state = ItemState::of(header, now);
        if state.key_bytes() != key.len() {
            return None;
        }
        if IS_FOREIGN && candidate.slot.class() != Some(SizeClass::of(state.value_bytes() as u64)) {
            return None;
        }
        // Of garbage the lengths are within the region too; the item is not used before they are known to be right.
        let body = rest.get(..state.body_words())?;
        if !words::eq_key(body, key)
            || !self.is_linked(candidate)
            || !state.is_live(self.index.generation(self.region))
        {
            return None;
        }
        let result = f(&ItemView::new(state, body, key.len(), candidate.slot));
        self.is_linked(candidate).then_some((result, state))
    }

    /// As [`Reader::finish`], for a large value that nobody keeps in place for this reader.
    pub(crate) fn finish_large<R>(
        self,
        hash: KeyHash,
        candidate: &Candidate<'_>,
        state: ItemState,
        f: &mut impl FnMut(&ItemView<'_>) -> R,
    ) -> Attempt<R> {
        let large = M::large(self.region, hash, candidate.item, &state);
        if let Large::Beside = large {
            return self.finish(candidate, state, f);
        }
        if let Some(unfit) = self.unfit(candidate, &state) {
            return unfit;
        }
        let Large::Apart(extent) = large else { return Attempt::Missing };
        let result = f(&extent.view(state, candidate.slot));
        if extent.is_there() && self.is_linked(candidate) {
            Attempt::Found(result)
        } else {
            Attempt::Disturbed
        }
    }

    /// The first item with the tag of `hash` in the first bucket of its chain, where most are. `Missing` if the chain
    /// has no such item; `Disturbed` says nothing.
    #[inline(always)]
    pub(crate) fn first_candidate(self, hash: KeyHash) -> Attempt<Candidate<'a>> {
        let buckets = self.index.buckets(self.region);
        let Some(bucket) = self.bucket(self.head_among(buckets, hash)) else { return Attempt::Disturbed };
        let version = &bucket[0];
        let Some(seen) = versions::begin_read::<A>(version) else { return Attempt::Disturbed };
        let Some(word) = tags::matching(bucket, hash.tag()).first() else {
            let is_sure = seen.payload() == 0
                && versions::still::<A>(version, seen)
                && (!A::IS_SHARED || self.index.buckets(self.region) == buckets);
            return if is_sure { Attempt::Missing } else { Attempt::Disturbed };
        };
        let (slot, cell) = (Slot(bucket[word].load(Relaxed)), &bucket[word]);
        match M::locate(self.space, self.region, slot) {
            Some(item) => Attempt::Found(Candidate { version, seen, slot, cell, item }),
            None => Attempt::Disturbed,
        }
    }

    /// True if at one moment no slot in the chain of `hash` had its tag: there is no such item, in memory or on flash.
    pub(crate) fn is_surely_missing(self, hash: KeyHash) -> Attempt<bool> {
        let buckets = self.index.buckets(self.region);
        let Some(mut bucket) = self.bucket(self.head_among(buckets, hash)) else { return Attempt::Disturbed };
        let version = &bucket[0];
        let Some(seen) = versions::begin_read::<A>(version) else { return Attempt::Disturbed };
        for _ in 0..FOREIGN_BUCKETS_MAX {
            if tags::matching(bucket, hash.tag()).first().is_some() {
                return Attempt::Found(false);
            }
            let Some(spare) = following(bucket[0].load(Relaxed)) else {
                let is_settled =
                    versions::still::<A>(version, seen) && self.index.buckets(self.region) == buckets;
                return if is_settled { Attempt::Found(true) } else { Attempt::Disturbed };
            };
            let Some(words) = self.bucket(spare) else { return Attempt::Disturbed };
            bucket = words;
        }
        Attempt::Found(false)
    }

    /// The first slot with the tag of `hash`; `None` also if writers interfere with every attempt.
    #[inline(always)]
    pub(crate) fn tag_match(self, hash: KeyHash) -> Option<Slot> {
        for _ in 0..ATTEMPTS_MAX {
            let buckets = self.index.buckets(self.region);
            let head = self.head_among(buckets, hash);
            let version = &self.bucket(head)?[0];
            let Some(seen) = versions::begin_read::<A>(version) else {
                std::hint::spin_loop();
                continue;
            };
            let slot = self.chain_tag_match(head, hash.tag());
            if versions::still::<A>(version, seen)
                && (slot.is_some() || self.index.buckets(self.region) == buckets)
            {
                return slot;
            }
        }
        None
    }

    #[inline(always)]
    fn chain_tag_match(self, head: Offset, tag: u16) -> Option<Slot> {
        let mut bucket = self.bucket(head)?;
        for _ in 0..WALK_BUCKETS {
            if let Some(word) = tags::matching(bucket, tag).first() {
                return Some(Slot(bucket[word].load(Relaxed)));
            }
            bucket = self.bucket(following(bucket[0].load(Relaxed))?)?;
        }
        None
    }
}
