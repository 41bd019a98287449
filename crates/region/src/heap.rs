//! Segregated fits with boundary tags over one span of memory, or many (MICA §4.3.3).
//!
//! ```text
//! chunk in use    tag | payload ...
//! free chunk      tag | next | previous | ... | size      (next, previous: tags of free chunks)
//! span            chunk | chunk | ... | end tag
//! ```
//!
//! A tag is the chunk's size in words, itself included, above eight bits of flags. The size at the
//! end of a free chunk lets the chunk behind it find its beginning, so that both neighbours are
//! merged when a chunk is freed. Lists, counts and tags all lie in the region; [`Heap`] itself holds
//! only their place.

use crate::{
    class::{CLASSES, class_of, is_exact},
    offset::Offset,
    region::Region,
};
use std::{
    ops::Range,
    sync::atomic::{
        Ordering::{Relaxed, Release},
        compiler_fence,
    },
};

/// The chunk is in use.
pub(crate) const USED: u64 = 1;
/// The chunk before this one is in use, or there is none.
pub(crate) const BEFORE_USED: u64 = 1 << 1;
/// The chunk is the first of its span.
pub(crate) const FIRST: u64 = 1 << 2;
/// The tag ends a span.
pub(crate) const END: u64 = 1 << 3;
/// The chunk belongs to a partition's heap.
pub(crate) const NESTED: u64 = 1 << 4;
/// The chunk is the span of a partition's heap.
pub(crate) const ARENA: u64 = 1 << 5;
/// The chunk is a part of a partition's log.
pub(crate) const LOG: u64 = 1 << 6;
const FLAG_BITS: u32 = 8;
/// The flags that stay with a chunk while it is free or split.
const PLACE_FLAGS: u64 = FIRST | NESTED | BEFORE_USED;

/// The smallest chunk, in words: tag, two links, size.
pub(crate) const CHUNK_WORDS_MIN: u64 = 4;

/// Chunks of one list that are tried before a list of larger chunks is used instead.
const TRIES_MAX: usize = 8;

const BITMAP_WORDS: u64 = CLASSES.div_ceil(64) as u64;
const FREE_WORDS: u64 = BITMAP_WORDS;
const FREE_CHUNKS: u64 = BITMAP_WORDS + 1;
const USED_WORDS: u64 = BITMAP_WORDS + 2;
const USED_CHUNKS: u64 = BITMAP_WORDS + 3;
const HEADS: u64 = 16;

/// Words that the state of one heap takes in the region.
pub(crate) const STATE_WORDS: u64 = HEADS + CLASSES as u64;

/// A heap over spans of a region. The lock around it serialises its users.
#[derive(Debug)]
pub struct Heap {
    state: Offset,
    /// [`NESTED`] or nothing: the flag in every tag of this heap.
    level: u64,
}

/// How much memory a heap has and how it is cut up, in words of eight bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HeapStats {
    /// Words in free chunks.
    pub free_words: u64,
    /// Free chunks.
    pub free_chunks: u64,
    /// Words in chunks in use, tags included.
    pub used_words: u64,
    /// Chunks in use.
    pub used_chunks: u64,
    /// About the largest free chunk, in words: the first that is found in the highest list.
    pub largest_free_words: u64,
}

impl HeapStats {
    /// Adds another heap's.
    pub fn add(&mut self, other: &Self) {
        self.free_words += other.free_words;
        self.free_chunks += other.free_chunks;
        self.used_words += other.used_words;
        self.used_chunks += other.used_chunks;
        self.largest_free_words = self.largest_free_words.max(other.largest_free_words);
    }
}

impl Heap {
    pub(crate) fn new(state: Offset, is_nested: bool) -> Self {
        Self { state, level: if is_nested { NESTED } else { 0 } }
    }

    /// Makes `words` from `start` on available.
    pub(crate) fn add_span(&mut self, region: &Region, start: Offset, words: u64) {
        let chunk_words = words - 1;
        let end = self.level | USED | END;
        put(region, start.plus(chunk_words), 1 << FLAG_BITS | end);
        self.put_free(region, start, chunk_words, FIRST | BEFORE_USED | self.level);
    }

    /// Removes an empty span. `start` comes from [`Heap::free`].
    pub(crate) fn remove_span(&mut self, region: &Region, start: Offset) {
        self.unlink(region, start, size_at(region, start));
    }

    /// A chunk with room for `payload_words`; the offset of its payload.
    pub(crate) fn allocate(&mut self, region: &Region, payload_words: u64) -> Option<Offset> {
        let words = (payload_words + 1).max(CHUNK_WORDS_MIN);
        let chunk = self.find(region, words)?;
        let tag = at(region, chunk);
        let found_words = tag >> FLAG_BITS;
        self.unlink(region, chunk, found_words);
        let rest = found_words - words;
        let used_words = if rest < CHUNK_WORDS_MIN { found_words } else { words };
        if used_words < found_words {
            self.put_free(region, chunk.plus(words), rest, BEFORE_USED | self.level);
            // The tags of a span form a chain at any moment, even if the process is killed here: the tag in
            // the middle of a chunk is written before the chunk is cut off there.
            compiler_fence(Release);
        } else {
            let next = chunk.plus(found_words);
            put(region, next, at(region, next) | BEFORE_USED);
        }
        put(region, chunk, used_words << FLAG_BITS | tag & PLACE_FLAGS | USED);
        self.count_used(region, used_words, 1);
        Some(chunk.plus(1))
    }

    /// As [`Heap::allocate`], but the last part of a free chunk that is as large as there are.
    pub(crate) fn allocate_last(&mut self, region: &Region, payload_words: u64) -> Option<Offset> {
        let words = (payload_words + 1).max(CHUNK_WORDS_MIN);
        let chunk = self.largest(region).filter(|&chunk| size_at(region, chunk) >= words + CHUNK_WORDS_MIN);
        let Some(chunk) = chunk else { return self.allocate(region, payload_words) };
        let tag = at(region, chunk);
        let rest = (tag >> FLAG_BITS) - words;
        self.unlink(region, chunk, rest + words);
        let last = chunk.plus(rest);
        put(region, last, words << FLAG_BITS | self.level | USED);
        compiler_fence(Release);
        let next = last.plus(words);
        put(region, next, at(region, next) | BEFORE_USED);
        self.put_free(region, chunk, rest, tag & PLACE_FLAGS);
        self.count_used(region, words, 1);
        Some(last.plus(1))
    }

    /// Frees the chunk with this payload, and merges it with its free neighbours. If it was the last in its span, the
    /// span is one free chunk now; returns where it begins.
    pub(crate) fn free(&mut self, region: &Region, payload: Offset) -> Option<Offset> {
        let mut chunk = payload.minus(1);
        let tag = at(region, chunk);
        // Not only in debug builds: a chunk freed twice would be handed out twice.
        assert!(tag & (USED | END) == USED && tag & NESTED == self.level, "not a chunk in use");
        let mut words = tag >> FLAG_BITS;
        let mut place = tag & PLACE_FLAGS;
        self.count_used(region, words, -1);
        let next = chunk.plus(words);
        let next_tag = at(region, next);
        if next_tag & USED == 0 {
            self.unlink(region, next, next_tag >> FLAG_BITS);
            words += next_tag >> FLAG_BITS;
        }
        if tag & BEFORE_USED == 0 {
            let before_words = at(region, chunk.minus(1));
            chunk = chunk.minus(before_words);
            place = at(region, chunk) & PLACE_FLAGS;
            self.unlink(region, chunk, before_words);
            words += before_words;
        }
        self.put_free(region, chunk, words, place);
        let is_span = place & FIRST != 0 && at(region, chunk.plus(words)) & END != 0;
        is_span.then_some(chunk)
    }

    /// The heap's counts, with the largest free chunk. Constant time.
    pub(crate) fn stats(&self, region: &Region) -> HeapStats {
        let largest_free_words = self.largest(region).map_or(0, |chunk| size_at(region, chunk));
        HeapStats { largest_free_words, ..self.counts(region) }
    }

    /// As [`Heap::stats`], without the largest free chunk.
    pub(crate) fn counts(&self, region: &Region) -> HeapStats {
        HeapStats {
            free_words: self.state_at(region, FREE_WORDS),
            free_chunks: self.state_at(region, FREE_CHUNKS),
            used_words: self.used_words(region),
            used_chunks: self.state_at(region, USED_CHUNKS),
            largest_free_words: 0,
        }
    }

    /// Words in chunks in use, tags included.
    pub(crate) fn used_words(&self, region: &Region) -> u64 {
        self.state_at(region, USED_WORDS)
    }

    /// Words of all chunks, free or in use.
    pub(crate) fn words(&self, region: &Region) -> u64 {
        self.state_at(region, FREE_WORDS) + self.state_at(region, USED_WORDS)
    }

    /// The largest of the first few in the highest list.
    fn largest(&self, region: &Region) -> Option<Offset> {
        let class = (0..BITMAP_WORDS).rev().find_map(|index| {
            let bits = self.state_at(region, index);
            (bits != 0).then(|| index as usize * 64 + bits.ilog2() as usize)
        })?;
        self.list(region, class).take(TRIES_MAX).max_by_key(|&chunk| size_at(region, chunk))
    }

    /// The first free chunk that is large enough, of a few of its own class or of a higher one.
    fn find(&self, region: &Region, words: u64) -> Option<Offset> {
        let class = class_of(words);
        if is_exact(class) {
            return self.first_from(region, class);
        }
        let mut tried = self.list(region, class).take(TRIES_MAX);
        tried.find(|&chunk| size_at(region, chunk) >= words).or_else(|| self.first_from(region, class + 1))
    }

    /// The first chunk of the lowest list that is not empty, from `class` up.
    fn first_from(&self, region: &Region, class: usize) -> Option<Offset> {
        let mut mask = u64::MAX << (class % 64);
        for index in class as u64 / 64..BITMAP_WORDS {
            let bits = self.state_at(region, index) & mask;
            if bits != 0 {
                return self.list(region, index as usize * 64 + bits.trailing_zeros() as usize).next();
            }
            mask = u64::MAX;
        }
        None
    }

    /// The first link of a list, 0 for none.
    pub(crate) fn head(&self, region: &Region, class: usize) -> u64 {
        self.state_at(region, HEADS + class as u64)
    }

    /// True if the bitmap marks a list as not empty.
    pub(crate) fn is_marked(&self, region: &Region, class: usize) -> bool {
        self.state_at(region, class as u64 / 64) >> (class % 64) & 1 == 1
    }

    /// [`NESTED`] or nothing: the flag in every tag of this heap.
    pub(crate) fn level(&self) -> u64 {
        self.level
    }

    fn list<'a>(&self, region: &'a Region, class: usize) -> impl Iterator<Item = Offset> + use<'a> {
        let head = self.head(region, class);
        std::iter::successors(offset(head), move |chunk| offset(at(region, chunk.plus(1))))
    }

    /// Writes a free chunk's tag, links and size, and puts it first in its list.
    pub(crate) fn put_free(&mut self, region: &Region, chunk: Offset, words: u64, place: u64) {
        put(region, chunk, words << FLAG_BITS | place);
        put(region, chunk.plus(words - 1), words);
        let next = chunk.plus(words);
        put(region, next, at(region, next) & !BEFORE_USED);
        let class = class_of(words);
        let head = self.head(region, class);
        put(region, chunk.plus(1), head);
        put(region, chunk.plus(2), 0);
        if let Some(head) = offset(head) {
            put(region, head.plus(2), chunk.words());
        }
        self.put_head(region, class, chunk.words());
        self.count_free(region, words, 1);
    }

    fn unlink(&mut self, region: &Region, chunk: Offset, words: u64) {
        let (next, before) = (at(region, chunk.plus(1)), at(region, chunk.plus(2)));
        if let Some(next) = offset(next) {
            put(region, next.plus(2), before);
        }
        match offset(before) {
            Some(before) => put(region, before.plus(1), next),
            None => self.put_head(region, class_of(words), next),
        }
        self.count_free(region, words, -1);
    }

    fn put_head(&mut self, region: &Region, class: usize, head: u64) {
        put(region, self.state.plus(HEADS + class as u64), head);
        let (index, bit) = (class as u64 / 64, 1 << (class % 64));
        let bits = self.state_at(region, index);
        put(region, self.state.plus(index), if head == 0 { bits & !bit } else { bits | bit });
    }

    fn count_free(&mut self, region: &Region, words: u64, chunks: i64) {
        self.count(region, FREE_WORDS, words, chunks);
    }

    pub(crate) fn count_used(&mut self, region: &Region, words: u64, chunks: i64) {
        self.count(region, USED_WORDS, words, chunks);
    }

    /// Adds one chunk of `words` to a pair of counts, or takes it away.
    fn count(&mut self, region: &Region, pair: u64, words: u64, chunks: i64) {
        let sum = self.state_at(region, pair).wrapping_add_signed(words as i64 * chunks);
        put(region, self.state.plus(pair), sum);
        let sum = self.state_at(region, pair + 1).wrapping_add_signed(chunks);
        put(region, self.state.plus(pair + 1), sum);
    }

    fn state_at(&self, region: &Region, index: u64) -> u64 {
        at(region, self.state.plus(index))
    }
}

pub(crate) fn tag_of(region: &Region, payload: Offset) -> u64 {
    at(region, payload.minus(1))
}

/// Adds flags to the tag of the chunk with this payload.
pub(crate) fn mark(region: &Region, payload: Offset, flags: u64) {
    put(region, payload.minus(1), tag_of(region, payload) | flags);
}

pub(crate) fn put_tag(region: &Region, chunk: Offset, words: u64, flags: u64) {
    put(region, chunk, words << FLAG_BITS | flags);
}

/// Words of the chunk that begins here, its tag included.
pub(crate) fn size_at(region: &Region, chunk: Offset) -> u64 {
    at(region, chunk) >> FLAG_BITS
}

/// The chunks of a span by its tags: place, tag, words. The last one is the end tag.
///
/// Reads no word that a killed process may have left half written.
pub(crate) fn tags(
    region: &Region,
    span: Range<Offset>,
) -> impl Iterator<Item = Result<(Offset, u64, u64), String>> {
    let last = span.end.minus(1);
    let mut next = Some(span.start);
    std::iter::from_fn(move || {
        let chunk = next.take()?;
        let (tag, words) = (tag_of(region, chunk.plus(1)), size_at(region, chunk));
        if chunk == last && tag & END != 0 {
            return Some(Ok((chunk, tag, words)));
        }
        let first = if chunk == span.start { FIRST } else { 0 };
        let room = last.words() - chunk.words();
        if tag & (FIRST | END) != first || !(CHUNK_WORDS_MIN..=room).contains(&words) {
            return Some(Err(format!("chunk {}: bad tag {tag:#x}", chunk.words())));
        }
        next = Some(chunk.plus(words));
        Some(Ok((chunk, tag, words)))
    })
}

fn offset(link: u64) -> Option<Offset> {
    (link != 0).then(|| Offset::from_words(link))
}

// Relaxed throughout: the heap is used under a lock, and readers that stray here check a version.
fn at(region: &Region, offset: Offset) -> u64 {
    region.word(offset).load(Relaxed)
}

fn put(region: &Region, offset: Offset, value: u64) {
    #[cfg(test)]
    crate::tests::kill::before_store();
    region.word(offset).store(value, Relaxed);
}
