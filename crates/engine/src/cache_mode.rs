//! Cache mode: a full log evicts its oldest items, a full bucket its oldest entry (MICA §4.3.1, §4.3.2).
//!
//! An item whose value is large lies in two places: header, key and two more words in the log, the value
//! in an extent outside it. The two words are the extent's identity and offset:
//!
//! ```text
//! header (3 words) | key, rounded up to a word | extent's identity | extent's offset
//! extent: mark | value
//! ```
//!
//! The mark combines the identity and the hash of the key. Evicting an extent clears its mark first, so that
//! another process can detect items without their values, although the items themselves are not touched. A reader
//! of another process looks at the mark before and after it copies the value ([`Places::large`]).

use crate::{
    candidate::Attempt,
    chain::{self, Place},
    config::{Eviction, StoreConfig},
    entry::Entry,
    extents::{ExtentId, ExtentPin, Extents, Outlook, Zone, ZoneRoom},
    holding::{Claim, Holding},
    item::{HEADER_WORDS, ItemState, body, item_words},
    log::{Log, LogEntry, Segments, Twin},
    mode::{Candidates, Lookup, Mode},
    observer::Observer,
    partition::{OutOfMemory, Partition},
    parts::{Parts, Placed},
    places::{Extent, HasAccess, Large, Places, State},
    position::{Position, PositionBits, Wide},
    relink::{self, Unappended},
    settled::key_of,
    slot::Slot,
    stats::StoreStats,
    store::{Engine, Writing},
    tiered::{FlashRoom, FlashSpace, LogMode, MemoryOnly, Tier},
};
use arrayvec::ArrayVec;
use minos_base::{KeyHash, Seconds, SizeClass, limits::KEY_BYTES_MAX};
use minos_region::{Arena, Geometry, HeapStats, Memory, Offset, Region, Settled, View};
use minos_sync::{
    Access, Bell, Crcw, SpinLock, horizon,
    words::{append_to, copy_in, words_for},
};
use std::{
    collections::HashMap,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering::Relaxed},
    },
};

/// Evicts items when the memory is full, as [`Eviction`] selects (MICA §4.3.1, §4.3.2).
pub type CacheMode<B = Wide, W = Crcw> = LogMode<B, MemoryOnly<W>>;

/// Cache lines of a bucket: 21 slots, where those of MICA have 15 (MICA §4.3.2). All but the first are only
/// there while it is needed. A bucket full of items that are all there gets longer: while the index grows, one of a
/// hundred thousand buckets or so is to be split when it has more.
const LINES_MAX: usize = 3;

/// Words behind the key of an item with a large value.
const EXTENT_WORDS: u64 = 2;

/// Words of an extent before the value.
pub(crate) const EXTENT_HEAD_WORDS: u64 = 1;

/// Words of a chunk before its payload.
const TAG_WORDS: u64 = 1;

const EXTENT_HEAD_BYTES: usize = EXTENT_HEAD_WORDS as usize * 8;

/// Segments that a log has from the beginning, so that no partition is left without any.
const SEGMENTS_MIN: usize = 2;

/// Most segments of a log, in even shares of the memory, which have about 64: keys are seldom less evenly
/// spread than that.
const SHARES_MAX: u64 = 4;
const SEGMENTS_PER_SHARE: u64 = 128;

/// Read items move to the tail once less than this fraction (1/8) of the memory is free: early enough that
/// frequently read items are not in the first segment to be evicted.
const SCARCE_PART: u64 = 8;

/// Large values leave for flash once less than this fraction (1/4) of the reserve for them is free.
const LARGE_SCARCE_PART: u64 = 4;

/// A large value for which there may be no room in one piece costs others at most so many times its size.
const EVICTED_FOR_ONE: u64 = 4;

/// The largest segment, in words, as a power of two.
const SEGMENT_BITS_MAX: u32 = 17;
/// Segments of the smallest size that narrow positions can distinguish, as a power of two.
const SEGMENTS_NARROW_BITS: u32 = 5;

impl<B: PositionBits, T: Tier> Mode for LogMode<B, T> {
    const NAME: &'static str = T::NAME;

    #[inline(always)]
    fn look_again<A: Access>(engine: &Engine<Self, A>, hash: KeyHash, key: &[u8], now: Seconds) -> Lookup {
        if !T::IS_TIERED {
            return Lookup::Missing;
        }
        let partition = engine.readable(engine.partition(hash));
        let reader = engine.reader(partition);
        let has_value = |item, state: &ItemState| Self::has_large_value(engine, item, state);
        partition.undisturbed(|| reader.look(hash, key, now, has_value)).unwrap_or(Lookup::Missing)
    }

    #[inline(always)]
    fn lacks_room<A: Access>(engine: &Engine<Self, A>, value_bytes: u64) -> bool {
        T::IS_TIERED
            && !engine.is_inline(value_bytes)
            && engine.common.lacks_room(engine.memory(), value_bytes)
    }

    #[inline(always)]
    fn candidates<A: Access>(entry: &Entry<'_, Self, A>) -> Candidates {
        if !T::IS_TIERED {
            return Candidates::new();
        }
        entry.writing.candidates(entry.hash, entry.key)
    }

    fn forget_candidates<A: Access>(entry: &mut Entry<'_, Self, A>) {
        if T::IS_TIERED {
            entry.writing.forget_candidates(entry.hash);
        }
    }
}

/// State shared by all partitions of a cache.
#[derive(Debug)]
pub(crate) struct CacheCommon {
    /// Locked for large values only, and always after a partition's writer.
    large: SpinLock<LargeValues>,
    eviction: Eviction,
    /// Large values are refused rather than evicted.
    keeps_large: bool,
    /// Words of the largest value that found no room lately.
    large_wanted: AtomicU64,
    /// Calls the thread that moves items to flash.
    bell: OnceLock<Arc<Bell>>,
    /// Flash takes no items: to wait for it is in vain.
    is_flash_stuck: AtomicBool,
    /// A [`FlashSpace`].
    flash_room: AtomicU8,
}

impl CacheCommon {
    /// There is work for the thread that moves items to flash.
    pub(crate) fn ring(&self) {
        self.bell.get().into_iter().for_each(|bell| bell.ring());
    }

    pub(crate) fn is_flash_stuck(&self) -> bool {
        // Relaxed: a hint, read again soon.
        self.is_flash_stuck.load(Relaxed)
    }

    pub(crate) fn set_flash_stuck(&self, is_stuck: bool) {
        self.is_flash_stuck.store(is_stuck, Relaxed);
    }

    pub(crate) fn set_flash_room(&self, room: FlashSpace) {
        self.flash_room.store(room as u8, Relaxed);
    }

    /// True if flash has room for another item.
    fn has_flash_room(&self) -> bool {
        // Relaxed: as above.
        let room = self.flash_room.load(Relaxed);
        if room != FlashSpace::Plenty as u8 {
            self.ring();
        }
        room != FlashSpace::None as u8
    }

    /// Rings this bell from now on, unless there is one.
    pub(crate) fn call_by(&self, bell: Arc<Bell>) {
        let _ = self.bell.set(bell);
    }

    /// True if there is no room for a large value; then it is asked for.
    fn lacks_room(&self, memory: &Memory, value_bytes: u64) -> bool {
        let words = words_of_extent(value_bytes);
        let lacks = memory.stats().largest_free_words < words || !memory.may_use(words, 0);
        if lacks {
            self.ask_for_room(words);
        }
        lacks
    }

    fn ask_for_room(&self, words: u64) {
        self.large_wanted.fetch_max(words, Relaxed);
        self.ring();
    }

    /// Removes the oldest large value whose room may help one of so many words, after so many words were freed for it;
    /// its chunk, to be freed. `None` if there is none: the value is refused, and that should cost no other.
    fn evict_for(&self, memory: &Memory, words: u64, freed_words: u64) -> Option<Offset> {
        let mut large = self.large.lock();
        let rooms = Zone::ALL.map(|zone| {
            let evictable = large.extents.evictable(zone);
            ZoneRoom { counts: memory.zone_counts(zone == Zone::Reserve), evictable }
        });
        let outlooks = rooms.map(|room| room.outlook(words));
        let evictable_words = rooms.iter().map(|room| room.evictable.words).sum();
        let best = outlooks.into_iter().max()?;
        let is_too_dear = best == Outlook::Perhaps && freed_words >= words * EVICTED_FOR_ONE;
        if best == Outlook::Never || is_too_dear || !memory.may_use(words, evictable_words) {
            return None;
        }
        // What is freed below a limit is free everywhere.
        let is_limited = !memory.may_use(words, 0);
        let helps = |zone: &Zone| is_limited || outlooks[*zone as usize] > Outlook::Never;
        let zones: ArrayVec<_, { Zone::ALL.len() }> = Zone::ALL.into_iter().filter(helps).collect();
        large.evict_oldest(memory.region(), &zones)
    }

    /// True if large values should leave memory: one was refused, or little room is left.
    pub(crate) fn wants_room(&self, memory: &Memory) -> bool {
        let all = memory.stats();
        // Relaxed: a hint, read again soon.
        let wanted = self.large_wanted.load(Relaxed);
        // A chunk has a word beside its own.
        if wanted >= all.largest_free_words || !memory.may_use(wanted, 0) {
            return true;
        }
        if wanted > 0 {
            self.large_wanted.store(0, Relaxed);
        }
        // Below a lower limit there is less of both. It may change between the looks at it.
        let share_bytes = memory.limit_bytes().saturating_sub(memory.rest_limit_bytes());
        let scarce_words = share_bytes / 8 / LARGE_SCARCE_PART;
        all.free_words < scarce_words || !memory.may_use(scarce_words, 0)
    }
}

/// Words of a chunk, its tag included.
fn words_of_chunk(region: &Region, chunk: Offset) -> u64 {
    Memory::chunk_words(region, chunk) + TAG_WORDS
}

fn words_of_extent(value_bytes: u64) -> u64 {
    EXTENT_HEAD_WORDS + words_for(value_bytes as usize) as u64
}

/// The large values of all partitions.
#[derive(Debug, Default)]
struct LargeValues {
    extents: Extents,
    /// Evicted values that their partition still counts: only its writer may subtract them.
    uncounted: u64,
    /// Bytes of these.
    uncounted_bytes: u64,
}

impl LargeValues {
    /// Removes the oldest value of these zones; the chunk to be freed.
    fn evict_oldest(&mut self, region: &Region, zones: &[Zone]) -> Option<Offset> {
        let (chunk, bytes) = self.extents.evict_oldest(zones)?;
        // Readers of other processes notice it before the memory is used again: who takes that comes through the
        // lock of the heap, which ends with a release fence. Relaxed for that reason.
        region.word(chunk).store(0, Relaxed);
        self.uncounted += 1;
        self.uncounted_bytes += bytes;
        Some(chunk)
    }
}

/// The writer's own state in a cache's partition, beside its log.
#[derive(Debug)]
pub(crate) struct LogRoom {
    /// An entry on its way to the tail.
    moving: Vec<u64>,
    /// Next bucket to be freed of slots that dangle.
    pub(crate) scanned: u64,
    /// Its way to flash, if there is one.
    pub(crate) tier: FlashRoom,
}

impl LogRoom {
    pub(crate) fn new(config: &StoreConfig) -> Self {
        Self { moving: Vec::new(), scanned: 0, tier: FlashRoom::new(config.tier) }
    }
}

/// Takes segments for one partition from the shared memory.
struct Arenas<'a> {
    memory: &'a Memory,
    large: &'a SpinLock<LargeValues>,
    /// Words that the log has.
    words: u64,
    may_evict: bool,
    may_evict_large: bool,
}

impl Segments for Arenas<'_> {
    fn take(&mut self) -> Option<Offset> {
        loop {
            if let Some(arena) = self.memory.allocate_arena() {
                self.words += self.words();
                return Some(arena.start());
            }
            // All that is beyond a lower limit would be much for one append: sweeps give it back.
            if self.memory.is_rest_over_limit() || !self.evict_large() {
                return None;
            }
        }
    }

    fn give_back(&mut self, segment: Offset) {
        self.memory.free_arena(Arena::from_start(segment));
        self.words = self.words.saturating_sub(self.words());
    }

    fn words(&self) -> u64 {
        self.memory.arena_words()
    }

    fn is_scarce(&self) -> bool {
        // Logs may not take the reserve.
        self.memory.heap_stats().free_words * 8 < self.memory.geometry().memory_bytes / SCARCE_PART
    }

    #[inline]
    fn may_evict(&self) -> bool {
        self.may_evict
    }
}

impl Arenas<'_> {
    /// Evicts the oldest large value outside the reserve if the log is below its even share; false if not.
    fn evict_large(&mut self) -> bool {
        let share_words = self.memory.rest_limit_bytes() / 8 / self.memory.geometry().partitions;
        if self.words >= share_words || !self.may_evict_large {
            return false;
        }
        let evicted = self.large.lock().evict_oldest(self.memory.region(), &[Zone::Rest]);
        evicted.inspect(|chunk| self.memory.free_settled(*chunk)).is_some()
    }
}

/// The writer's access to segments, with the counters of the entries lost meanwhile.
fn arenas<'a, B: PositionBits, T: Tier, A: Access>(
    engine: &'a Engine<LogMode<B, T>, A>,
    partition: &Partition<LogMode<B, T>, A>,
    room: &FlashRoom,
) -> Arenas<'a> {
    let memory = engine.memory();
    let log = &partition.space;
    Arenas {
        memory,
        large: &engine.common.large,
        words: log.segments(memory.region()) * log.segment_words(),
        may_evict: !T::IS_TIERED || room.may_evict(log, memory.region()),
        may_evict_large: !engine.common.keeps_large,
    }
}

/// Counts an entry evicted from its log, and frees its extent.
fn lost<B: PositionBits, T: Tier, A: Access>(
    engine: &Engine<LogMode<B, T>, A>,
    partition: &Partition<LogMode<B, T>, A>,
    (observer, now): (Option<&dyn Observer>, Seconds),
    entry: &LogEntry<B>,
) {
    if entry.is_dead {
        return;
    }
    let region = engine.memory().region();
    let state = ItemState::load(region, entry.payload, now);
    let counts = &partition.counts;
    counts.remove(&state, partition.index.generation(region));
    let is_whole = !entry.owns_extent || release_extent(engine, entry.payload, &state);
    if state.is_flushed(partition.index.generation(region)) {
        counts.flushed.add(1);
    } else if state.is_expired() {
        counts.expire(&state);
    } else if is_whole {
        counts.evict(&state);
    }
    if let Some(observer) = observer {
        tell_lost(engine, observer, entry.payload, &state);
    }
}

/// Tells of an item that was evicted. Its bytes are still there.
#[cold]
fn tell_lost<B: PositionBits, T: Tier, A: Access>(
    engine: &Engine<LogMode<B, T>, A>,
    observer: &dyn Observer,
    item: Offset,
    state: &ItemState,
) {
    let mut key = Vec::with_capacity(state.key_bytes());
    let words = engine.memory().region().words(body(item), words_for(state.key_bytes()));
    append_to(words, 0, state.key_bytes(), &mut key);
    observer.gone(engine.hash(&key), &key);
}

/// Frees the extent of an unlinked item; false if it was evicted before.
fn release_extent<B: PositionBits, T: Tier, A: Access>(
    engine: &Engine<LogMode<B, T>, A>,
    item: Offset,
    state: &ItemState,
) -> bool {
    let id = extent_of(engine.memory().region(), item, state);
    let mut large = engine.common.large.lock();
    let is_whole = large.extents.chunk(id).is_some();
    if !is_whole {
        // The partition has counted it out now.
        large.uncounted -= 1;
        large.uncounted_bytes -= state.value_bytes() as u64;
    }
    let free = large.extents.release(id);
    drop(large);
    if let Some(chunk) = free {
        engine.memory().free_settled(chunk);
    }
    is_whole
}

/// The words that say which extent an item has: the first of them.
fn extent_words(item: Offset, key_bytes: usize) -> Offset {
    body(item).plus(words_for(key_bytes) as u64)
}

fn extent_of(region: &View, item: Offset, state: &ItemState) -> ExtentId {
    // Relaxed: read by the writer, or checked afterwards.
    ExtentId::from_word(region.word(extent_words(item, state.key_bytes())).load(Relaxed))
}

/// The mark in the first word of an extent.
fn extent_mark<B: PositionBits, T: Tier, A: Access>(
    engine: &Engine<LogMode<B, T>, A>,
    id: ExtentId,
    key: &[u8],
) -> u64 {
    mark_of(id, engine.hash(key))
}

fn mark_of(id: ExtentId, hash: KeyHash) -> u64 {
    id.to_word() ^ hash.0
}

/// Adds an extent, and writes down on both sides that the item with this key has it.
fn put_extent<B: PositionBits, T: Tier, A: Access>(
    engine: &Engine<LogMode<B, T>, A>,
    words: Offset,
    (chunk, value_bytes): (Offset, u64),
    key: &[u8],
) {
    let region = engine.memory().region();
    let zone = if engine.memory().is_in_reserve(chunk) { Zone::Reserve } else { Zone::Rest };
    let chunk_words = words_of_chunk(region, chunk);
    let mut large = engine.common.large.lock();
    let id = large.extents.insert((chunk, chunk_words), zone, value_bytes);
    // Under the lock: without it, others may evict the value at once, and its memory is no longer ours.
    region.word(chunk).store(extent_mark(engine, id, key), Relaxed);
    drop(large);
    let [id_word, chunk_word] = region.array(words);
    // Relaxed: no reader comes here before the slot is linked.
    id_word.store(id.to_word(), Relaxed);
    chunk_word.store(chunk.words(), Relaxed);
}

/// The large value of an item stored by another process; `None` if it was evicted.
pub(crate) fn whole_extent<B: PositionBits, T: Tier, A: Access>(
    writing: &Writing<'_, LogMode<B, T>, A>,
    item: Offset,
    state: &ItemState,
) -> Option<Offset> {
    let region = writing.region();
    let [id, chunk] =
        region.array(extent_words(item, state.key_bytes())).each_ref().map(|word| word.load(Relaxed));
    let (chunk, words) =
        (Offset::from_words(chunk), EXTENT_HEAD_WORDS + words_for(state.value_bytes()) as u64);
    let value = region.try_words(chunk, words as usize)?;
    let mark = extent_mark(writing.engine, ExtentId::from_word(id), key_of(writing, item));
    let is_its_own = value[0].load(Relaxed) == mark && mark != 0;
    (is_its_own && chunk.words() > 0 && Memory::chunk_words(region, chunk) >= words).then_some(chunk)
}

/// Adds the large value of an item that another process has stored, as the youngest.
pub(crate) fn adopt_extent<B: PositionBits, T: Tier, A: Access>(
    writing: &Writing<'_, LogMode<B, T>, A>,
    item: Offset,
    state: &ItemState,
) {
    let region = writing.region();
    let words = extent_words(item, state.key_bytes());
    let chunk = Offset::from_words(region.word(words.plus(1)).load(Relaxed));
    put_extent(writing.engine, words, (chunk, state.value_bytes() as u64), key_of(writing, item));
}

pub(crate) fn position<B: PositionBits>(link: u64) -> Position<B> {
    Position::from_words(link)
}

impl<B: PositionBits, T: Tier> Places for LogMode<B, T> {
    const IS_TIERED: bool = T::IS_TIERED;

    type Space = Log<B>;

    fn space_at(
        region: &View,
        (start, words): (Offset, u64),
        geometry: &Geometry,
        arena_words: u64,
    ) -> Option<Log<B>> {
        let table_len = table_len::<B>(geometry.memory_bytes, geometry.partitions);
        if words < Log::<B>::words(table_len) {
            return None;
        }
        Log::find(region, start, arena_words, table_len)
    }

    #[inline]
    fn locate(log: &Log<B>, region: &View, slot: Slot) -> Option<Offset> {
        if T::IS_TIERED && slot.is_on_flash() {
            return None;
        }
        log.locate(region, position(slot.link()))
    }

    fn is_old(log: &Log<B>, region: &View, link: u64) -> bool {
        log.is_closer_to_head(region, position(link))
    }

    fn large<'a>(region: &'a View, hash: KeyHash, item: Offset, state: &ItemState) -> Large<'a> {
        // Relaxed: the words of a linked item, or garbage.
        let words = region.try_array::<2>(extent_words(item, state.key_bytes()));
        let Some([id, chunk]) = words.map(|words| words.each_ref().map(|word| word.load(Relaxed))) else {
            return Large::Gone;
        };
        let expected = mark_of(ExtentId::from_word(id), hash);
        let words = words_of_extent(state.value_bytes() as u64) as usize;
        match region.try_words(Offset::from_words(chunk), words) {
            Some(words @ [mark, ..]) if expected != 0 && horizon::look(mark) == expected => {
                Large::Apart(Extent { mark, expected, words, at: EXTENT_HEAD_BYTES })
            }
            _ => Large::Gone,
        }
    }

    #[inline]
    fn is_there(log: &Log<B>, region: &View, link: u64) -> bool {
        log.is_there(region, position(link))
    }
}

impl<B: PositionBits, T: Tier> HasAccess for LogMode<B, T> {
    type Access = T::Access;
}

impl<B: PositionBits, T: Tier> State for LogMode<B, T> {
    type Room = LogRoom;
    type Common = CacheCommon;
    type Pin = ExtentPin;
}

impl<B: PositionBits, T: Tier> Holding for LogMode<B, T> {
    fn pin<A: Access>(
        engine: &Engine<Self, A>,
        _: &Partition<Self, A>,
        (item, state): (Offset, &ItemState),
        is_linked: impl FnOnce() -> bool,
    ) -> Attempt<Claim<ExtentPin>> {
        let id = extent_of(engine.memory().region(), item, state);
        let mut large = engine.common.large.lock();
        if !is_linked() {
            return Attempt::Disturbed;
        }
        match large.extents.pin(id) {
            Some(pin) => Attempt::Found(Claim { start: pin.chunk(), at: EXTENT_HEAD_BYTES, pin }),
            None => Attempt::Missing,
        }
    }

    fn unpin<A: Access>(engine: &Engine<Self, A>, _: &Partition<Self, A>, pin: &ExtentPin) {
        let free = engine.common.large.lock().extents.unpin(pin);
        if let Some(chunk) = free {
            engine.memory().free_settled(chunk);
        }
    }

    #[inline(always)]
    fn is_move_due<A: Access>(engine: &Engine<Self, A>, log: &Log<B>, link: u64) -> bool {
        let region = engine.memory().region();
        match engine.common.eviction {
            Eviction::Fifo => false,
            Eviction::ApproxLru => log.is_closer_to_head(region, position(link)),
            Eviction::Lru => log.is_before_tail_segment(region, position(link)),
        }
    }
}

impl<B: PositionBits, T: Tier> Parts for LogMode<B, T> {
    const ITEMS_PER_TWO_BUCKETS: u64 = T::ITEMS_PER_TWO_BUCKETS;
    const LAYOUT: u64 = T::LAYOUT | (B::BITS as u64) << 56;
    const LOSES_SILENTLY: bool = true;

    fn space_words(config: &StoreConfig, partitions: u64) -> u64 {
        Log::<B>::words(table_len::<B>(config.memory_bytes, partitions))
    }

    fn settled_bytes(config: &StoreConfig) -> u64 {
        config.reserve_bytes()
    }

    fn inline_class_max(config: &StoreConfig, memory: &Memory) -> SizeClass {
        // With a key of memcached's, an entry takes at most an eighth of a segment.
        let entry_bytes_max = memory.arena_words() / 8 * 8;
        let value_bytes_max = entry_bytes_max - (HEADER_WORDS * 8 + KEY_BYTES_MAX + 8) as u64;
        let largest = SizeClass::of(value_bytes_max);
        let largest = SizeClass::from_index(largest.index() - 1).unwrap_or(largest);
        SizeClass::of(config.item_optimistic_bytes_max).min(largest)
    }

    fn common(config: &StoreConfig) -> CacheCommon {
        CacheCommon {
            large: SpinLock::new(LargeValues::default()),
            eviction: config.eviction,
            keeps_large: T::IS_TIERED && config.tier.is_lossless,
            large_wanted: AtomicU64::new(0),
            bell: OnceLock::new(),
            is_flash_stuck: AtomicBool::new(false),
            flash_room: AtomicU8::new(FlashSpace::Plenty as u8),
        }
    }

    fn create_space(
        memory: &Memory,
        config: &StoreConfig,
        start: Offset,
        _: usize,
    ) -> Option<(Log<B>, LogRoom)> {
        let partitions = memory.geometry().partitions;
        let table_len = table_len::<B>(config.memory_bytes, partitions);
        let log = Log::create(memory.region(), start, memory.arena_words(), table_len);
        let large = SpinLock::new(LargeValues::default());
        let mut arenas = Arenas { memory, large: &large, words: 0, may_evict: true, may_evict_large: false };
        for _ in 0..SEGMENTS_MIN {
            log.extend(memory.region(), &mut arenas);
        }
        (log.segments(memory.region()) > 0).then(|| (log, LogRoom::new(config)))
    }

    fn allocate<A: Access>(writing: &mut Writing<'_, Self, A>, words: u64) -> Option<Placed> {
        if T::IS_TIERED {
            writing.prepare_eviction(words);
            if let Some(placed) = append(writing, words) {
                writing.ring_if_due();
                return Some(placed);
            }
            if words > writing.partition.space.entry_words_max() {
                return None;
            }
            writing.engine.common.ring();
            return if writing.settle_oldest() { append(writing, words) } else { None };
        }
        append(writing, words)
    }

    #[inline(always)]
    fn takes_more<A: Access>(engine: &Engine<Self, A>) -> bool {
        !T::IS_TIERED || engine.common.has_flash_room()
    }

    fn count_again<A: Access>(writing: &Writing<'_, Self, A>, slot: Slot, state: &ItemState) {
        let (region, log) = (writing.region(), writing.partition.space);
        let copy = Self::locate(&log, region, slot).map(|item| log.copy_of(region, item));
        if T::IS_TIERED && matches!(copy, Some(Twin::Same(_))) {
            writing.partition.counts.tier.count_twin(state, true);
        }
    }

    #[inline(always)]
    fn changes<A: Access>(writing: &mut Writing<'_, Self, A>, slot: Slot) {
        if T::IS_TIERED {
            writing.part_from_copy(slot, true);
        }
    }

    #[inline(always)]
    fn shadow<A: Access>(writing: &mut Writing<'_, Self, A>, hash: KeyHash) -> Result<(), OutOfMemory> {
        if T::IS_TIERED { writing.hide_candidates(hash) } else { Ok(()) }
    }

    #[inline(always)]
    fn leaves<A: Access>(writing: &mut Writing<'_, Self, A>, place: Place) -> Option<Place> {
        if T::IS_TIERED { writing.leave(place) } else { Some(place) }
    }

    #[inline(always)]
    fn is_kept<A: Access>(writing: &Writing<'_, Self, A>, place: Place) -> bool {
        T::IS_TIERED && writing.is_hiding(place)
    }

    #[inline(always)]
    fn goes_back<A: Access>(writing: &mut Writing<'_, Self, A>, place: Place) -> bool {
        T::IS_TIERED && writing.go_back(place)
    }

    #[inline(always)]
    fn flushes<A: Access>(writing: &mut Writing<'_, Self, A>) {
        if T::IS_TIERED {
            writing.flush_flash();
        }
    }

    fn abandon<A: Access>(writing: &mut Writing<'_, Self, A>, placed: Placed) {
        let region = writing.region();
        let state = ItemState::load(region, placed.item, 0);
        if !writing.engine.is_inline(state.value_bytes() as u64) {
            // Unless another partition has evicted it meanwhile.
            release_extent(writing.engine, placed.item, &state);
        }
        writing.partition.space.kill(region, position(placed.link));
    }

    fn retire<A: Access>(writing: &mut Writing<'_, Self, A>, slot: Slot, item: Offset) {
        let (region, partition) = (writing.region(), writing.partition);
        if T::IS_TIERED {
            writing.part_from_copy(slot, false);
        }
        if slot.class_index() > writing.engine.inline_class_max.index() {
            let state = ItemState::load(region, item, 0);
            release_extent(writing.engine, item, &state);
        }
        partition.space.kill(region, position(slot.link()));
    }

    fn fits_in_place<A: Access>(
        writing: &Writing<'_, Self, A>,
        slot: Slot,
        item: Offset,
        words: u64,
    ) -> bool {
        let log = &writing.partition.space;
        // An item to be moved to the tail is appended again instead.
        words <= log.entry_words(writing.region(), item)
            && !Self::is_move_due(writing.engine, log, slot.link())
    }

    fn append<A: Access>(
        writing: &mut Writing<'_, Self, A>,
        head: Offset,
        slot: Slot,
    ) -> Result<Place, OutOfMemory> {
        let region = writing.region();
        let index = &writing.partition.index;
        let chain_max = writing.engine.chain_buckets_max;
        let append = |lines_max| relink::append::<A>(writing.engine.memory(), index, head, slot, lines_max);
        let appended = match append(if T::IS_TIERED { chain_max } else { LINES_MAX }) {
            // A slot on flash is worth more than the oldest segment in memory.
            Err(Unappended::NoMemory) if T::IS_TIERED && Self::make_room(writing) => append(chain_max),
            appended => appended,
        };
        if let Ok(place) = appended {
            return Ok(if T::IS_TIERED { writing.bring_forward(place) } else { place });
        }
        if T::IS_TIERED {
            writing.partition.counts.chain_refusals.add(1);
            return Err(OutOfMemory);
        }
        let log = &writing.partition.space;
        let age = |place: &Place| {
            let link = place.slot(region).link();
            log.distance_from_tail(region, position(link))
        };
        let Some(place) = chain::places(region, head).max_by_key(age) else { return Err(OutOfMemory) };
        let oldest = place.slot(region);
        let evicted = Self::locate(log, region, oldest);
        if evicted.is_some()
            && let Ok(place) = append(chain_max)
        {
            return Ok(place);
        }
        relink::replace::<A>(region, place, slot);
        if let Some(item) = evicted {
            writing.partition.counts.evicted_index.add(1);
            let key = writing.key_to_tell(item);
            writing.retire(oldest);
            key.into_iter().for_each(|key| writing.tell_gone(writing.engine.hash(&key), &key));
        }
        Ok(place)
    }

    fn make_room<A: Access>(writing: &mut Writing<'_, Self, A>) -> bool {
        let (engine, partition, now) = (writing.engine, writing.partition, writing.writer.now);
        if T::IS_TIERED && !writing.writer.room.tier.may_evict(&partition.space, writing.region()) {
            writing.settle_oldest();
        }
        let observer = writing.writer.observer.as_deref();
        let mut arenas = arenas(engine, partition, &writing.writer.room.tier);
        let mut on_evicted = |entry: LogEntry<B>| lost(engine, partition, (observer, now), &entry);
        partition.space.segments(writing.region()) > SEGMENTS_MIN as u64
            && partition.space.release_head(writing.region(), &mut arenas, &mut on_evicted)
    }

    fn heed_limit<A: Access>(writing: &mut Writing<'_, Self, A>) -> bool {
        let (engine, partition, region) = (writing.engine, writing.partition, writing.region());
        if !engine.memory().is_rest_over_limit() {
            return false;
        }
        if arenas(engine, partition, &writing.writer.room.tier).evict_large() {
            return true;
        }
        let log = &partition.space;
        let has_more = log.segments(region) > SEGMENTS_MIN as u64;
        let waits = T::IS_TIERED && has_more && !engine.common.is_flash_stuck();
        if waits && !writing.writer.room.tier.may_evict(log, region) {
            // There is time to wait for flash, where its items go.
            log.expect_eviction(region);
            engine.common.ring();
            return true;
        }
        Self::make_room(writing)
    }

    fn take_large<A: Access>(engine: &Engine<Self, A>, _: usize, value_bytes: u64) -> Option<Settled> {
        let words = words_of_extent(value_bytes);
        let mut freed_words = 0;
        loop {
            if let Some(settled) = engine.memory().allocate_settled(words) {
                if T::IS_TIERED && engine.common.wants_room(engine.memory()) {
                    engine.common.ring();
                }
                return Some(settled);
            }
            if engine.common.keeps_large {
                engine.common.ask_for_room(words);
                return None;
            }
            let evicted = engine.common.evict_for(engine.memory(), words + TAG_WORDS, freed_words)?;
            freed_words += words_of_chunk(engine.memory().region(), evicted);
            engine.memory().free_settled(evicted);
        }
    }

    fn words_beside<A: Access>(key_bytes: usize, value_bytes: u64, engine: &Engine<Self, A>) -> u64 {
        if engine.is_inline(value_bytes) {
            item_words(key_bytes, value_bytes)
        } else {
            large_item_words(key_bytes)
        }
    }

    fn item_words_max<A: Access>(engine: &Engine<Self, A>) -> u64 {
        engine.partitions[0].space.entry_words_max()
    }

    fn large_value_at(_: usize) -> usize {
        EXTENT_HEAD_BYTES
    }

    fn place_large<A: Access>(
        writing: &mut Writing<'_, Self, A>,
        chunk: Offset,
        key: &[u8],
        value_bytes: u64,
    ) -> Option<Placed> {
        let placed = Self::allocate(writing, large_item_words(key.len()))?;
        let (region, partition) = (writing.region(), writing.partition);
        copy_in(region.words(body(placed.item), words_for(key.len())), 0, key);
        put_extent(writing.engine, extent_words(placed.item, key.len()), (chunk, value_bytes), key);
        partition.space.own_extent(region, placed.item);
        Some(placed)
    }

    fn has_large_value<A: Access>(engine: &Engine<Self, A>, item: Offset, state: &ItemState) -> bool {
        let id = extent_of(engine.memory().region(), item, state);
        engine.common.large.lock().extents.chunk(id).is_some()
    }

    fn large_evictions<A: Access>(engine: &Engine<Self, A>) -> u64 {
        engine.common.large.lock().extents.counts().evictions
    }

    fn room_stats<A: Access>(engine: &Engine<Self, A>, partition: &Partition<Self, A>) -> HeapStats {
        let (log, region) = (&partition.space, engine.memory().region());
        let words = log.segments(region) * log.segment_words();
        HeapStats { free_words: words.saturating_sub(log.used_words(region)), ..HeapStats::default() }
    }

    fn add_stats<A: Access>(engine: &Engine<Self, A>, stats: &mut StoreStats) {
        let region = engine.memory().region();
        for Partition { space: log, .. } in &engine.partitions {
            stats.log_bytes += log.used_words(region) * 8;
            stats.log_capacity_bytes += log.segments(region) * log.segment_words() * 8;
        }
        let large = engine.common.large.lock();
        let counts = large.extents.counts();
        stats.pinned = counts.pinned;
        stats.extents = counts.extents;
        stats.extent_bytes = counts.bytes;
        stats.evictions_large = counts.evictions;
        // Their items are still counted by the partitions.
        stats.items = stats.items.saturating_sub(large.uncounted);
        stats.value_bytes = stats.value_bytes.saturating_sub(large.uncounted_bytes);
    }

    fn check<A: Access>(
        engine: &Engine<Self, A>,
        writings: &[Writing<'_, Self, A>],
    ) -> Result<HashMap<u64, u64>, String> {
        engine.memory().verify()?;
        let mut rooms = HashMap::new();
        for writing in writings {
            let (region, partition) = (writing.region(), writing.partition);
            let mut twins = 0;
            let is_chain = partition.space.live_entries(region, |entry| {
                if !entry.is_dead {
                    rooms.insert(entry.payload.words(), entry.words);
                    let copy = partition.space.copy_of(region, entry.payload);
                    twins += u64::from(matches!(copy, Twin::Same(_)));
                }
            });
            if !is_chain {
                return Err(format!("the log of partition {} is broken", partition.number));
            }
            let counted = partition.counts.tier.twins.value();
            if T::IS_TIERED && counted != twins {
                return Err(format!("partition {} has {twins} twins, not {counted}", partition.number));
            }
        }
        Ok(rooms)
    }

    fn move_away<A: Access>(writing: &mut Writing<'_, Self, A>, place: Place) {
        let (region, partition) = (writing.region(), writing.partition);
        let log = &partition.space;
        let old = place.slot(region);
        let Some(item) = log.locate(region, position(old.link())) else { return };
        let state = ItemState::load(region, item, 0);
        let words = Self::words_beside(state.key_bytes(), state.value_bytes() as u64, writing.engine);
        let copy = if T::IS_TIERED { log.copy_of(region, item) } else { Twin::None };
        if let Twin::Begun(_) = copy {
            // It leaves anyway.
            return;
        }
        // Making room may evict the item itself: it is copied before, and dead so that it is not counted.
        let mut moving = std::mem::take(&mut writing.writer.room.moving);
        moving.clear();
        moving.extend(region.words(item, words as usize).iter().map(|word| word.load(Relaxed)));
        let key = writing.key_to_tell(item);
        if T::IS_TIERED {
            writing.set_copy(item, Twin::None);
        }
        log.kill(region, position(old.link()));
        let placed = Self::allocate(writing, words);
        if let Some(placed) = placed {
            for (to, from) in region.words(placed.item, moving.len()).iter().zip(&moving) {
                to.store(*from, Relaxed);
            }
            if !writing.engine.is_inline(state.value_bytes() as u64) {
                log.own_extent(region, placed.item);
            }
            let mut place = place;
            if T::IS_TIERED {
                writing.set_copy(placed.item, copy);
                // Making room may have moved the slot.
                let moved = chain::places(region, place.head).find(|place| place.slot(region) == old);
                place = moved.unwrap_or(place);
            }
            relink::replace::<A>(region, place, old.with_link(placed.link));
            partition.counts.reinserted.add(1);
        } else if log.revive(region, position(old.link())) {
            if T::IS_TIERED {
                writing.set_copy(item, copy);
            }
        } else {
            // The item is lost, and as a dead entry it was not counted.
            partition.counts.remove(&state, partition.index.generation(region));
            if !writing.engine.is_inline(state.value_bytes() as u64) {
                release_extent(writing.engine, item, &state);
            }
            key.into_iter().for_each(|key| writing.tell_gone(writing.engine.hash(&key), &key));
        }
        writing.writer.room.moving = moving;
    }

    fn settle_all<A: Access>(writing: &mut Writing<'_, Self, A>) {
        let (engine, partition, now) = (writing.engine, writing.partition, writing.writer.now);
        let observer = writing.writer.observer.as_deref();
        partition
            .space
            .finish_walk(writing.region(), &mut |entry| lost(engine, partition, (observer, now), &entry));
    }

    #[inline]
    fn settle_debts<A: Access>(writing: &mut Writing<'_, Self, A>) {
        let (region, partition) = (writing.region(), writing.partition);
        // Above flash, slots leave before their items do.
        if T::IS_TIERED || !partition.space.is_scan_due(region) {
            return;
        }
        let buckets = partition.index.buckets(region);
        for _ in 0..partition.space.scan_share(region, buckets) {
            scan_bucket(writing, buckets);
        }
    }
}

/// Room at the tail of the log.
#[inline]
fn append<B: PositionBits, T: Tier, A: Access>(
    writing: &mut Writing<'_, LogMode<B, T>, A>,
    words: u64,
) -> Option<Placed> {
    let (engine, partition, now) = (writing.engine, writing.partition, writing.writer.now);
    let observer = writing.writer.observer.as_deref();
    let mut arenas = arenas(engine, partition, &writing.writer.room.tier);
    let mut on_evicted = |entry: LogEntry<B>| lost(engine, partition, (observer, now), &entry);
    let (position, item) = partition.space.append(writing.region(), &mut arenas, words, &mut on_evicted)?;
    Some(Placed { item, link: position.words() })
}

/// Takes the slots out of the next bucket whose items were evicted: before their positions come round.
#[cold]
fn scan_bucket<B: PositionBits, T: Tier, A: Access>(
    writing: &mut Writing<'_, LogMode<B, T>, A>,
    buckets: u64,
) {
    let (region, partition) = (writing.region(), writing.partition);
    let number = writing.writer.room.scanned;
    writing.writer.room.scanned = (number + 1) % buckets;
    let head = partition.index.bucket(region, number);
    let dangles =
        |place: &Place| LogMode::<B, T>::locate(&partition.space, region, place.slot(region)).is_none();
    // The slot that fills a gap may be unchecked: start again.
    while let Some(place) = chain::places(region, head).find(dangles) {
        relink::remove::<A>(region, &partition.index, place);
    }
}

/// Words in the log of an item whose value lies elsewhere.
fn large_item_words(key_bytes: usize) -> u64 {
    item_words(key_bytes, 0) + EXTENT_WORDS
}

/// Most segments of a log, a power of two.
pub(crate) fn table_len<B: PositionBits>(memory_bytes: u64, partitions: u64) -> u64 {
    // Arenas have 64 KiB in small memories and 1 MiB in large ones; about 64 of them are a partition's share.
    let arenas_max = (memory_bytes >> 16).min((memory_bytes >> 20).max(SEGMENTS_PER_SHARE * partitions));
    let shares = SHARES_MAX * arenas_max.div_ceil(partitions).max(SEGMENTS_PER_SHARE);
    let len = arenas_max.min(shares).max(SEGMENTS_MIN as u64).next_power_of_two();
    // A log is at most a quarter as long as positions reach.
    len.min(1 << (B::BITS - 2).saturating_sub(SEGMENT_BITS_MAX).max(SEGMENTS_NARROW_BITS))
}
