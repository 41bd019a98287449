//! The tier below memory as a type, so that a cache without one has no code for it.

use super::room::FlashRoom;
use crate::{
    chain::Place,
    config::StoreConfig,
    entry::Entry,
    log::Log,
    mode::{Candidates, Lookup},
    partition::OutOfMemory,
    position::PositionBits,
    slot::Slot,
    store::Engine,
    writing::Writing,
};
use minos_base::{KeyHash, Seconds};
use minos_region::Region;
use minos_sync::Access;
use std::{fmt::Debug, marker::PhantomData};

/// Items in logs of their partitions: [`crate::CacheMode`], and [`crate::TieredMode`].
///
/// `B` is the width of the positions in a log, `T` the tier below memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogMode<B: PositionBits, T>(PhantomData<(B, T)>);

/// The tier below memory. Its functions but the first are those of [`crate::parts::Parts`], or log's.
pub(crate) trait Tier: Copy + Debug + Eq + Send + Sync + 'static {
    /// Name of the mode on the command line.
    const NAME: &'static str;

    /// The mark of a region's layout, of seven bytes.
    const LAYOUT: u64;

    /// True if slots may name records on flash.
    const IS_TIERED: bool;

    /// The writer's own state in a partition.
    type Room: Debug + Send;

    /// Items per two buckets at which the index grows.
    const ITEMS_PER_TWO_BUCKETS: u64;

    /// The initial state.
    fn room(config: &StoreConfig) -> Self::Room;

    /// True if the log may evict its oldest segment.
    #[inline(always)]
    fn may_evict<B: PositionBits>(_: &Self::Room, _: &Log<B>, _: &Region) -> bool {
        true
    }

    /// Settles a part of the oldest segment, if flash is behind and an append of `words` needs it soon.
    #[inline(always)]
    fn prepare<B: PositionBits, A: Access>(_: &mut Writing<'_, LogMode<B, Self>, A>, _: u64) {}

    /// An entry was appended.
    #[inline(always)]
    fn appended<B: PositionBits, A: Access>(_: &mut Writing<'_, LogMode<B, Self>, A>) {}

    /// Settles the oldest segment; false if that is not possible.
    #[inline(always)]
    fn make_way<B: PositionBits, A: Access>(_: &mut Writing<'_, LogMode<B, Self>, A>) -> bool {
        false
    }

    #[inline(always)]
    fn changes<B: PositionBits, A: Access>(_: &mut Writing<'_, LogMode<B, Self>, A>, _: Slot) {}

    /// The item of a slot that was unlinked goes.
    #[inline(always)]
    fn retires<B: PositionBits, A: Access>(_: &mut Writing<'_, LogMode<B, Self>, A>, _: Slot) {}

    #[inline(always)]
    fn shadow<B: PositionBits, A: Access>(
        _: &mut Writing<'_, LogMode<B, Self>, A>,
        _: KeyHash,
    ) -> Result<(), OutOfMemory> {
        Ok(())
    }

    #[inline(always)]
    fn leaves<B: PositionBits, A: Access>(
        _: &mut Writing<'_, LogMode<B, Self>, A>,
        place: Place,
    ) -> Option<Place> {
        Some(place)
    }

    #[inline(always)]
    fn is_kept<B: PositionBits, A: Access>(_: &Writing<'_, LogMode<B, Self>, A>, _: Place) -> bool {
        false
    }

    #[inline(always)]
    fn goes_back<B: PositionBits, A: Access>(_: &mut Writing<'_, LogMode<B, Self>, A>, _: Place) -> bool {
        false
    }

    #[inline(always)]
    fn flushes<B: PositionBits, A: Access>(_: &mut Writing<'_, LogMode<B, Self>, A>) {}

    #[inline(always)]
    fn look_again<B: PositionBits, A: Access>(
        _: &Engine<LogMode<B, Self>, A>,
        _: KeyHash,
        _: &[u8],
        _: Seconds,
    ) -> Lookup {
        Lookup::Missing
    }

    #[inline(always)]
    fn candidates<B: PositionBits, A: Access>(_: &Entry<'_, LogMode<B, Self>, A>) -> Candidates {
        Candidates::new()
    }
}

/// Nothing is below memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryOnly;

/// A log on flash is below memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flash;

impl Tier for MemoryOnly {
    const NAME: &'static str = "cache";
    const LAYOUT: u64 = u64::from_le_bytes(*b"cache 2\0");
    const IS_TIERED: bool = false;
    const ITEMS_PER_TWO_BUCKETS: u64 = 9;

    type Room = ();

    fn room(_: &StoreConfig) {}
}

impl Tier for Flash {
    const NAME: &'static str = "tiered";
    const LAYOUT: u64 = u64::from_le_bytes(*b"tiered1\0");
    const IS_TIERED: bool = true;
    /// Most keys are on flash, where a further line of the index costs little.
    const ITEMS_PER_TWO_BUCKETS: u64 = 12;

    type Room = FlashRoom;

    fn room(config: &StoreConfig) -> FlashRoom {
        FlashRoom::new(config.tier)
    }

    fn may_evict<B: PositionBits>(room: &FlashRoom, log: &Log<B>, region: &Region) -> bool {
        let ahead = log.not_before_head(region, room.ahead());
        !ahead.is_before(log.head_end(region, 1)) && room.is_settled(log.head_segment(region))
    }

    fn prepare<B: PositionBits, A: Access>(writing: &mut Writing<'_, LogMode<B, Self>, A>, words: u64) {
        writing.prepare_eviction(words);
    }

    fn appended<B: PositionBits, A: Access>(writing: &mut Writing<'_, LogMode<B, Self>, A>) {
        writing.ring_if_due();
    }

    fn make_way<B: PositionBits, A: Access>(writing: &mut Writing<'_, LogMode<B, Self>, A>) -> bool {
        writing.settle_oldest()
    }

    fn changes<B: PositionBits, A: Access>(writing: &mut Writing<'_, LogMode<B, Self>, A>, slot: Slot) {
        writing.part_from_copy(slot, true);
    }

    fn retires<B: PositionBits, A: Access>(writing: &mut Writing<'_, LogMode<B, Self>, A>, slot: Slot) {
        writing.part_from_copy(slot, false);
    }

    fn shadow<B: PositionBits, A: Access>(
        writing: &mut Writing<'_, LogMode<B, Self>, A>,
        hash: KeyHash,
    ) -> Result<(), OutOfMemory> {
        writing.hide_candidates(hash)
    }

    fn leaves<B: PositionBits, A: Access>(
        writing: &mut Writing<'_, LogMode<B, Self>, A>,
        place: Place,
    ) -> Option<Place> {
        writing.leave(place)
    }

    fn is_kept<B: PositionBits, A: Access>(writing: &Writing<'_, LogMode<B, Self>, A>, place: Place) -> bool {
        writing.is_hiding(place)
    }

    fn goes_back<B: PositionBits, A: Access>(
        writing: &mut Writing<'_, LogMode<B, Self>, A>,
        place: Place,
    ) -> bool {
        writing.go_back(place)
    }

    fn flushes<B: PositionBits, A: Access>(writing: &mut Writing<'_, LogMode<B, Self>, A>) {
        writing.flush_flash();
    }

    fn look_again<B: PositionBits, A: Access>(
        engine: &Engine<LogMode<B, Self>, A>,
        hash: KeyHash,
        key: &[u8],
        now: Seconds,
    ) -> Lookup {
        engine.find_cold(hash, key, now)
    }

    fn candidates<B: PositionBits, A: Access>(entry: &Entry<'_, LogMode<B, Self>, A>) -> Candidates {
        entry.candidates()
    }
}
