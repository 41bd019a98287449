//! Cache mode: items lie in logs, large values in extents.

use super::reopen::{Reopen, Survey};
use crate::{
    cache_mode::{EXTENT_HEAD_WORDS, LogRoom, adopt_extent, position, table_len, whole_extent},
    config::StoreConfig,
    item::ItemState,
    log::{Log, LogEntry},
    position::{Position, PositionBits},
    slot::Slot,
    store::Writing,
    tiered::{LogMode, Tier},
};
use minos_region::{ChunkKind, Memory, Offset};
use minos_sync::{Access, words::words_for};

/// One bit for each word of a log from the head on.
#[derive(Debug)]
struct Bits(Vec<u64>);

impl Bits {
    fn new(words: u64) -> Self {
        Self(vec![0; words.div_ceil(64) as usize])
    }

    fn set(&mut self, at: u64) {
        if let Some(word) = self.0.get_mut(at as usize / 64) {
            *word |= 1 << (at % 64);
        }
    }

    fn is_set(&self, at: u64) -> bool {
        self.0.get(at as usize / 64).is_some_and(|word| word >> (at % 64) & 1 == 1)
    }
}

/// Where entries begin in a log, by their distance from the head.
#[derive(Debug)]
pub(crate) struct Entries<B: PositionBits> {
    head: Position<B>,
    begins: Bits,
    linked: Bits,
}

impl<B: PositionBits> Entries<B> {
    fn place(&self, position: Position<B>) -> u64 {
        position.distance_from(self.head)
    }
}

impl<B: PositionBits, T: Tier> Reopen for LogMode<B, T> {
    type Entries = Entries<B>;

    fn find_space(
        memory: &Memory,
        config: &StoreConfig,
        start: Offset,
        _: usize,
    ) -> Option<(Log<B>, LogRoom)> {
        let table_len = table_len::<B>(config.memory_bytes, memory.geometry().partitions);
        let log = Log::open(memory.region(), start, memory.arena_words(), table_len)?;
        Some((log, LogRoom::new(config)))
    }

    fn scanned(room: &mut LogRoom) -> Option<&mut u64> {
        Some(&mut room.scanned)
    }

    fn entries<A: Access>(writing: &Writing<'_, Self, A>, survey: &mut Survey) -> Result<Entries<B>, String> {
        let (log, region) = (&writing.partition.space, writing.region());
        let words = log.used_words(region);
        let mut entries =
            Entries { head: log.head(region), begins: Bits::new(words), linked: Bits::new(words) };
        // Evicted items are gone, and the counts of the last process ended with it.
        log.forget_evicted(region);
        let is_chain = log.live_entries(region, |entry: LogEntry<B>| {
            let place = entries.place(entry.position);
            entries.begins.set(place);
        });
        for segment in log.segment_starts(region) {
            survey.keep(segment, log.segment_words(), ChunkKind::Arena);
        }
        if is_chain { Ok(entries) } else { Err("its log is broken".to_owned()) }
    }

    fn room_words<A: Access>(
        entries: &Entries<B>,
        writing: &Writing<'_, Self, A>,
        link: u64,
        item: Offset,
    ) -> u64 {
        let is_entry = entries.begins.is_set(entries.place(position(link)));
        if is_entry { writing.partition.space.entry_words(writing.region(), item) } else { 0 }
    }

    fn claim<A: Access>(
        entries: &mut Entries<B>,
        writing: &Writing<'_, Self, A>,
        survey: &mut Survey,
        (slot, item, state): (Slot, Offset, &ItemState),
    ) -> Result<bool, &'static str> {
        if !writing.engine.is_inline(state.value_bytes() as u64) {
            let Some(chunk) = whole_extent(writing, item, state) else { return Ok(false) };
            if !survey.extents.insert(chunk) {
                return Err("a large value belongs to two items");
            }
            let words = EXTENT_HEAD_WORDS + words_for(state.value_bytes()) as u64;
            survey.keep(chunk, words, ChunkKind::Settled);
        }
        entries.linked.set(entries.place(position(slot.link())));
        Ok(true)
    }

    fn finish<A: Access>(
        entries: Entries<B>,
        writing: &Writing<'_, Self, A>,
        survey: &mut Survey,
    ) -> Result<(), String> {
        let (log, region) = (&writing.partition.space, writing.region());
        let mut is_right = true;
        // The order of the log is that of the large values, whose own order is not kept.
        log.live_entries(region, |entry| {
            let is_linked = entries.linked.is_set(entries.place(entry.position));
            is_right &= entry.is_dead != is_linked;
            if !is_linked {
                log.kill(region, entry.position);
                return;
            }
            log.revive(region, entry.position);
            let state = ItemState::load(region, entry.payload, 0);
            let is_large = !writing.engine.is_inline(state.value_bytes() as u64);
            is_right &= entry.owns_extent == is_large;
            if is_large {
                adopt_extent(writing, entry.payload, &state);
                log.own_extent(region, entry.payload);
            }
        });
        if is_right || !survey.is_closed { Ok(()) } else { Err("its log contradicts its index".to_owned()) }
    }
}
