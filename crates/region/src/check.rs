//! Walks all chunks of a heap and checks them: for tests, and for a region that is reopened.
//!
//! The walk trusts no word that it reads: for any contents of the region, it ends and stays inside.

use crate::{
    class::{CLASSES, class_of},
    heap::{
        ARENA, BEFORE_USED, CHUNK_WORDS_MIN, END, Heap, HeapStats, LOG, NESTED, USED, size_at, tag_of, tags,
    },
    memory::Memory,
    offset::Offset,
    region::Region,
};
use minos_sync::SpinLock;
use std::{collections::HashSet, ops::Range, sync::atomic::Ordering::Relaxed};

#[derive(Debug, Default)]
pub(crate) struct Walk {
    pub(crate) stats: HeapStats,
    pub(crate) free: HashSet<u64>,
    /// Payloads of the chunks in use, with their words.
    pub(crate) used: Vec<(Offset, u64)>,
    /// Payloads of the chunks that are spans of partitions' heaps, with their words.
    pub(crate) arenas: Vec<(Offset, u64)>,
    /// Payloads of the chunks that are arenas of logs, with their words.
    pub(crate) logs: Vec<(Offset, u64)>,
    /// True if only `stats` are collected, so that the walk needs no memory for each chunk.
    counts_only: bool,
}

impl Memory {
    /// Walks all chunks. The caller holds the locks of all partitions, and passes their heaps. Returns the
    /// payloads and words of the chunks in use that are not arenas.
    ///
    /// # Errors
    /// The inconsistency found in the heaps.
    pub fn check(&self, partitions: &[&Heap]) -> Result<Vec<(Offset, u64)>, String> {
        let mut root = self.walk_root()?;
        let mut spans = Walk::default();
        self.walk_arenas(&root, &mut spans)?;
        self.compare_counts(&spans, partitions.iter().copied())?;
        if let [partition] = partitions {
            spans.agrees_with(self.region(), partition, &self.chunks())?;
        }
        root.used.append(&mut spans.used);
        Ok(root.used)
    }

    /// Walks all chunks as [`Memory::check`] does, but collects nothing, so that it suits large regions. No
    /// other thread may use the heaps meanwhile.
    ///
    /// # Errors
    /// The inconsistency found in the heaps.
    pub fn verify(&self) -> Result<(), String> {
        let root = self.walk_root()?;
        let mut spans = Walk { counts_only: true, ..Walk::default() };
        self.walk_arenas(&root, &mut spans)?;
        let heaps: Vec<_> =
            (0..self.geometry().partitions as usize).map(|number| self.partition_heap(number)).collect();
        self.compare_counts(&spans, heaps.iter())?;
        for heap in &heaps {
            let mut listed = 0;
            each_listed(self.region(), heap, &self.chunks(), |_| {
                listed += 1;
                Ok(())
            })?;
            let counted = heap.counts(self.region()).free_chunks;
            if listed != counted {
                return Err(format!("a partition lists {listed} free chunks and counts {counted}"));
            }
        }
        Ok(())
    }

    /// Walks the heaps of the region and of the reserve, and compares them with their counts.
    pub(crate) fn walk_root(&self) -> Result<Walk, String> {
        let [chunks, reserve] = self.layout.zones();
        let mut root = self.walk_zone(&self.heap, chunks)?;
        if self.layout.has_reserve() {
            root.used.append(&mut self.walk_zone(&self.reserve, reserve)?.used);
        }
        for &(payload, words) in root.arenas.iter().chain(&root.logs) {
            let span = self.layout.arena_span(payload);
            if words < self.layout.arena_payload_words() || self.arena_payload(span) != payload {
                return Err(format!("the chunk at {} is no arena", payload.words()));
            }
        }
        Ok(root)
    }

    fn walk_zone(&self, heap: &SpinLock<Heap>, zone: Range<Offset>) -> Result<Walk, String> {
        let heap = heap.lock();
        let mut walk = Walk::default();
        walk.span(self.region(), zone.clone(), 0)?;
        walk.agrees_with(self.region(), &heap, &zone)?;
        Ok(walk)
    }

    fn walk_arenas(&self, root: &Walk, spans: &mut Walk) -> Result<(), String> {
        for &(payload, _) in &root.arenas {
            let span = self.layout.arena_span(payload);
            spans.span(self.region(), span..span.plus(self.arena_words()), NESTED)?;
        }
        Ok(())
    }

    fn compare_counts<'a>(&self, spans: &Walk, heaps: impl Iterator<Item = &'a Heap>) -> Result<(), String> {
        let mut counted = HeapStats::default();
        heaps.for_each(|heap| counted.add(&heap.counts(self.region())));
        if counted == spans.stats {
            Ok(())
        } else {
            Err(format!("arenas hold {:?}, partitions count {counted:?}", spans.stats))
        }
    }

    /// Where chunks of the region's heap lie, and with them those of the partitions.
    fn chunks(&self) -> Range<Offset> {
        self.layout.chunks_start..self.layout.reserve_start
    }
}

impl Walk {
    /// Walks one span, from its first chunk to its end tag, in the region's heap or a nested one by `level`.
    fn span(&mut self, region: &Region, span: Range<Offset>, level: u64) -> Result<(), String> {
        let (mut chunk, mut before_used) = (span.start, true);
        for step in tags(region, span) {
            let (at, tag, words) = step?;
            // A chunk with other flags would be freed to another heap, or as another kind.
            if tag & NESTED != level || level == NESTED && tag & (ARENA | LOG) != 0 {
                return Err(format!("chunk {}: of another heap", at.words()));
            }
            if (tag & BEFORE_USED != 0) != before_used {
                return Err(format!("chunk {}: wrong about the chunk before it", at.words()));
            }
            if tag & END != 0 {
                return Ok(());
            }
            if tag & USED == 0 && !before_used {
                return Err(format!("chunk {}: two free chunks in a row", at.words()));
            }
            before_used = tag & USED != 0;
            self.chunk(region, at, tag, words)?;
            chunk = at;
        }
        Err(format!("chunk {}: the span does not end", chunk.words()))
    }

    fn chunk(&mut self, region: &Region, chunk: Offset, tag: u64, words: u64) -> Result<(), String> {
        if tag & USED == 0 {
            self.stats.free_words += words;
            self.stats.free_chunks += 1;
            if !self.counts_only {
                self.free.insert(chunk.words());
            }
            let size = tag_of(region, chunk.plus(words));
            return if size == words { Ok(()) } else { Err(format!("chunk {}: bad size", chunk.words())) };
        }
        self.stats.used_words += words;
        self.stats.used_chunks += 1;
        let list = match tag & (ARENA | LOG) {
            0 if self.counts_only => return Ok(()),
            0 => &mut self.used,
            LOG => &mut self.logs,
            _ => &mut self.arenas,
        };
        list.push((chunk.plus(1), words - 1));
        Ok(())
    }

    /// Compares the walk's result with the lists and counts of `heap`.
    fn agrees_with(&self, region: &Region, heap: &Heap, zone: &Range<Offset>) -> Result<(), String> {
        let mut listed = 0;
        each_listed(region, heap, zone, |chunk| {
            listed += 1;
            let is_free = self.free.contains(&chunk.words());
            if is_free { Ok(()) } else { Err(format!("chunk {} is listed, but not free", chunk.words())) }
        })?;
        // No chunk is listed twice, so that as many are the same.
        if listed != self.free.len() {
            return Err(format!("{listed} chunks listed, {} free", self.free.len()));
        }
        let counted = heap.counts(region);
        if counted == self.stats {
            Ok(())
        } else {
            Err(format!("counted {counted:?}, found {:?}", self.stats))
        }
    }
}

/// Calls `each` for every chunk in the lists of a heap, none twice: a list in which one comes twice, or
/// which leaves `zone`, is an error.
fn each_listed(
    region: &Region,
    heap: &Heap,
    zone: &Range<Offset>,
    mut each: impl FnMut(Offset) -> Result<(), String>,
) -> Result<(), String> {
    for class in 0..CLASSES {
        let (mut link, mut before) = (heap.head(region, class), 0);
        if heap.is_marked(region, class) != (link != 0) {
            return Err(format!("list {class} is not what the bitmap says"));
        }
        while link != 0 {
            let chunk = listed_chunk(region, heap, zone, link, class)
                // Each is reached from one chunk only, so that the list cannot come back to itself.
                .filter(|chunk| region.word(chunk.plus(2)).load(Relaxed) == before)
                .ok_or_else(|| format!("chunk {link} is in the wrong list"))?;
            each(chunk)?;
            before = link;
            link = region.word(chunk.plus(1)).load(Relaxed);
        }
    }
    Ok(())
}

/// The free chunk at `link`, if it may be one of this list.
fn listed_chunk(
    region: &Region,
    heap: &Heap,
    zone: &Range<Offset>,
    link: u64,
    class: usize,
) -> Option<Offset> {
    let is_inside = (zone.start.words()..zone.end.words().saturating_sub(CHUNK_WORDS_MIN)).contains(&link);
    let chunk = is_inside.then(|| Offset::from_words(link))?;
    let tag = tag_of(region, chunk.plus(1));
    let is_listed = tag & (USED | NESTED) == heap.level() && class_of(size_at(region, chunk)) == class;
    is_listed.then_some(chunk)
}
