//! The writer's parts in which the modes differ, and the types with which they answer.

use crate::{
    chain::Place,
    config::StoreConfig,
    holding::Holding,
    item::ItemState,
    partition::{OutOfMemory, Partition},
    slot::Slot,
    stats::StoreStats,
    store::{Engine, Writing},
};
use minos_base::{
    KeyHash, SizeClass,
    limits::{ITEM_KEY_BYTES_MAX, KEY_BYTES_MAX},
};
use minos_region::{HeapStats, Memory, Offset, Settled};
use minos_sync::Access;
use std::collections::HashMap;

/// An item that has memory but is not linked yet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Placed {
    /// Where its header goes.
    pub(crate) item: Offset,
    /// The link to store in its slot.
    pub(crate) link: u64,
}

/// The writer's parts in which the modes differ.
pub(crate) trait Parts: Holding {
    /// Items per two buckets at which the index grows.
    const ITEMS_PER_TWO_BUCKETS: u64;

    /// The mark of a region's layout, checked when it is reopened: seven bytes of text, and one more.
    const LAYOUT: u64;

    /// True if items may be lost without notice.
    const LOSES_SILENTLY: bool;

    /// Words that a partition needs for itself.
    fn space_words(_: &StoreConfig, _partitions: u64) -> u64 {
        0
    }

    /// Bytes at the end of the memory that only large values may take.
    fn settled_bytes(_: &StoreConfig) -> u64 {
        0
    }

    /// Largest value that lies beside its key, and is read without a lock.
    fn inline_class_max(config: &StoreConfig, memory: &Memory) -> SizeClass;

    /// False while no new items are taken, whatever their sizes.
    #[inline(always)]
    fn takes_more<A: Access>(_: &Engine<Self, A>) -> bool {
        true
    }

    /// True if a new item with so many bytes of key and value is taken; it may still find no memory. What a key has beyond
    /// [`KEY_BYTES_MAX`] counts as its value's, so that whatever has room for the largest value has room for the item.
    #[inline]
    fn takes<A: Access>(engine: &Engine<Self, A>, key_bytes: usize, value_bytes: u64) -> bool {
        let counted = value_bytes + key_bytes.saturating_sub(KEY_BYTES_MAX) as u64;
        key_bytes <= ITEM_KEY_BYTES_MAX && counted <= engine.value_bytes_max() && Self::takes_more(engine)
    }

    /// A linked item of an earlier process was counted.
    fn count_again<A: Access>(_: &Writing<'_, Self, A>, _: Slot, _: &ItemState) {}

    /// The contents of a linked item are about to change in its place. Before they do, in case the process is
    /// killed between.
    #[inline(always)]
    fn changes<A: Access>(_: &mut Writing<'_, Self, A>, _: Slot) {}

    /// A key that has no item in memory is about to get one.
    ///
    /// # Errors
    /// There is no room for what must be remembered.
    #[inline(always)]
    fn shadow<A: Access>(_: &mut Writing<'_, Self, A>, _: KeyHash) -> Result<(), OutOfMemory> {
        Ok(())
    }

    /// The item at this place is about to be unlinked, and its key has no other in memory. Returns where
    /// it is then; `None` if it stays, dead, because it hides records on flash.
    #[inline(always)]
    fn leaves<A: Access>(_: &mut Writing<'_, Self, A>, place: Place) -> Option<Place> {
        Some(place)
    }

    /// True if a dead item must stay where it is.
    #[inline(always)]
    fn is_kept<A: Access>(_: &Writing<'_, Self, A>, _: Place) -> bool {
        false
    }

    /// An item in memory that is dead may live elsewhere: true if its slot names that from now on.
    #[inline(always)]
    fn goes_back<A: Access>(_: &mut Writing<'_, Self, A>, _: Place) -> bool {
        false
    }

    /// Everything stored so far is dead.
    #[inline(always)]
    fn flushes<A: Access>(_: &mut Writing<'_, Self, A>) {}

    /// The initial shared state of all partitions.
    fn common(config: &StoreConfig) -> Self::Common;

    /// An empty space at `start`; `None` if there is no memory.
    fn create_space(
        memory: &Memory,
        config: &StoreConfig,
        start: Offset,
        partition: usize,
    ) -> Option<(Self::Space, Self::Room)>;

    /// Memory for an item whose value lies beside its key.
    fn allocate<A: Access>(writing: &mut Writing<'_, Self, A>, words: u64) -> Option<Placed>;

    /// Frees memory that was never linked, the chunk of a large value too. The header is written.
    fn abandon<A: Access>(writing: &mut Writing<'_, Self, A>, placed: Placed);

    /// Frees the memory of an unlinked item. The counts no longer include it.
    fn retire<A: Access>(writing: &mut Writing<'_, Self, A>, slot: Slot, item: Offset);

    /// True if an item of `words` may replace the one at `item` in its place.
    fn fits_in_place<A: Access>(writing: &Writing<'_, Self, A>, slot: Slot, item: Offset, words: u64)
    -> bool;

    /// Links a slot in the chain that begins at `head`, in place of an older item if the bucket is full.
    ///
    /// # Errors
    /// There is no room.
    fn append<A: Access>(
        writing: &mut Writing<'_, Self, A>,
        head: Offset,
        slot: Slot,
    ) -> Result<Place, OutOfMemory>;

    /// Tries to get memory for the index from elsewhere; returns true if that may have helped.
    fn make_room<A: Access>(_: &mut Writing<'_, Self, A>) -> bool {
        false
    }

    /// Gives back some of the memory that is beyond a lower limit; true if it is to be called again.
    #[inline]
    fn heed_limit<A: Access>(_: &mut Writing<'_, Self, A>) -> bool {
        false
    }

    /// A chunk for a large value, beside the item or around it.
    fn take_large<A: Access>(engine: &Engine<Self, A>, key_bytes: usize, value_bytes: u64)
    -> Option<Settled>;

    /// Words that an item takes at its place: all of it, unless a large value lies elsewhere.
    fn words_beside<A: Access>(key_bytes: usize, value_bytes: u64, engine: &Engine<Self, A>) -> u64;

    /// Most of these words.
    fn item_words_max<A: Access>(_: &Engine<Self, A>) -> u64 {
        u64::MAX
    }

    /// Byte of such a chunk at which the value begins.
    fn large_value_at(key_bytes: usize) -> usize;

    /// Memory for the item whose large value lies in `chunk`, which stays the caller's if there is none. The key is
    /// written.
    fn place_large<A: Access>(
        writing: &mut Writing<'_, Self, A>,
        chunk: Offset,
        key: &[u8],
        value_bytes: u64,
    ) -> Option<Placed>;

    /// True if the large value of a linked item is still there.
    fn has_large_value<A: Access>(_: &Engine<Self, A>, _: Offset, _: &ItemState) -> bool {
        true
    }

    /// Moves an item away from the point of eviction.
    fn move_away<A: Access>(_: &mut Writing<'_, Self, A>, _: Place) {}

    /// How much of a partition's memory is free; what is used is not told.
    fn room_stats<A: Access>(engine: &Engine<Self, A>, partition: &Partition<Self, A>) -> HeapStats;

    /// Large values that were evicted although their items are linked.
    fn large_evictions<A: Access>(_: &Engine<Self, A>) -> u64 {
        0
    }

    /// Adds the counts that only this mode keeps.
    fn add_stats<A: Access>(engine: &Engine<Self, A>, stats: &mut StoreStats);

    /// The chunks that items may lie in, with their words, for [`crate::check`].
    ///
    /// # Errors
    /// The inconsistency found in the memory.
    fn check<A: Access>(
        engine: &Engine<Self, A>,
        writings: &[Writing<'_, Self, A>],
    ) -> Result<HashMap<u64, u64>, String>;

    /// Does all deferred work: for [`crate::check`].
    fn settle_all<A: Access>(_: &mut Writing<'_, Self, A>) {}

    /// Does the deferred work that is due before the next lookup: it may move slots.
    #[inline]
    fn settle_debts<A: Access>(_: &mut Writing<'_, Self, A>) {}
}
