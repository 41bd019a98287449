//! What a table does when its memory is full: the modes as types (MICA §4.3).

use crate::{
    config::StoreConfig,
    item::ItemState,
    partition::{Partition, Writing},
    restart::Reopen,
    slot::Slot,
    stats::StoreStats,
    store::Engine,
};
use minos_base::SizeClass;
use minos_region::{Memory, Offset, Region, Settled};
use minos_sync::Access;
use std::{collections::HashMap, fmt::Debug};

/// What happens when the memory is full: [`crate::StoreMode`] or [`crate::CacheMode`].
#[expect(private_bounds, reason = "there are no other modes than those of this crate")]
pub trait Mode: Parts + Reopen {
    /// Its name on the command line.
    const NAME: &'static str;
}

/// An item that has memory but is not linked yet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Placed {
    /// Where its header goes.
    pub(crate) item: Offset,
    /// What its slot is to say.
    pub(crate) link: u64,
}

/// What is meant to be linked in a bucket.
pub(crate) enum Linked {
    /// It is, in place of an older item if the bucket was full.
    Done(crate::chain::Place),
    /// There is no room.
    Full,
}

/// The parts in which the modes differ.
pub(crate) trait Parts: Debug + Send + Sync + Sized + 'static {
    /// Twice the items for which there is one bucket, before the index grows.
    const ITEMS_PER_TWO_BUCKETS: u64;

    /// Which layout a region has, for whoever opens it again: seven bytes of text, and one more.
    const LAYOUT: u64;

    /// Whether items may be lost without anybody being told.
    const LOSES_SILENTLY: bool;

    /// Where the items of a partition are: what readers need to know.
    type Space: Copy + Debug + Send + Sync;

    /// What the writer of a partition knows beside that.
    type Room: Debug + Send;

    /// What all partitions share.
    type Common<A: Access>: Debug + Send;

    /// A reader's claim on a large value.
    type Pin: Debug + Send;

    /// Words that a partition needs for itself.
    fn space_words(config: &StoreConfig, partitions: u64) -> u64;

    /// Bytes at the end of the memory that only large values may take.
    fn settled_bytes(config: &StoreConfig) -> u64;

    /// Largest value that lies beside its key, and is read without a lock.
    fn inline_class_max<A: Access>(config: &StoreConfig, memory: &Memory<A>) -> SizeClass;

    /// What all partitions share, at first.
    fn common<A: Access>(config: &StoreConfig) -> Self::Common<A>;

    /// An empty space at `start`; `None` if there is no memory.
    fn create_space<A: Access>(
        memory: &Memory<A>,
        config: &StoreConfig,
        start: Offset,
        partition: usize,
    ) -> Option<(Self::Space, Self::Room)>;

    /// Where the item of a slot is; `None` if it was evicted.
    fn locate(space: &Self::Space, region: &Region, link: u64) -> Option<Offset>;

    /// Whether what was read at [`Parts::locate`] since was still there afterwards.
    fn is_there(space: &Self::Space, region: &Region, link: u64) -> bool;

    /// Memory for an item whose value lies beside its key.
    fn allocate<A: Access>(writing: &mut Writing<'_, Self, A>, words: u64) -> Option<Placed>;

    /// Gives memory back that was not linked, but for the chunk of a large value. The header is written.
    fn abandon<A: Access>(writing: &mut Writing<'_, Self, A>, placed: Placed);

    /// Gives the memory of an item back that was linked and no longer is. It was counted out.
    fn retire<A: Access>(writing: &mut Writing<'_, Self, A>, slot: Slot, item: Offset);

    /// Whether an item of `words` may take the place of the one at `item`.
    fn fits_in_place<A: Access>(writing: &Writing<'_, Self, A>, slot: Slot, item: Offset, words: u64)
    -> bool;

    /// Links a slot in the chain that begins at `head`.
    fn append<A: Access>(writing: &mut Writing<'_, Self, A>, head: Offset, slot: Slot) -> Linked;

    /// Tries to get memory for the index from elsewhere; whether that may have helped.
    fn make_room<A: Access>(writing: &mut Writing<'_, Self, A>) -> bool;

    /// A chunk for a large value, beside the item or around it.
    fn take_large<A: Access>(engine: &Engine<Self, A>, key_bytes: usize, value_bytes: u64)
    -> Option<Settled>;

    /// Words that an item takes at its place: all of it, unless a large value lies elsewhere.
    fn words_beside<A: Access>(key_bytes: usize, value_bytes: u64, engine: &Engine<Self, A>) -> u64;

    /// Byte of such a chunk at which the value begins.
    fn large_value_at(key_bytes: usize) -> usize;

    /// Memory for the item whose large value lies in `chunk`. The key is written.
    fn place_large<A: Access>(
        writing: &mut Writing<'_, Self, A>,
        chunk: Offset,
        key: &[u8],
        value_bytes: u64,
    ) -> Option<Placed>;

    /// Whether the large value of a linked item is still there.
    fn has_large_value<A: Access>(engine: &Engine<Self, A>, item: Offset, state: &ItemState) -> bool;

    /// Header and key of an item with a large value lie in memory that is lent out as plain bytes once it is free.
    const LARGE_HEADERS_ARE_LENT: bool;

    /// Looks at header and key of an item with a large value while they lie still; `None` if `is_linked` says that
    /// there is no such item any more.
    fn look_at_large<A: Access, R>(
        partition: &Partition<Self, A>,
        is_linked: impl FnOnce() -> bool,
        look: impl FnOnce() -> R,
    ) -> Option<R>;

    /// Claims the large value of an item, if `is_linked` still says yes under the lock of the pins.
    fn pin<A: Access>(
        engine: &Engine<Self, A>,
        partition: &Partition<Self, A>,
        item: (Offset, &ItemState),
        is_linked: impl FnOnce() -> bool,
    ) -> Pinning<Self::Pin>;

    /// Ends a claim.
    fn unpin<A: Access>(engine: &Engine<Self, A>, partition: &Partition<Self, A>, pin: &Self::Pin);

    /// Whether a read of this slot is a reason to move the item away from the end of its life.
    fn is_move_due<A: Access>(engine: &Engine<Self, A>, space: &Self::Space, link: u64) -> bool;

    /// Moves an item away from the end of its life.
    fn move_away<A: Access>(writing: &mut Writing<'_, Self, A>, place: crate::chain::Place);

    /// How much of a partition's memory is free.
    fn room_stats<A: Access>(engine: &Engine<Self, A>, partition: &Partition<Self, A>) -> RoomStats;

    /// Adds what only this mode counts.
    fn add_stats<A: Access>(engine: &Engine<Self, A>, stats: &mut StoreStats);

    /// Which memory items may lie in, and how many words each has, for [`crate::check`].
    ///
    /// # Errors
    /// What is wrong with the memory.
    fn check<A: Access>(
        engine: &Engine<Self, A>,
        writings: &[Writing<'_, Self, A>],
    ) -> Result<HashMap<u64, u64>, String>;

    /// Work that may be left over, all of it: for [`crate::check`].
    fn settle_all<A: Access>(writing: &mut Writing<'_, Self, A>);

    /// Work that is due before the next item is looked for: it may move slots about.
    fn settle_debts<A: Access>(writing: &mut Writing<'_, Self, A>);
}

/// How much of a partition's memory is free, in words.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct RoomStats {
    pub(crate) free_words: u64,
    pub(crate) largest_free_words: u64,
}

/// What became of a wish to pin.
pub(crate) enum Pinning<P> {
    /// It is pinned.
    Pinned(Claim<P>),
    /// The item is no longer linked.
    Disturbed,
    /// Its value was evicted.
    Gone,
}

/// A large value that stays where it is, until the pin is taken back.
#[derive(Debug)]
pub(crate) struct Claim<P> {
    pub(crate) pin: P,
    /// The value begins at byte `at` from here.
    pub(crate) start: Offset,
    pub(crate) at: usize,
}
