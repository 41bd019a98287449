//! Lookups that find items in memory, or the records on flash that may be theirs.

use super::{
    cold::{may_be, place_of_twin},
    switches::{Safeguard, is_on},
    tier::{Flash, LogMode, Tier},
};
use crate::{
    candidate::{Attempt, Candidate, bucket_words},
    chain::following,
    entry::Entry,
    item::ItemState,
    log::Twin,
    mode::{Candidates, Lookup, Mode, SEEN_MAX},
    places::Places,
    position::PositionBits,
    reader::Reader,
    slot::Slot,
    store::{Engine, Writing},
    versions,
};
use minos_base::{FlashPlace, FlashSlot, KeyHash, Seconds, growth_bits};
use minos_region::Offset;
use minos_sync::{Access, tags};
use std::sync::atomic::Ordering::Relaxed;

impl<B: PositionBits, A: Access> Engine<LogMode<B, Flash>, A> {
    /// Finds out where the live item of a key is. No lock is taken.
    ///
    /// The answer is that of one moment: a record is never changed, and its page is not used again before the
    /// reader's epoch has passed, so that reading it later gives the value of that moment.
    pub fn find_cold(&self, hash: KeyHash, key: &[u8], now: Seconds) -> Lookup {
        LogMode::look_again(self, hash, key, now)
    }

    /// True if the log of a key's partition evicts, or soon will. No lock is taken.
    pub fn is_full(&self, hash: KeyHash) -> bool {
        self.partition(hash).space.is_moving(self.memory().region())
    }
}

impl<B: PositionBits, A: Access> Entry<'_, LogMode<B, Flash>, A> {
    /// The records that may be those of this key, if memory has no item of it. What needs the old item must not
    /// go on unless there are none: bring it to memory, and try again.
    pub fn candidates(&self) -> Candidates {
        self.writing.candidates(self.hash, self.key)
    }
}

impl<B: PositionBits, T: Tier, A: Access> Writing<'_, LogMode<B, T>, A> {
    pub(crate) fn candidates(&self, hash: KeyHash, key: &[u8]) -> Candidates {
        if self.find(hash, key).is_some() {
            return Candidates::new();
        }
        self.cold_places(hash).map(|(_, slot)| slot).take(SEEN_MAX).collect()
    }
}

impl<B: PositionBits, T: Tier, A: Access> Reader<'_, LogMode<B, T>, A> {
    pub(crate) fn look(
        self,
        hash: KeyHash,
        key: &[u8],
        now: Seconds,
        has_value: impl Fn(Offset, &ItemState) -> bool,
    ) -> Attempt<Lookup> {
        let (region, index) = (self.region, self.index);
        let buckets = index.buckets(region);
        let levels = index.levels(region, buckets);
        let mut bucket = bucket_words(region, index.bucket_of(region, buckets, hash));
        let version = &bucket[0];
        let Some(seen) = versions::begin_read::<A>(version) else { return Attempt::Disturbed };
        let mut first = u64::from(seen.payload()) << 32;
        let mut slots = Candidates::new();
        loop {
            for word in tags::matching(bucket, hash.tag()) {
                let (slot, cell) = (Slot(bucket[word].load(Relaxed)), &bucket[word]);
                if let Some(cold) = FlashSlot::decode(slot.0) {
                    if may_be(cold, hash, levels.clone()) {
                        // More than there is room for are no longer one bucket's.
                        let _ = slots.try_push(cold);
                    }
                    continue;
                }
                let Some(item) = LogMode::<B, T>::locate(self.space, region, slot) else { continue };
                let candidate = Candidate { version, seen, slot, cell, item };
                if let Some(answer) = self.in_memory(&candidate, (hash, key), now, &has_value) {
                    return answer;
                }
            }
            if !versions::still::<A>(version, seen) {
                return Attempt::Disturbed;
            }
            let Some(spare) = following(first) else {
                let is_sure = !A::IS_SHARED || index.buckets(region) == buckets;
                return match (is_sure, slots.is_empty()) {
                    (false, _) => Attempt::Disturbed,
                    (true, true) => Attempt::Missing,
                    (true, false) => Attempt::Found(Lookup::Cold(slots)),
                };
            };
            bucket = bucket_words(region, spare);
            first = bucket[0].load(Relaxed);
        }
    }

    /// The answer, if a candidate in memory has this key: it hides what is on flash.
    fn in_memory(
        self,
        candidate: &Candidate<'_>,
        (hash, key): (KeyHash, &[u8]),
        now: Seconds,
        has_value: &impl Fn(Offset, &ItemState) -> bool,
    ) -> Option<Attempt<Lookup>> {
        let state = self.header_for(candidate, key, now).filter(|_| is_on(Safeguard::Memory))?;
        let is_whole = || !self.is_large(candidate.slot) || has_value(candidate.item, &state);
        Some(match self.unfit(candidate, &state) {
            Some(unfit) => unfit,
            None if is_whole() => Attempt::Found(Lookup::Hot),
            None => self.record_of(candidate, hash),
        })
    }

    /// The record of an item that has lost its large value, if it has one: promotion finds its slot there.
    fn record_of(self, candidate: &Candidate<'_>, hash: KeyHash) -> Attempt<Lookup> {
        let Twin::Same(word) = self.space.copy_of(self.region, candidate.item) else {
            return Attempt::Missing;
        };
        let Some(FlashPlace { page, length }) = place_of_twin(word) else { return Attempt::Missing };
        let growth = growth_bits(hash, self.index.buckets(self.region).ilog2());
        let slot = FlashSlot { tag: hash.tag(), length, growth, page };
        if self.is_linked(candidate) {
            Attempt::Found(Lookup::Cold(Candidates::from_iter([slot])))
        } else {
            Attempt::Disturbed
        }
    }
}
