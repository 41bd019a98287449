//! One-sided reads of a table whose memory this process cannot load from: state machines over the words that some
//! fabric brings. No I/O, no clock, no atomics.
//!
//! A fabric brings each line of 64 bytes from an instant of its own, in any order within a round. A round begins after
//! the one before has ended:
//!
//! ```text
//! first    owner's word | buckets and generation | first bucket of the chain | in a cache, head of the log
//! then     a candidate's item, in a cache with the place of its segment, or the next bucket of the chain, as often as
//!          needed
//! last     as the first
//! ```
//!
//! No item carries a check word: the versions that the engine keeps suffice. Let T be the time from the end of the first
//! round to the beginning of the last one. A word that is the same in both, and never returns to an earlier value, was
//! the same throughout T: the owner's word, because epochs are not given twice; the version; the number of buckets.
//! The version was read with the slots beside it, in one line, and was even, so that chain and items did not change in
//! T. All other rounds lie in T, so that they brought what was linked then. The answer therefore was true, and the
//! owner's, at each instant of T; a miss too, since no split has moved the key to another chain. An item whose
//! generation is over before T is dead in all of T, one whose generation lasts until after T is alive in all of T.
//! The price beside a check word is a round more for a hit. A second look in the same round as the item is not enough:
//! the item's lines may be younger than the look (see the controls in `tests`).
//!
//! In a cache the head of the log only rises. What was before it in the first round was evicted in all of T; memory of
//! what is not before it in the last round was not used again in T, and its segment stayed where it was.
//!
//! Large values, and keys that may be on flash, are the owner's.

mod fabric;
#[cfg(any(test, feature = "rig"))]
pub mod rig;
mod table;
#[cfg(test)]
mod tests;

use crate::{
    chain::following,
    generation::Generation,
    index::BUCKET_WORDS,
    item::{HEADER_WORDS, ItemState},
    slot::Slot,
};
use arrayvec::ArrayVec;
pub use fabric::{Completion, Fabric, Mapped, copy_words};
use minos_base::{KeyHash, Seconds, SizeClass};
use minos_region::{Offset, Ownership};
use minos_sync::words::{WORD_BYTES, words_for};
pub use table::{RemoteSketch, RemoteTable};

minos_base::safeguards! {
    /// The owner's word is looked at twice.
    Owner,
    /// The version is looked at twice.
    Version,
    /// The head of the log is looked at twice.
    LogHead,
    /// The number of buckets is looked at twice.
    Buckets,
    /// The second look begins after all else has arrived.
    LastRound,
}

/// Rounds of one attempt; more are only needed where keys were chosen to collide.
const ROUNDS_MAX: u32 = 16;
/// Candidates of one bucket: all its slots.
const CANDIDATES_MAX: usize = BUCKET_WORDS - 1;
/// Ranges of one round.
const RANGES_MAX: usize = 6;
/// Words of a look: the owner's, those of the index, and a bucket. In a cache there is one more, the head of the log.
const LOOK_WORDS: usize = 1 + INDEX_WORDS + BUCKET_WORDS;
/// Number of buckets, and generation.
const INDEX_WORDS: usize = 2;

/// Words that a fabric is to bring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    /// The first one, in words from the region's beginning.
    pub start: u64,
    /// How many.
    pub words: usize,
}

/// How a read goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step<'a> {
    /// With the words of these ranges, one range after the other, none read before this moment.
    Need(&'a [Range]),
    /// There is a live item, which the read holds.
    Found,
    /// There is none.
    Missing,
    /// A writer was in the way: another attempt may do.
    Retry,
    /// Only the owner can tell: the value is large, the micro-shard is not its, or its memory contradicts itself.
    AskOwner,
}

/// What a read waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Buckets,
    /// Number of the segment.
    Segment(u64),
    First,
    Item(Slot),
    Spare,
    Last,
}

/// What one look has shown.
#[derive(Clone, Copy, Debug)]
struct Look {
    owner: u64,
    buckets: u64,
    generation: Generation,
    /// Next bucket of the chain, and version.
    head: u64,
    /// Head of the log, in a cache.
    log_head: u64,
}

/// A read of one key under way. Kept from read to read, it allocates nothing once it has held the largest item.
#[derive(Debug)]
pub struct RemoteRead {
    micro_shard: u32,
    hash: KeyHash,
    key: Vec<u8>,
    now: Seconds,
    stage: Stage,
    rounds: u32,
    /// Number of buckets by which the chain was chosen.
    buckets: u64,
    bucket: u64,
    look: Option<Look>,
    candidates: ArrayVec<Slot, CANDIDATES_MAX>,
    spare: Option<Offset>,
    found: Option<(Slot, ItemState)>,
    /// Header, key and value of what was found.
    item: Vec<u64>,
    ranges: ArrayVec<Range, RANGES_MAX>,
}

impl Default for RemoteRead {
    fn default() -> Self {
        Self {
            micro_shard: 0,
            hash: KeyHash(0),
            key: Vec::new(),
            now: 0,
            stage: Stage::Buckets,
            rounds: 0,
            buckets: 0,
            bucket: 0,
            look: None,
            candidates: ArrayVec::new(),
            spare: None,
            found: None,
            item: Vec::new(),
            ranges: ArrayVec::new(),
        }
    }
}

impl RemoteRead {
    /// Begins to read a key of a micro-shard at the time `now` of the table's clock; what was read before is forgotten.
    pub fn begin(&mut self, table: &RemoteTable, micro_shard: u32, key: &[u8], now: Seconds) -> Step<'_> {
        self.key.clear();
        self.key.extend_from_slice(key);
        (self.micro_shard, self.now, self.hash) = (micro_shard, now, table.hash(key));
        self.again(table)
    }

    /// Begins another attempt.
    pub fn again(&mut self, table: &RemoteTable) -> Step<'_> {
        (self.rounds, self.look, self.spare, self.found) = (0, None, None, None);
        self.candidates.clear();
        self.item.clear();
        self.seek(table)
    }

    /// Goes on with the words that were needed.
    pub fn step(&mut self, table: &mut RemoteTable, words: &[u64]) -> Step<'_> {
        let needed: usize = self.ranges.iter().map(|range| range.words).sum();
        if words.len() != needed {
            return Step::AskOwner;
        }
        match self.stage {
            Stage::Buckets => {
                if !table.learn_buckets(self.hash, words[0]) {
                    return Step::AskOwner;
                }
                self.seek(table)
            }
            Stage::Segment(number) => {
                if !table.learn_segment(self.hash, number, words[0]) {
                    return Step::AskOwner;
                }
                self.seek(table)
            }
            Stage::First => self.first(table, words),
            Stage::Item(slot) => self.candidate(table, slot, words),
            Stage::Spare => {
                self.take_slots(words);
                self.next(table)
            }
            Stage::Last => self.last(table, words),
        }
    }

    /// The ranges that it needs, after [`Step::Need`].
    pub fn needed(&self) -> &[Range] {
        &self.ranges
    }

    /// Header of the item that was found.
    pub fn state(&self) -> Option<&ItemState> {
        self.found.as_ref().map(|(_, state)| state)
    }

    /// The word by which the owner is told of the read of what was found ([`crate::Engine::note_reads`]), and true if that is
    /// due: it was not read before, or for a minute.
    pub fn note(&self) -> Option<(u64, bool)> {
        self.found.as_ref().map(|(slot, state)| (slot.0, state.is_access_due()))
    }

    /// The hash of the key.
    pub fn hash(&self) -> KeyHash {
        self.hash
    }

    /// Appends the value that was found to `out`.
    pub fn copy_value_to(&self, out: &mut Vec<u8>) {
        let Some((_, state)) = &self.found else { return };
        let (begin, end) = (state.key_bytes(), state.key_bytes() + state.value_bytes());
        let body = self.item.get(HEADER_WORDS..).unwrap_or_default();
        for (word, at) in body.iter().zip((0..end).step_by(WORD_BYTES)).skip(begin / WORD_BYTES) {
            let (from, to) = (begin.saturating_sub(at), (end - at).min(WORD_BYTES));
            out.extend_from_slice(&word.to_le_bytes()[from..to]);
        }
    }

    fn need(&mut self, stage: Stage, ranges: &[Range]) -> Step<'_> {
        self.rounds += 1;
        if self.rounds > ROUNDS_MAX {
            return Step::AskOwner;
        }
        self.stage = stage;
        self.ranges = ranges.iter().copied().collect();
        Step::Need(&self.ranges)
    }

    /// Looks at the first bucket of the chain, once it is known where that is.
    fn seek(&mut self, table: &RemoteTable) -> Step<'_> {
        let Some(buckets) = table.buckets(self.hash) else {
            return self.need(Stage::Buckets, &[table.index_range(self.hash)]);
        };
        let Some(bucket) = table.bucket(self.hash) else {
            // Another read may learn meanwhile that there are more buckets, and the key's is in another segment.
            let (number, range) = table.segment(self.hash);
            return self.need(Stage::Segment(number), &[range]);
        };
        (self.buckets, self.bucket) = (buckets, bucket);
        self.look(table, Stage::First)
    }

    fn look(&mut self, table: &RemoteTable, stage: Stage) -> Step<'_> {
        match self.look_ranges(table) {
            Some(ranges) => self.need(stage, &ranges),
            None => Step::AskOwner,
        }
    }

    /// The words of a look; `None` if there is no such micro-shard.
    fn look_ranges(&self, table: &RemoteTable) -> Option<ArrayVec<Range, RANGES_MAX>> {
        let owner = Range { start: table.owner_place(self.micro_shard)?, words: 1 };
        let bucket = Range { start: self.bucket, words: BUCKET_WORDS };
        let all = [owner, table.index_range(self.hash), bucket].into_iter();
        Some(all.chain(table.log_head_range(self.hash)).collect())
    }

    fn first(&mut self, table: &mut RemoteTable, words: &[u64]) -> Step<'_> {
        let (look, bucket) = Look::of(words);
        if !Ownership::from_word(look.owner).is_readable() {
            return Step::AskOwner;
        }
        if look.buckets != self.buckets {
            // The index has grown: the key may be in another chain.
            if !table.learn_buckets(self.hash, look.buckets) {
                return Step::AskOwner;
            }
            return self.seek(table);
        }
        if look.head & 1 == 1 {
            return Step::Retry;
        }
        self.look = Some(look);
        self.take_slots(bucket);
        self.next(table)
    }

    /// The candidates of a bucket, and the bucket after it.
    fn take_slots(&mut self, bucket: &[u64]) {
        let tag = self.hash.tag();
        self.candidates.clear();
        self.candidates
            .extend(bucket[1..BUCKET_WORDS].iter().map(|&word| Slot(word)).filter(|slot| slot.has_tag(tag)));
        self.spare = following(bucket[0]);
    }

    /// The next candidate, the next bucket, or the last look.
    fn next(&mut self, table: &RemoteTable) -> Step<'_> {
        let log_head = self.look.map_or(0, |look| look.log_head);
        while let Some(slot) = self.candidates.pop() {
            if !table.is_evicted(slot, log_head) {
                return self.need_item(table, slot);
            }
        }
        match self.spare.take() {
            None => self.look(table, Stage::Last),
            Some(spare) if table.holds(spare.words(), BUCKET_WORDS) => {
                self.need(Stage::Spare, &[Range { start: spare.words(), words: BUCKET_WORDS }])
            }
            Some(_) => Step::AskOwner,
        }
    }

    fn need_item(&mut self, table: &RemoteTable, slot: Slot) -> Step<'_> {
        let Some(item) = table.item_range(self.hash, slot, self.key.len()) else { return Step::AskOwner };
        let mut ranges = ArrayVec::<Range, RANGES_MAX>::from_iter([item]);
        ranges.extend(table.log_segment_range(self.hash, slot));
        if !is_on(Safeguard::LastRound) {
            ranges.extend(self.look_ranges(table).into_iter().flatten());
        }
        self.need(Stage::Item(slot), &ranges)
    }

    fn candidate(&mut self, table: &mut RemoteTable, slot: Slot, words: &[u64]) -> Step<'_> {
        let (item, mut look) = words.split_at(self.ranges[0].words);
        if let Some((&segment, rest)) =
            look.split_first().filter(|_| table.log_head_range(self.hash).is_some())
        {
            table.learn_log_segment(self.hash, slot, segment);
            // Another read may have learned it, after this one has asked for the item at the old place.
            if table.item_range(self.hash, slot, self.key.len()) != Some(self.ranges[0]) {
                return self.need_item(table, slot);
            }
            look = rest;
        }
        let Some(state) = matching(item, &self.key, self.now) else { return self.next(table) };
        if Some(SizeClass::of(state.value_bytes() as u64)) != slot.class() {
            // It was being written, or is not to be trusted.
            return Step::Retry;
        }
        self.item.extend_from_slice(item);
        self.found = Some((slot, state));
        if look.is_empty() { self.look(table, Stage::Last) } else { self.last(table, look) }
    }

    fn last(&mut self, table: &RemoteTable, words: &[u64]) -> Step<'_> {
        let Some(first) = self.look else { return Step::AskOwner };
        let (last, _) = Look::of(words);
        let is_owners = first.owner == last.owner || !is_on(Safeguard::Owner);
        let is_same = first.head == last.head || !is_on(Safeguard::Version);
        let is_evicted = self.found.is_some_and(|(slot, _)| table.is_evicted(slot, last.log_head));
        if !is_owners || !is_same || is_evicted && is_on(Safeguard::LogHead) {
            return Step::Retry;
        }
        match self.found {
            // Otherwise the key may have moved to a new bucket.
            None if first.buckets == last.buckets || !is_on(Safeguard::Buckets) => Step::Missing,
            Some((_, state)) if state.is_live(last.generation) => Step::Found,
            Some((_, state)) if !state.is_live(first.generation) => Step::Missing,
            _ => Step::Retry,
        }
    }
}

impl Look {
    /// A look, and the bucket's words.
    fn of(words: &[u64]) -> (Self, &[u64]) {
        let (words, rest) = words.split_at(LOOK_WORDS);
        let bucket = &words[LOOK_WORDS - BUCKET_WORDS..];
        let look = Self {
            owner: words[0],
            buckets: words[1],
            generation: Generation::from_word(words[2]),
            head: bucket[0],
            log_head: rest.first().copied().unwrap_or(0),
        };
        (look, bucket)
    }
}

/// The state of an item if it has this key, and lies within `words` as a whole.
fn matching(words: &[u64], key: &[u8], now: Seconds) -> Option<ItemState> {
    let (&header, body) = words.split_first_chunk::<HEADER_WORDS>()?;
    let state = ItemState::from_words(header, now);
    let bytes = body[..words_for(key.len()).min(body.len())].iter().flat_map(|word| word.to_le_bytes());
    let is_whole = state.key_bytes() == key.len() && state.body_words() <= body.len();
    (is_whole && body.len() * WORD_BYTES >= key.len() && bytes.take(key.len()).eq(key.iter().copied()))
        .then_some(state)
}
