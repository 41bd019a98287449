//! Splits of chains with slots on flash, without reading the device.

use crate::{index::Index, parts::Parts, settled::key_of, slot::Slot, writing::Writing};
use minos_base::FlashSlot;
use minos_sync::Access;

/// Doublings of the table for which a slot on flash says where it goes.
const DOUBLINGS: u32 = 8;

impl<M: Parts, A: Access> Writing<'_, M, A> {
    /// True if a split needs more bits of hashes than the slots on flash have.
    ///
    /// The index then grows no more, and its chains get longer: a store is refused where one is as long as it
    /// may be.
    pub(crate) fn is_past_growth(&self, buckets: u64) -> bool {
        let levels = self.partition.index.levels(self.region(), buckets);
        self.partition.counts.cold.value() > 0 && buckets.ilog2() >= *levels.start() + DOUBLINGS
    }

    /// Deals the slots of the chain that is split: true for those that go to the new bucket. A slot on flash
    /// says itself where it goes.
    pub(crate) fn deal(
        &self,
        buckets: u64,
        slots: impl Iterator<Item = Slot>,
        dealt: &mut Vec<(Slot, bool)>,
    ) {
        let region = self.region();
        let side = |slot: Slot| match FlashSlot::decode(slot.0) {
            Some(cold) => Some((slot, cold.growth_bit(buckets.ilog2()))),
            None => {
                let item = M::locate(&self.partition.space, region, slot)?;
                Some((slot, Index::moves(buckets, self.engine.hash(key_of(self, item)))))
            }
        };
        dealt.extend(slots.filter_map(side));
    }
}
