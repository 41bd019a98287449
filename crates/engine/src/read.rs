//! Reads by the owner: a [`Reader`]'s, bounded, then under the writer's lock, with what is recorded of them.

use crate::{
    candidate::{Attempt, Candidate},
    holding::{Claim, HeldClaim},
    item::{ItemState, ItemView},
    mode::Mode,
    partition::Partition,
    reader::Reader,
    slot::Slot,
    store::Engine,
};
use minos_base::{KeyHash, Seconds, SizeClass};
use minos_sync::Access;

impl<M: Mode, A: Access> Engine<M, A> {
    /// Reads the live item with this key; `None` if there is none.
    ///
    /// `f` sees the item before the engine has checked that no writer interfered. It may run
    /// more than once, so it must discard earlier output first; it must not use the table.
    /// Lengths are right whenever it runs.
    ///
    /// Attempts are bounded. In CRCW the reader then waits for the writer's lock, so that no writer can
    /// interfere. CREW has no lock: the attempts continue for about a second, and if the partition's owner
    /// writes to that bucket all the time, the result is `None`. That is counted (`read_abandoned`).
    ///
    /// Values above the optimistic bound are read under a pin.
    ///
    /// The first read of an item, and then one a minute, is recorded (`was_fetched`, `last_access`), unless a
    /// writer is active in the partition at that moment, or it is another thread's (MICA §4.1.2: reads are counted
    /// by the exclusive writer only).
    ///
    /// # Panics
    /// In EREW, if the partition is not this thread's.
    #[inline]
    pub fn read<R>(
        &self,
        hash: KeyHash,
        key: &[u8],
        now: Seconds,
        mut f: impl FnMut(&ItemView<'_>) -> R,
    ) -> Option<R> {
        let partition = self.readable(self.partition(hash));
        match self.reader(partition).first_candidate(hash) {
            Attempt::Missing => return None,
            Attempt::Disturbed => {}
            Attempt::Found(candidate) => {
                let result = self.glance(partition, (hash, key), &candidate, now, &mut f);
                if result.is_some() {
                    return result;
                }
            }
        }
        self.read_carefully(partition, (hash, key), now, f)
    }

    /// As [`Reader::glance`], and records the read.
    #[inline(always)]
    pub(crate) fn glance<R>(
        &self,
        partition: &Partition<M, A>,
        (hash, key): (KeyHash, &[u8]),
        candidate: &Candidate<'_>,
        now: Seconds,
        f: &mut impl FnMut(&ItemView<'_>) -> R,
    ) -> Option<R> {
        let (result, state) = self.reader(partition).glance(candidate, key, now, f)?;
        self.note_read(partition, (hash, key), &state, candidate, now);
        Some(result)
    }

    /// As [`Engine::read`], in all cases. A cold function, so that the short way keeps its words in registers and has
    /// `f` inlined.
    #[cold]
    pub(crate) fn read_carefully<R>(
        &self,
        partition: &Partition<M, A>,
        (hash, key): (KeyHash, &[u8]),
        now: Seconds,
        mut f: impl FnMut(&ItemView<'_>) -> R,
    ) -> Option<R> {
        partition.undisturbed(|| {
            let candidate = self.candidate(partition, hash, key, now);
            candidate.and_then(|candidate| self.finish(partition, (hash, key), candidate, now, &mut f))
        })
    }

    /// The size class of the value with this key, from the index alone: the item is not touched.
    ///
    /// Keys are distinguished by their tags only, so the result is rarely the class of another item, or a
    /// class for a missing key. `None` also if writers interfere with every attempt, or in a chain that is
    /// longer than a table makes without colliding keys.
    #[inline]
    pub fn size_class(&self, hash: KeyHash) -> Option<SizeClass> {
        self.reader(self.readable(self.partition(hash))).tag_match(hash).and_then(Slot::class)
    }

    /// Stage 1 of a lookup: asks for the cache line of the key's bucket (MICA §4.3.2). A few instructions, which each
    /// protocol has in its own loop.
    #[inline(always)]
    pub fn prefetch_bucket(&self, hash: KeyHash) {
        self.reader_of(hash).prefetch_bucket(hash);
    }

    /// Stage 2 of a lookup: asks for the cache line of the key's item, whose bucket should be near by now.
    #[inline]
    pub fn prefetch_item(&self, hash: KeyHash) {
        self.reader_of(hash).prefetch_item(hash);
    }

    #[inline]
    fn reader_of(&self, hash: KeyHash) -> Reader<'_, M, A> {
        self.reader(self.partition(hash))
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
        self.reader(partition).find(hash, |candidate| self.header_for(partition, candidate, key, now))
    }

    /// As [`Reader::header_for`], with care for large items.
    #[inline]
    pub(crate) fn header_for(
        &self,
        partition: &Partition<M, A>,
        candidate: &Candidate<'_>,
        key: &[u8],
        now: Seconds,
    ) -> Option<ItemState> {
        let reader = self.reader(partition);
        if A::IS_SHARED && M::LARGE_HEADERS_ARE_LENT && reader.is_large(candidate.slot) {
            return self.header_of_large(partition, *candidate, key, now);
        }
        reader.header_for(candidate, key, now)
    }

    /// The same where memory may be lent out as plain bytes once the item is unlinked: a late reader without
    /// a lock would race with the writes to those bytes.
    #[cold]
    fn header_of_large(
        &self,
        partition: &Partition<M, A>,
        candidate: Candidate<'_>,
        key: &[u8],
        now: Seconds,
    ) -> Option<ItemState> {
        let reader = self.reader(partition);
        let is_linked = || reader.is_linked(&candidate);
        M::look_at_large(partition, is_linked, || reader.header_for(&candidate, key, now))?
    }

    /// Calls `f` with a candidate that has the right key, checks that no writer interfered, and records the
    /// read.
    #[inline(always)]
    pub(crate) fn finish<R>(
        &self,
        partition: &Partition<M, A>,
        (hash, key): (KeyHash, &[u8]),
        (candidate, state): (Candidate<'_>, ItemState),
        now: Seconds,
        f: &mut impl FnMut(&ItemView<'_>) -> R,
    ) -> Attempt<R> {
        let reader = self.reader(partition);
        if reader.is_large(candidate.slot) {
            return self.read_large(partition, (hash, key), now, f);
        }
        let result = reader.finish(&candidate, state, f);
        if let Attempt::Found(_) = result {
            self.note_read(partition, (hash, key), &state, &candidate, now);
        }
        result
    }

    /// One attempt for a value that is large. Looks for the item again, so that what was found already need
    /// not be kept for this in a read of a small one.
    #[cold]
    fn read_large<R>(
        &self,
        partition: &Partition<M, A>,
        (hash, key): (KeyHash, &[u8]),
        now: Seconds,
        f: &mut impl FnMut(&ItemView<'_>) -> R,
    ) -> Attempt<R> {
        self.candidate(partition, hash, key, now).and_then(|(candidate, state)| {
            self.claim(partition, &candidate, &state).and_then(|claim| {
                let claim = HeldClaim { engine: self, partition, claim };
                let result = f(&claim.view(state, candidate.slot));
                drop(claim);
                self.note_read(partition, (hash, key), &state, &candidate, now);
                Attempt::Found(result)
            })
        })
    }

    pub(crate) fn claim(
        &self,
        partition: &Partition<M, A>,
        candidate: &Candidate<'_>,
        state: &ItemState,
    ) -> Attempt<Claim<M::Pin>> {
        let reader = self.reader(partition);
        if let Some(unfit) = reader.unfit(candidate, state) {
            return unfit;
        }
        if !reader.is_large(candidate.slot) {
            return Attempt::Disturbed;
        }
        M::pin(self, partition, (candidate.item, state), || reader.is_linked(candidate))
    }
}
