//! Store mode: nothing is evicted, and items that do not fit are refused (MICA §4.3.3).

use crate::{
    candidate::Attempt,
    chain::Place,
    config::StoreConfig,
    holding::{Claim, Holding},
    item::{HEADER_WORDS, ItemState, body, item_words},
    mode::Mode,
    partition::{OutOfMemory, Partition},
    parts::{Parts, Placed},
    places::{HasAccess, Places, State},
    relink::{self, Unappended},
    restart::reopen::{Reopen, Survey},
    slot::Slot,
    stats::StoreStats,
    store::{Engine, Writing},
};
use minos_base::SizeClass;
use minos_region::{ChunkKind, Geometry, Heap, HeapStats, Memory, Offset, Settled, View};
use minos_sync::{
    Access, Crcw, Pin, PinTable, Unpinned,
    words::{copy_in, words_for},
};
use std::{collections::HashMap, marker::PhantomData};

/// Never evicts an item: segregated fits and a lossless index (MICA §4.3.3).
///
/// `W` is the access mode of a table of which nothing else is said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoreMode<W = Crcw>(PhantomData<W>);

/// Words of an item's memory that an update in place may leave unused: fewer than make a chunk.
const SLACK_WORDS: u64 = 4;

impl<W: Access> Mode for StoreMode<W> {
    const NAME: &'static str = "store";
}

impl<W: Access> Places for StoreMode<W> {
    type Space = ();

    fn space_at(_: &View, _: (Offset, u64), _: &Geometry, _: u64) -> Option<()> {
        Some(())
    }

    #[inline]
    fn locate((): &(), _: &View, slot: Slot) -> Option<Offset> {
        Some(Offset::from_words(slot.link()))
    }
}

impl<W: Access> HasAccess for StoreMode<W> {
    type Access = W;
}

impl<W: Access> State for StoreMode<W> {
    type Room = Heap;
    type Common = ();
    type Pin = Pin;
}

impl<W: Access> Holding for StoreMode<W> {
    const LARGE_HEADERS_ARE_LENT: bool = true;

    fn look_at_large<A: Access, R>(
        partition: &Partition<Self, A>,
        is_linked: impl FnOnce() -> bool,
        look: impl FnOnce() -> R,
    ) -> Option<R> {
        // Header, key and value are one chunk, which is retired under this lock.
        let _pins = partition.pins.lock();
        is_linked().then(look)
    }

    fn pin<A: Access>(
        _: &Engine<Self, A>,
        partition: &Partition<Self, A>,
        (item, state): (Offset, &ItemState),
        is_linked: impl FnOnce() -> bool,
    ) -> Attempt<Claim<Pin>> {
        let mut pins = partition.pins.lock();
        if !is_linked() {
            return Attempt::Disturbed;
        }
        let pin = pins.pin(item.words());
        Attempt::Found(Claim { pin, start: body(item), at: state.key_bytes() })
    }

    fn unpin<A: Access>(engine: &Engine<Self, A>, partition: &Partition<Self, A>, pin: &Pin) {
        let unpinned = partition.pins.lock().unpin(pin);
        if unpinned == Unpinned::Retired {
            engine.memory().free_settled(Offset::from_words(pin.chunk()));
        }
    }
}

impl<W: Access> Parts for StoreMode<W> {
    const ITEMS_PER_TWO_BUCKETS: u64 = 9;
    const LAYOUT: u64 = u64::from_le_bytes(*b"store 2\0");
    const LOSES_SILENTLY: bool = false;

    fn inline_class_max(config: &StoreConfig, _: &Memory) -> SizeClass {
        SizeClass::of(config.item_optimistic_bytes_max)
    }

    fn common(_: &StoreConfig) {}

    fn create_space(memory: &Memory, _: &StoreConfig, _: Offset, partition: usize) -> Option<((), Heap)> {
        Some(((), memory.partition_heap(partition)))
    }

    fn allocate<A: Access>(writing: &mut Writing<'_, Self, A>, words: u64) -> Option<Placed> {
        let item = writing.engine.memory().allocate_shared(&mut writing.writer.room, words)?;
        Some(Placed { item, link: item.words() })
    }

    fn abandon<A: Access>(writing: &mut Writing<'_, Self, A>, placed: Placed) {
        writing.engine.memory().free(&mut writing.writer.room, placed.item);
    }

    fn retire<A: Access>(writing: &mut Writing<'_, Self, A>, slot: Slot, item: Offset) {
        // Only large values are pinned. The lock comes after the unlinking, see `PinTable`.
        let is_large = slot.class_index() > writing.engine.inline_class_max.index();
        if is_large && writing.partition.pins.lock().retire(item.words()) {
            return;
        }
        writing.engine.memory().free(&mut writing.writer.room, item);
    }

    fn fits_in_place<A: Access>(writing: &Writing<'_, Self, A>, _: Slot, item: Offset, words: u64) -> bool {
        let room = Memory::chunk_words(writing.region(), item);
        words <= room && room - words < SLACK_WORDS
    }

    fn append<A: Access>(
        writing: &mut Writing<'_, Self, A>,
        head: Offset,
        slot: Slot,
    ) -> Result<Place, OutOfMemory> {
        let (engine, partition) = (writing.engine, writing.partition);
        let appended =
            relink::append::<A>(engine.memory(), &partition.index, head, slot, engine.chain_buckets_max);
        appended.map_err(|why| {
            partition.counts.chain_refusals.add(u64::from(why == Unappended::AtLength));
            OutOfMemory
        })
    }

    fn take_large<A: Access>(
        engine: &Engine<Self, A>,
        key_bytes: usize,
        value_bytes: u64,
    ) -> Option<Settled> {
        engine.memory().allocate_settled(item_words(key_bytes, value_bytes))
    }

    fn words_beside<A: Access>(key_bytes: usize, value_bytes: u64, _: &Engine<Self, A>) -> u64 {
        item_words(key_bytes, value_bytes)
    }

    fn large_value_at(key_bytes: usize) -> usize {
        HEADER_WORDS * 8 + key_bytes
    }

    fn place_large<A: Access>(
        writing: &mut Writing<'_, Self, A>,
        chunk: Offset,
        key: &[u8],
        _: u64,
    ) -> Option<Placed> {
        copy_in(writing.region().words(body(chunk), words_for(key.len())), 0, key);
        Some(Placed { item: chunk, link: chunk.words() })
    }

    fn room_stats<A: Access>(engine: &Engine<Self, A>, partition: &Partition<Self, A>) -> HeapStats {
        let memory = engine.memory();
        match A::enter_if_own(&partition.writer) {
            Some(writer) => memory.partition_stats(&writer.room),
            // Only the owner may walk the lists.
            None => memory.partition_counts(partition.number),
        }
    }

    fn add_stats<A: Access>(engine: &Engine<Self, A>, stats: &mut StoreStats) {
        let pinned = |partition: &Partition<Self, A>| PinTable::len(&partition.pins.lock()) as u64;
        stats.pinned = engine.partitions.iter().map(pinned).sum();
    }

    fn check<A: Access>(
        engine: &Engine<Self, A>,
        writings: &[Writing<'_, Self, A>],
    ) -> Result<HashMap<u64, u64>, String> {
        let heaps: Vec<_> = writings.iter().map(|writing| &writing.writer.room).collect();
        let used = engine.memory().check(&heaps)?;
        let chunks: HashMap<_, _> = used.into_iter().map(|(chunk, words)| (chunk.words(), words)).collect();
        for writing in writings {
            let pins = writing.partition.pins.lock();
            if let Some(chunk) = pins.retired().find(|chunk| !chunks.contains_key(chunk)) {
                return Err(format!("retired item {chunk} has lost its chunk"));
            }
        }
        Ok(chunks)
    }
}

impl<W: Access> Reopen for StoreMode<W> {
    /// Which of them a heap has handed out.
    type Entries = ();

    fn find_space(
        memory: &Memory,
        config: &StoreConfig,
        index: Offset,
        partition: usize,
    ) -> Option<((), Heap)> {
        Self::create_space(memory, config, index, partition)
    }

    fn entries<A: Access>(_: &Writing<'_, Self, A>, _: &mut Survey) -> Result<(), String> {
        Ok(())
    }

    fn room_words<A: Access>((): &(), writing: &Writing<'_, Self, A>, _: u64, item: Offset) -> u64 {
        let region = writing.region();
        let is_inside = item.words() > 0 && region.try_words(item.minus(1), 1).is_some();
        // Only the tag can be checked here; rebuilding the heap checks the rest.
        if is_inside { Memory::chunk_words(region, item) } else { 0 }
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
}
