//! Reads: without a lock, bounded, then under it (MICA §4.3.2).

use crate::{
    candidate::{Attempt, Candidate, bucket_words},
    chain::{WALK_BUCKETS, following},
    claims::HeldClaim,
    item::{HEADER_WORDS, ItemState, ItemView, body},
    mode::Mode,
    partition::Partition,
    parts::Pinning,
    slot::Slot,
    store::Engine,
    turns::ATTEMPTS_MAX,
    versions::{self},
};
use minos_base::{KeyHash, Seconds, SizeClass};
use minos_region::{Offset, Region};
use minos_sync::{Access, tags, words};
use std::sync::atomic::Ordering::Relaxed;

impl<M: Mode, A: Access> Engine<M, A> {
    /// Reads the live item with this key; `None` if there is none.
    ///
    /// `f` sees the item before the engine has checked that no writer interfered. It may run
    /// more than once, so it must discard earlier output first; it must not use the table.
    /// Lengths are right whenever it runs.
    ///
    /// Attempts are bounded. In access modes with a writer's lock, the reader then waits for the
    /// lock, so that no writer can interfere. CREW has no lock: the attempts continue for about a
    /// second, and if the partition's owner writes to that bucket all the time, the result is `None`.
    /// That is counted (`read_abandoned`).
    ///
    /// Values above the optimistic bound are read under a pin.
    ///
    /// The first read of an item, and then one a minute, is recorded (`was_fetched`, `last_access`), unless a
    /// writer is active in the partition at that moment, or only its owner may write to it.
    #[inline]
    pub fn read<R>(
        &self,
        hash: KeyHash,
        key: &[u8],
        now: Seconds,
        mut f: impl FnMut(&ItemView<'_>) -> R,
    ) -> Option<R> {
        let partition = self.partition(hash);
        partition.undisturbed(|| self.attempt(partition, hash, key, now, &mut f))
    }

    /// The size class of the value with this key, from the index alone: the item is not touched.
    ///
    /// Keys are distinguished by their tags only, so the result is rarely the class of another item, or a
    /// class for a missing key. `None` also if writers interfere with every attempt, or in a chain that is
    /// longer than a table makes without colliding keys.
    #[inline]
    pub fn size_class(&self, hash: KeyHash) -> Option<SizeClass> {
        self.tag_match(hash).and_then(Slot::class)
    }

    /// Stage 2 of a lookup: asks for the cache line of the key's item, whose bucket should be near by now.
    #[inline]
    pub fn prefetch_item(&self, hash: KeyHash) {
        let region = self.memory().region();
        let partition = self.partition(hash);
        // No version check: prefetching a line is harmless whatever the slot holds.
        let head = partition.index.bucket_of(region, partition.index.buckets(region), hash);
        if let Some(slot) = chain_tag_match(region, head, hash.tag()) {
            self.prefetch_slot(partition, slot);
        }
    }

    /// Asks for the lines of the item of a slot.
    #[inline]
    pub(crate) fn prefetch_slot(&self, partition: &Partition<M, A>, slot: Slot) {
        let region = self.memory().region();
        if let Some(item) = M::locate(&partition.space, region, slot.link()) {
            self.prefetch_lines(item);
        }
    }

    /// Prefetches the lines of an item: header and key, and often the value, lie on one or two.
    #[inline]
    pub(crate) fn prefetch_lines(&self, item: Offset) {
        let region = self.memory().region();
        region.prefetch(item);
        region.prefetch(item.plus(HEADER_WORDS as u64 + 1));
    }

    #[inline]
    fn attempt<R>(
        &self,
        partition: &Partition<M, A>,
        hash: KeyHash,
        key: &[u8],
        now: Seconds,
        f: &mut impl FnMut(&ItemView<'_>) -> R,
    ) -> Attempt<R> {
        let candidate = self.candidate(partition, hash, key, now);
        candidate.and_then(|candidate| self.finish(partition, hash, key, candidate, now, f))
    }

    /// The linked item with this key.
    #[inline]
    pub(crate) fn candidate<'a>(
        &'a self,
        partition: &'a Partition<M, A>,
        hash: KeyHash,
        key: &[u8],
        now: Seconds,
    ) -> Attempt<(Candidate<'a>, ItemState)> {
        let region = self.memory().region();
        let index = &partition.index;
        let buckets = index.buckets(region);
        let mut bucket = bucket_words(region, index.bucket_of(region, buckets, hash));
        let version = &bucket[0];
        let Some(seen) = versions::begin_read::<A>(version) else { return Attempt::Disturbed };
        let mut next = following(u64::from(seen.payload()) << 32);
        loop {
            for word in tags::matching(bucket, hash.tag()) {
                let (slot, cell) = (Slot(bucket[word].load(Relaxed)), &bucket[word]);
                let Some(item) = M::locate(&partition.space, region, slot.link()) else { continue };
                let candidate = Candidate { version, seen, slot, cell, item };
                if let Some(state) = self.header_for(partition, &candidate, key, now) {
                    return Attempt::Found((candidate, state));
                }
            }
            // An unchanged chain has an end; a walk that races with a split may continue into other chains.
            if !versions::still::<A>(version, seen) {
                return Attempt::Disturbed;
            }
            let Some(spare) = next else {
                // The key may have moved to a new bucket while this one was searched.
                let is_sure = !A::IS_SHARED || index.buckets(region) == buckets;
                return if is_sure { Attempt::Missing } else { Attempt::Disturbed };
            };
            bucket = bucket_words(region, spare);
            next = following(bucket[0].load(Relaxed));
        }
    }

    /// The header of a candidate, if its key is this one; both may be garbage until it is known that the
    /// candidate [`Self::is_linked`].
    #[inline]
    pub(crate) fn header_for(
        &self,
        partition: &Partition<M, A>,
        candidate: &Candidate<'_>,
        key: &[u8],
        now: Seconds,
    ) -> Option<ItemState> {
        if A::IS_SHARED
            && M::LARGE_HEADERS_ARE_LENT
            && candidate.slot.class_index() > self.inline_class_max.index()
        {
            return self.header_of_large(partition, candidate, key, now);
        }
        self.garbage_or_header(candidate, key, now)
    }

    /// The same where memory may be lent out as plain bytes once the item is unlinked: a late reader without
    /// a lock would race with the writes to those bytes.
    #[cold]
    fn header_of_large(
        &self,
        partition: &Partition<M, A>,
        candidate: &Candidate<'_>,
        key: &[u8],
        now: Seconds,
    ) -> Option<ItemState> {
        let is_linked = || self.is_linked(partition, candidate);
        M::look_at_large(partition, is_linked, || self.garbage_or_header(candidate, key, now))?
    }

    #[inline]
    fn garbage_or_header(&self, candidate: &Candidate<'_>, key: &[u8], now: Seconds) -> Option<ItemState> {
        let key_words = words::words_for(key.len());
        // One check that all words lie within the region; they need not if the slot was being written.
        let words = self.memory().region().try_words(candidate.item, HEADER_WORDS + key_words)?;
        let (header, body) = words.split_first_chunk()?;
        let state = ItemState::of(header, now);
        (state.key_bytes() == key.len() && words::eq_key(body, key)).then_some(state)
    }

    /// True if all words read of a candidate are still consistent.
    #[inline]
    pub(crate) fn is_linked(&self, partition: &Partition<M, A>, candidate: &Candidate<'_>) -> bool {
        // Without other threads, nothing can have changed meanwhile.
        !A::IS_SHARED
            || versions::still::<A>(candidate.version, candidate.seen)
                && M::is_there(&partition.space, self.memory().region(), candidate.slot.link())
    }

    /// Calls `f` with a candidate that has the right key, and checks afterwards that no writer interfered.
    #[inline]
    pub(crate) fn finish<R>(
        &self,
        partition: &Partition<M, A>,
        hash: KeyHash,
        key: &[u8],
        (candidate, state): (Candidate<'_>, ItemState),
        now: Seconds,
        f: &mut impl FnMut(&ItemView<'_>) -> R,
    ) -> Attempt<R> {
        if let Some(unfit) = self.unfit(partition, &candidate, &state) {
            return unfit;
        }
        if candidate.slot.class_index() > self.inline_class_max.index() {
            return self.finish_large(partition, hash, key, now, (state, candidate), f);
        }
        let result = f(&self.view(&candidate, state));
        if !self.is_linked(partition, &candidate) {
            return Attempt::Disturbed;
        }
        self.note_read(partition, (hash, key), &state, &candidate, now);
        Attempt::Found(result)
    }

    /// The reason why a candidate must not be used; on `None` its header is valid, so its
    /// lengths are those of a linked item.
    #[inline]
    pub(crate) fn unfit<T>(
        &self,
        partition: &Partition<M, A>,
        candidate: &Candidate<'_>,
        state: &ItemState,
    ) -> Option<Attempt<T>> {
        if !self.is_linked(partition, candidate) {
            return Some(Attempt::Disturbed);
        }
        (!state.is_live(partition.index.generation(self.memory().region()))).then_some(Attempt::Missing)
    }

    /// A candidate whose value lies beside its key.
    #[inline]
    pub(crate) fn view(&self, candidate: &Candidate<'_>, state: ItemState) -> ItemView<'_> {
        let words = self.memory().region().words(body(candidate.item), state.body_words());
        ItemView::new(state, words, state.key_bytes(), candidate.slot)
    }

    #[cold]
    fn finish_large<R>(
        &self,
        partition: &Partition<M, A>,
        hash: KeyHash,
        key: &[u8],
        now: Seconds,
        (state, candidate): (ItemState, Candidate<'_>),
        f: &mut impl FnMut(&ItemView<'_>) -> R,
    ) -> Attempt<R> {
        let is_linked = || self.is_linked(partition, &candidate);
        let claim = match M::pin(self, partition, (candidate.item, &state), is_linked) {
            Pinning::Pinned(claim) => HeldClaim { engine: self, partition, claim },
            Pinning::Disturbed => return Attempt::Disturbed,
            Pinning::Gone => return Attempt::Missing,
        };
        let result = f(&claim.view(state, candidate.slot));
        drop(claim);
        self.note_read(partition, (hash, key), &state, &candidate, now);
        Attempt::Found(result)
    }

    /// The first slot with the tag of `hash`.
    #[inline]
    fn tag_match(&self, hash: KeyHash) -> Option<Slot> {
        let region = self.memory().region();
        let index = &self.partition(hash).index;
        for _ in 0..ATTEMPTS_MAX {
            let buckets = index.buckets(region);
            let head = index.bucket_of(region, buckets, hash);
            let version = region.word(head);
            let Some(seen) = versions::begin_read::<A>(version) else {
                std::hint::spin_loop();
                continue;
            };
            let slot = chain_tag_match(region, head, hash.tag());
            if versions::still::<A>(version, seen) && (slot.is_some() || index.buckets(region) == buckets) {
                return slot;
            }
        }
        None
    }
}

/// The first slot with this tag, if it lies within the buckets that may be walked without a version check.
#[inline]
fn chain_tag_match(region: &Region, head: Offset, tag: u16) -> Option<Slot> {
    let mut bucket = bucket_words(region, head);
    for _ in 0..WALK_BUCKETS {
        if let Some(word) = tags::matching(bucket, tag).first() {
            return Some(Slot(bucket[word].load(Relaxed)));
        }
        bucket = bucket_words(region, following(bucket[0].load(Relaxed))?);
    }
    None
}
