//! An owner that changes one chain as the engine does, by single stores whose order is as free as the engine's fences
//! leave it.

use super::{
    super::{MICRO_SHARD, NOW},
    Store,
};
use crate::{
    cache_mode::CacheMode,
    chain,
    config::StoreConfig,
    generation::Generation,
    index::{BUCKET_WORDS, BUCKETS, GENERATION, SLOTS, number_of},
    item::{HEADER_WORDS, ItemMeta, ItemState},
    log::Log,
    mode::Mode,
    position::{Position, Wide},
    remote::rig::Truth,
    slot::Slot,
    store::Engine,
    store_mode::StoreMode,
};
use minos_base::KeyHash;
use minos_region::{Backing, Map, OwnerState, Ownership};
use minos_sync::Crcw;
use rand::{Rng, RngExt, seq::SliceRandom};
use std::sync::atomic::Ordering::Relaxed;

/// Keys of the chain: too many for one bucket.
const KEYS: usize = 12;
/// Buckets of a new index, and the number of the bucket that the first split makes.
const BUCKETS_FIRST: u64 = 64;
/// Words of a block for an item.
const BLOCK_WORDS: u64 = (HEADER_WORDS + 1 + VALUE_WORDS_MAX) as u64;
const VALUE_WORDS_MAX: usize = 12;
/// Few spare ones, so that memory is used again at once.
const BLOCKS: u64 = KEYS as u64 + 3;
const _: () = assert!(BLOCKS == LOG_SEGMENTS * SEGMENT_BLOCKS);
/// Parts of the room that are segments of a cache's log, and blocks of each: few, so that they are soon used again.
const LOG_SEGMENTS: u64 = 3;
const SEGMENT_BLOCKS: u64 = 5;
/// Words of the room for blocks and a spare bucket.
const ROOM_WORDS: u64 = 2 * BUCKET_WORDS as u64 + 1 + BLOCKS * BLOCK_WORDS;

/// What a store makes true.
#[derive(Clone, Debug)]
pub(in super::super) enum Change {
    Value(usize, Option<Vec<u8>>),
    NothingLeft,
    Evicted(Vec<usize>),
    Away,
    Owned(Vec<Option<Vec<u8>>>),
}

impl Change {
    pub(super) fn apply(self, truth: &mut Truth) {
        match self {
            Self::Value(key, value) => truth.values[key] = value,
            Self::Evicted(keys) => keys.into_iter().for_each(|key| truth.values[key] = None),
            Self::NothingLeft => truth.values.fill(None),
            Self::Away => truth.is_owned = false,
            Self::Owned(values) => *truth = Truth { is_owned: true, values },
        }
    }
}

/// Memory of a table, and keys of its first bucket, which the first split parts.
pub(in super::super) struct Ground {
    pub(super) memory: Vec<u64>,
    pub(super) keys: Vec<[u8; 8]>,
    hashes: Vec<KeyHash>,
    index: u64,
    owner_word: u64,
    /// The first bucket, and the one that a split adds.
    heads: [u64; 2],
    /// Where there is room for items.
    room: u64,
    /// That of a cache.
    log: Option<Log<Wide>>,
}

impl Ground {
    pub(in super::super) fn of_store() -> Self {
        Self::of(&Engine::<StoreMode, Crcw>::create(&config()).unwrap())
    }

    pub(in super::super) fn of_cache() -> Self {
        let engine = Engine::<CacheMode, Crcw>::create(&config()).unwrap();
        let log = engine.partitions[0].space;
        let mut ground = Self::of(&engine);
        // Instead of its own segments, the log has parts of the room.
        for number in 0..LOG_SEGMENTS {
            let entry = ground.log_entry(&log, number);
            ground.memory[entry] = ground.block(number * SEGMENT_BLOCKS);
        }
        ground.log = Some(log);
        ground
    }

    fn of<M: Mode>(engine: &Engine<M, Crcw>) -> Self {
        let in_bucket =
            |number: &u64, bucket| number_of(BUCKETS_FIRST, engine.hash(&number.to_le_bytes())) == bucket;
        let keys: Vec<u64> = (0..).filter(|number| in_bucket(number, 0)).take(KEYS).collect();
        // An item of another chain, which stays, is the room.
        let holder = (0..).find(|number| in_bucket(number, 1)).unwrap_or_default();
        let hash = engine.hash(&holder.to_le_bytes());
        let value = vec![0; (ROOM_WORDS * 8) as usize];
        engine.entry(hash, &holder.to_le_bytes(), NOW).insert(&[&value], ItemMeta::default()).unwrap();
        engine.set_ownership(MICRO_SHARD, Ownership { epoch: 1, state: OwnerState::Owned });
        let (region, index) = (engine.memory().region(), &engine.partitions[0].index);
        let slot = chain::places(region, index.bucket(region, 1)).next().unwrap().slot(region);
        let item = M::locate(&engine.partitions[0].space, region, slot).unwrap().words();
        let memory: Vec<u64> = region
            .words(minos_region::Offset::from_words(0), region.len_words() as usize)
            .iter()
            .map(|word| word.load(Relaxed))
            .collect();
        let map = Map::of(memory.first_chunk().unwrap()).unwrap();
        Self {
            index: map.partition_start(0).words(),
            owner_word: map.owner_place(MICRO_SHARD).unwrap().words(),
            heads: [0, BUCKETS_FIRST].map(|number| index.bucket(region, number).words()),
            room: item + HEADER_WORDS as u64 + 1,
            hashes: keys.iter().map(|key| engine.hash(&key.to_le_bytes())).collect(),
            keys: keys.into_iter().map(u64::to_le_bytes).collect(),
            log: None,
            memory,
        }
    }

    /// Where the segment of this number is named.
    fn log_entry(&self, log: &Log<Wide>, number: u64) -> usize {
        log.table_place(log_position(log, number)).words() as usize
    }

    /// The spare bucket, on a line of its own.
    fn spare(&self) -> u64 {
        self.room.next_multiple_of(BUCKET_WORDS as u64)
    }

    /// A block for an item, which lies across lines.
    fn block(&self, number: u64) -> u64 {
        self.spare() + BUCKET_WORDS as u64 + number * BLOCK_WORDS
    }
}

fn config() -> StoreConfig {
    StoreConfig {
        backing: Backing::Memfd,
        partitions: Some(1),
        micro_shards: 16,
        ..StoreConfig::new(2 << 20)
    }
}

/// The first position of a segment.
fn log_position(log: &Log<Wide>, number: u64) -> Position<Wide> {
    Position::from_words(number * log.segment_words())
}

/// The owner's own state.
pub(super) struct Owner {
    /// Link of each key's item, dangling or not.
    links: Vec<Option<u64>>,
    values: Vec<Option<Vec<u8>>>,
    /// The block freed last is used first.
    free: Vec<u64>,
    /// Number of the log's newest segment, and blocks used of it.
    tail: (u64, u64),
    /// Slots of the chains: of the first bucket, and of the one that a split adds.
    chains: [Vec<u64>; 2],
    buckets: u64,
    generation: Generation,
    epoch: u32,
    stamp: u64,
}

impl Owner {
    pub(super) fn new(ground: &Ground) -> Self {
        Self {
            links: vec![None; KEYS],
            tail: (LOG_SEGMENTS - 1, 0),
            values: vec![None; KEYS],
            free: (0..BLOCKS).map(|number| ground.block(number)).collect(),
            chains: [Vec::new(), Vec::new()],
            buckets: BUCKETS_FIRST,
            generation: Generation::FIRST,
            epoch: 1,
            stamp: 0,
        }
    }

    /// The stores of the next operation, in their order.
    pub(super) fn operate(&mut self, ground: &Ground, memory: &[u64], random: &mut impl Rng) -> Vec<Store> {
        let key = random.random_range(0..KEYS);
        self.stamp += 1;
        match random.random_range(0..100) {
            0..3 => self.flush(ground),
            3..8 => self.move_away(ground, memory, random),
            8..9 if self.buckets == BUCKETS_FIRST => self.split(ground, memory, random),
            9..30 => self.remove(ground, memory, key, random),
            30..60 if self.is_there(ground, key) => self.overwrite(ground, memory, key, random),
            _ => self.put(ground, memory, key, random),
        }
    }

    /// A new item, complete before it is linked; the old one's block is free after that.
    fn put(&mut self, ground: &Ground, memory: &[u64], key: usize, random: &mut impl Rng) -> Vec<Store> {
        let Some(link) = self.take_block(ground) else { return self.evict(ground) };
        let value = self.value(random.random_range(1..=VALUE_WORDS_MAX));
        let mut stores = self.item(ground, (key, link), &value);
        stores.shuffle(random);
        let slot = Slot::new(ground.hashes[key], value.len() as u64, link).0;
        let (at, old) = (self.chain_of(ground, key), self.links[key].replace(link));
        match old.and_then(|old| self.chains[at].iter().position(|&slot| Slot(slot).link() == old)) {
            Some(place) => self.chains[at][place] = slot,
            None => self.chains[at].push(slot),
        }
        self.free.extend(old.filter(|_| ground.log.is_none()));
        self.values[key] = Some(value.clone());
        stores.extend(self.link(ground, memory, at, (Vec::new(), Change::Value(key, Some(value))), random));
        stores
    }

    /// Another value of the same length, under the version.
    fn overwrite(
        &mut self,
        ground: &Ground,
        memory: &[u64],
        key: usize,
        random: &mut impl Rng,
    ) -> Vec<Store> {
        let Some(link) = self.links[key] else { return Vec::new() };
        let value = self.value(self.value_words(ground, memory, link));
        self.values[key] = Some(value.clone());
        let item = self.item(ground, (key, link), &value);
        let at = self.chain_of(ground, key);
        self.link(ground, memory, at, (item, Change::Value(key, Some(value))), random)
    }

    fn remove(&mut self, ground: &Ground, memory: &[u64], key: usize, random: &mut impl Rng) -> Vec<Store> {
        let Some(link) = self.links[key].take() else { return Vec::new() };
        let at = self.chain_of(ground, key);
        // The last slot fills the gap.
        let place = self.chains[at].iter().position(|&slot| Slot(slot).link() == link).unwrap();
        self.chains[at].swap_remove(place);
        self.free.extend(Some(link).filter(|_| ground.log.is_none()));
        self.values[key] = None;
        self.link(ground, memory, at, (Vec::new(), Change::Value(key, None)), random)
    }

    /// A block for an item, if there is one.
    fn take_block(&mut self, ground: &Ground) -> Option<u64> {
        let Some(log) = &ground.log else { return self.free.pop() };
        let (number, used) = self.tail;
        self.tail.1 = (used + 1).min(SEGMENT_BLOCKS);
        (used < SEGMENT_BLOCKS).then(|| log_position(log, number).plus(used * BLOCK_WORDS).words())
    }

    /// Evicts the oldest segment of the log, whose memory becomes the newest.
    fn evict(&mut self, ground: &Ground) -> Vec<Store> {
        let Some(log) = &ground.log else { return Vec::new() };
        let before: Vec<bool> = (0..KEYS).map(|key| self.is_there(ground, key)).collect();
        self.tail = (self.tail.0 + 1, 0);
        let lost: Vec<usize> = (0..KEYS).filter(|&key| before[key] && !self.is_there(ground, key)).collect();
        lost.iter().for_each(|&key| self.values[key] = None);
        let head = Store {
            at: log.head_place().words(),
            value: self.head(log).words(),
            change: Some(Change::Evicted(lost)),
        };
        let segment = ground.block(self.tail.0 % LOG_SEGMENTS * SEGMENT_BLOCKS);
        vec![head, put((segment, ground.log_entry(log, self.tail.0) as u64))]
    }

    /// The first position that is alive.
    fn head(&self, log: &Log<Wide>) -> Position<Wide> {
        log_position(log, self.tail.0 + 1 - LOG_SEGMENTS)
    }

    /// True if the key has an item that was not evicted.
    fn is_there(&self, ground: &Ground, key: usize) -> bool {
        let is_alive = |log, link| !Position::from_words(link).is_before(self.head(log));
        self.links[key].is_some_and(|link| ground.log.as_ref().is_none_or(|log| is_alive(log, link)))
    }

    /// Where an item lies.
    fn place(&self, ground: &Ground, link: u64) -> u64 {
        let Some(log) = &ground.log else { return link };
        let number = link / log.segment_words() % LOG_SEGMENTS;
        ground.block(number * SEGMENT_BLOCKS) + link % log.segment_words()
    }

    /// Words of an item's value.
    fn value_words(&self, ground: &Ground, memory: &[u64], link: u64) -> usize {
        let header = &memory[self.place(ground, link) as usize..][..HEADER_WORDS];
        ItemState::from_words(header.try_into().unwrap(), NOW).value_bytes() / 8
    }

    fn flush(&mut self, ground: &Ground) -> Vec<Store> {
        self.generation = self.generation.next(0);
        self.values.fill(None);
        let (at, value) = (ground.index + GENERATION, self.generation.to_word());
        vec![Store { at, value, change: Some(Change::NothingLeft) }]
    }

    /// Another node has the micro-shard for a while. Memory changes meanwhile without a version, as in a restart.
    fn move_away(&mut self, ground: &Ground, memory: &[u64], random: &mut impl Rng) -> Vec<Store> {
        let word = |owner: &Self, state| match state {
            OwnerState::None => u64::from(owner.epoch) << 32,
            _ => u64::from(owner.epoch) << 32 | 1,
        };
        let away = word(self, OwnerState::None);
        let mut stores = vec![Store { at: ground.owner_word, value: away, change: Some(Change::Away) }];
        for key in 0..KEYS {
            let is_there = self.is_there(ground, key) && random.random();
            let Some(link) = self.links[key].filter(|_| is_there) else { continue };
            let value = self.value(self.value_words(ground, memory, link));
            let mut item = self.item(ground, (key, link), &value);
            item.shuffle(random);
            stores.extend(item);
            self.values[key] = Some(value);
        }
        self.epoch += 1;
        let change = Some(Change::Owned(self.values.clone()));
        stores.push(Store { at: ground.owner_word, value: word(self, OwnerState::Owned), change });
        stores
    }

    /// Fills the new bucket, raises the count, and clears the old one.
    fn split(&mut self, ground: &Ground, memory: &[u64], random: &mut impl Rng) -> Vec<Store> {
        let moves = |slot: &u64| {
            let key = self.links.iter().position(|link| *link == Some(Slot(*slot).link()));
            key.is_some_and(|key| number_of(BUCKETS_FIRST + 1, ground.hashes[key]) == BUCKETS_FIRST)
        };
        let (new, old): (Vec<u64>, Vec<u64>) = self.chains[0].iter().partition(|slot| moves(slot));
        if new.len() > SLOTS {
            return Vec::new();
        }
        let slots = new.iter().copied().chain(std::iter::repeat(0)).take(SLOTS);
        let mut stores: Vec<Store> =
            std::iter::once(0).chain(slots).zip(ground.heads[1]..).map(put).collect();
        self.buckets += 1;
        stores.push(put((self.buckets, ground.index + BUCKETS)));
        self.chains = [old, new];
        stores.extend(self.unlinked(ground, memory, 0, (Vec::new(), None), random));
        stores
    }

    /// Stores a chain and `inside` under its version; then `change` is true.
    fn link(
        &self,
        ground: &Ground,
        memory: &[u64],
        chain: usize,
        (inside, change): (Vec<Store>, Change),
        random: &mut impl Rng,
    ) -> Vec<Store> {
        self.unlinked(ground, memory, chain, (inside, Some(change)), random)
    }

    fn unlinked(
        &self,
        ground: &Ground,
        memory: &[u64],
        chain: usize,
        (mut inside, change): (Vec<Store>, Option<Change>),
        random: &mut impl Rng,
    ) -> Vec<Store> {
        let (head, slots) = (ground.heads[chain], &self.chains[chain]);
        let version = memory[head as usize] & u64::from(u32::MAX);
        let has_spare = slots.len() > SLOTS;
        let next = if has_spare { ground.spare() / BUCKET_WORDS as u64 } else { 0 } << 32;
        let all = |from: usize| slots.iter().copied().skip(from).chain(std::iter::repeat(0)).take(SLOTS);
        inside.extend(all(0).zip(head + 1..).map(put));
        if has_spare {
            inside.extend(std::iter::once(0).chain(all(SLOTS)).zip(ground.spare()..).map(put));
        }
        inside.push(put((next | version | 1, head)));
        inside.retain(|store| memory[store.at as usize] != store.value || store.at == head);
        inside.shuffle(random);
        let first = put((memory[head as usize] | 1, head));
        let last = Store { at: head, value: next | (version + 2), change };
        std::iter::once(first).chain(inside).chain([last]).collect()
    }

    /// The words of an item.
    fn item(&self, ground: &Ground, (key, link): (usize, u64), value: &[u8]) -> Vec<Store> {
        let ItemState { cas, life, shape, .. } =
            ItemState::new(&ItemMeta::default(), self.stamp, 8, value.len() as u64, self.generation, NOW);
        let (words, _) = value.as_chunks::<8>();
        let body = std::iter::once(&ground.keys[key]).chain(words).map(|bytes| u64::from_le_bytes(*bytes));
        [cas, life, shape].into_iter().chain(body).zip(self.place(ground, link)..).map(put).collect()
    }

    /// A value that no other has.
    fn value(&mut self, words: usize) -> Vec<u8> {
        self.stamp += 1;
        self.stamp.to_le_bytes().repeat(words)
    }

    fn chain_of(&self, ground: &Ground, key: usize) -> usize {
        usize::from(number_of(self.buckets, ground.hashes[key]) == BUCKETS_FIRST)
    }
}

fn put((value, at): (u64, u64)) -> Store {
    Store { at, value, change: None }
}
