//! Visits all items in bounded slices, concurrently with writers: by copies of whole chains.

use crate::{
    candidate::Attempt,
    chain::{self, WALK_BUCKETS},
    index::SLOTS,
    item::{ItemState, body},
    mode::Mode,
    places::Places,
    reader::Reader,
    store::Engine,
    versions,
};
use minos_base::{Seconds, limits::KEY_BYTES_MAX};
use minos_region::Offset;
use minos_sync::{
    Access,
    words::{append_to, words_for},
};

/// Slots of a chain that are copied before the next version check.
const WALK_SLOTS: usize = WALK_BUCKETS * SLOTS;

impl<M: Mode, A: Access> Engine<M, A> {
    /// Calls `f` for the live items in up to `buckets_max` chains of a partition, from `cursor` on, which is
    /// 0 at first. Returns the next cursor, `None` after the last chain.
    ///
    /// Items that exist throughout are visited at least once; some are visited twice if the index grows
    /// meanwhile. Writers are not blocked, and `f` may use the table: it sees a consistent copy of a chain.
    ///
    /// # Panics
    /// If there is no such partition.
    pub fn visit(
        &self,
        partition: usize,
        cursor: u64,
        buckets_max: usize,
        now: Seconds,
        mut f: impl FnMut(&[u8], &ItemState),
    ) -> Option<u64> {
        let partition = &self.partitions[partition];
        let reader = self.reader(partition);
        let buckets = reader.index.buckets(reader.region);
        let end = buckets.min(cursor.saturating_add(buckets_max as u64));
        let mut copy = ChainCopy::default();
        for number in cursor..end {
            let head = reader.index.bucket(reader.region, number);
            if partition.undisturbed(|| reader.copy_chain(head, now, &mut copy)).is_none() {
                copy.clear();
            }
            copy.items().for_each(|(key, state)| f(key, state));
        }
        (end < buckets).then_some(end)
    }
}

impl<M: Places, A: Access> Reader<'_, M, A> {
    /// Copies the keys and headers of the live items of a chain, all of one moment.
    fn copy_chain(self, head: Offset, now: Seconds, copy: &mut ChainCopy) -> Attempt<()> {
        copy.clear();
        let version = self.region.word(head);
        let Some(seen) = versions::begin_read::<A>(version) else { return Attempt::Disturbed };
        let generation = self.index.generation(self.region);
        for (at, place) in chain::places(self.region, head).enumerate() {
            if at % WALK_SLOTS == WALK_SLOTS - 1 && !versions::still::<A>(version, seen) {
                return Attempt::Disturbed;
            }
            let slot = place.slot(self.region);
            let Some(item) = M::locate(self.space, self.region, slot) else { continue };
            // An impossible item is being written, which the final check detects; otherwise it is left out.
            let Some(state) = self.copy_key(item, now, &mut copy.keys) else { continue };
            // Items evicted while their key was copied are left out.
            if M::is_there(self.space, self.region, slot.link()) && state.is_live(generation) {
                let end = copy.keys.len();
                copy.items.push((end - state.key_bytes()..end, state));
            }
        }
        if versions::still::<A>(version, seen) { Attempt::Found(()) } else { Attempt::Disturbed }
    }

    /// The header of an item whose key is appended to `keys`; `None` if it cannot be one.
    fn copy_key(self, item: Offset, now: Seconds, keys: &mut Vec<u8>) -> Option<ItemState> {
        let state = ItemState::try_load(self.region, item, now)?;
        let words = self.region.try_words(body(item), words_for(state.key_bytes()))?;
        if state.key_bytes() > KEY_BYTES_MAX {
            return None;
        }
        append_to(words, 0, state.key_bytes(), keys);
        Some(state)
    }
}

/// A copy of one chain's items for the visitor; empty if its writer does not finish.
#[derive(Default)]
struct ChainCopy {
    keys: Vec<u8>,
    /// The range of each key in `keys`, and the item's state.
    items: Vec<(std::ops::Range<usize>, ItemState)>,
}

impl ChainCopy {
    fn clear(&mut self) {
        self.keys.clear();
        self.items.clear();
    }

    fn items(&self) -> impl Iterator<Item = (&[u8], &ItemState)> {
        self.items.iter().map(|(key, state)| (&self.keys[key.clone()], state))
    }
}
