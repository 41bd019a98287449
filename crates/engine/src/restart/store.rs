//! Store mode: items lie in chunks of the heaps.

use super::{findings::Survey, reopen::Reopen};
use crate::{
    config::StoreConfig,
    item::{ItemState, item_words},
    slot::Slot,
    store::Writing,
    store_mode::StoreMode,
};
use minos_region::{ChunkKind, Heap, Memory, Offset};
use minos_sync::Access;

impl Reopen for StoreMode {
    /// Which of them a heap has handed out.
    type Entries = ();

    fn find_space<A: Access>(
        memory: &Memory<A>,
        _: &StoreConfig,
        _: Offset,
        partition: usize,
    ) -> Option<((), Heap)> {
        Some(((), memory.partition_heap(partition)))
    }

    fn scanned(_: &Heap) -> u64 {
        0
    }

    fn set_scanned(_: &mut Heap, _: u64) {}

    fn entries<A: Access>(_: &Writing<'_, Self, A>, _: &mut Survey) -> Result<(), String> {
        Ok(())
    }

    fn room_words<A: Access>((): &(), writing: &Writing<'_, Self, A>, _: u64, item: Offset) -> u64 {
        let region = writing.region();
        let is_inside = item.words() > 0 && region.try_words(item.minus(1), 1).is_some();
        // Only the tag can be checked here; rebuilding the heap checks the rest.
        if is_inside { Memory::<A>::chunk_words(region, item) } else { 0 }
    }

    fn claim<A: Access>(
        (): &mut (),
        writing: &Writing<'_, Self, A>,
        survey: &mut Survey,
        (slot, item, state): (Slot, Offset, &ItemState),
    ) -> Result<bool, &'static str> {
        let is_inline = slot.class_index() <= writing.engine.inline_class_max.index();
        let partition = writing.partition.number;
        let kind = if is_inline { ChunkKind::Shared { partition } } else { ChunkKind::Settled };
        survey.keep(item, item_words(state.key_bytes(), state.value_bytes() as u64), kind);
        Ok(true)
    }

    fn finish<A: Access>((): (), _: &Writing<'_, Self, A>, _: &mut Survey) -> Result<(), String> {
        Ok(())
    }
}
