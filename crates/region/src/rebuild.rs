//! Rebuilding the heaps of a region whose process was killed.
//!
//! A process may stop between any two stores. Items in the index are intact nevertheless, because they were
//! linked when they were complete; but lists and counts of the heaps may be half changed, and allocated
//! memory may have no reference. The engine finds the live chunks, and everything else becomes free.
//!
//! Only the tags of the region's heap show which memory is an arena. They form a chain after any store (see
//! `heap.rs`), if the process stopped and not the machine.

use crate::{
    heap::{ARENA, BEFORE_USED, CHUNK_WORDS_MIN, END, FIRST, Heap, LOG, STATE_WORDS, USED, put_tag, tags},
    layout::{reserve_state, root_state},
    memory::Memory,
    offset::Offset,
    region::Region,
};
use std::{ops::Range, sync::atomic::Ordering::Relaxed};

/// The use of a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChunkKind {
    /// [`Memory::allocate_shared`], with the heap of this partition.
    Shared {
        /// Number of the partition.
        partition: usize,
    },
    /// [`Memory::allocate_settled`].
    Settled,
    /// [`Memory::allocate_forever`], or any part of such memory: all of it is kept then.
    Forever,
    /// [`Memory::allocate_arena`].
    Arena,
}

/// A chunk that is alive, for [`Memory::rebuild`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UsedChunk {
    /// The start of its payload, as returned by the allocation; for an arena [`crate::Arena::start`].
    pub payload: Offset,
    /// How much of it is in use, in words.
    pub words: u64,
    /// Its use.
    pub kind: ChunkKind,
}

/// A chunk that keeps its place, from its tag to the next.
#[derive(Clone, Copy, Debug)]
struct Piece {
    start: Offset,
    end: Offset,
    /// [`ARENA`], [`LOG`] or nothing.
    flags: u64,
}

impl Piece {
    fn payload(&self) -> Offset {
        self.start.plus(1)
    }
}

/// The chunks to keep.
#[derive(Debug, Default)]
struct Plan {
    /// Chunks of the region's heap and of the reserve's, in ascending order.
    roots: Vec<Piece>,
    /// Chunks in arenas of partitions' heaps, each with the arena's payload and its partition.
    nested: Vec<(Offset, usize, Vec<Piece>)>,
    /// Chunks outside the arenas that readers may access without a lock, with their words.
    shared: Vec<(Offset, u64)>,
}

impl Memory {
    /// Rebuilds the heaps around the live chunks; everything else becomes free.
    ///
    /// `used` ascends by payload. No [`Heap`] of a partition may be in use;
    /// [`Memory::partition_heap`] is right afterwards. The contents of the chunks stay. If the
    /// process is killed in here, the call may be repeated.
    ///
    /// # Errors
    /// If the tags of the region's heap are broken, or if `used` is impossible: out of order, overlapping, or
    /// at places without such a chunk. Nothing is changed then.
    pub fn rebuild(&mut self, used: &[UsedChunk]) -> Result<(), String> {
        let plan = self.plan(used)?;
        self.clear_tables();
        let (region, middle) = (self.region(), self.layout.reserve_start);
        let (chunks, reserved) =
            plan.roots.split_at(plan.roots.partition_point(|piece| piece.start < middle));
        Heap::new(root_state(), false).lay_out(region, self.layout.chunks_start..middle, chunks);
        if self.layout.has_reserve() {
            Heap::new(reserve_state(), false).lay_out(region, middle..self.layout.end, reserved);
        }
        for piece in chunks.iter().filter(|piece| piece.flags != 0) {
            self.open_arena(piece.payload(), piece.flags);
        }
        for (payload, partition, pieces) in &plan.nested {
            let span = self.arena_range(*payload);
            self.partition_heap(*partition).lay_out(region, span, pieces);
        }
        for &(payload, words) in &plan.shared {
            self.layout.shared.mark(region, payload, words);
        }
        Ok(())
    }

    fn plan(&self, used: &[UsedChunk]) -> Result<Plan, String> {
        if let Some(pair) = used.windows(2).find(|pair| pair[0].end_words() >= pair[1].payload.words()) {
            return Err(wrong(&pair[1], "out of order, or overlaps the one before"));
        }
        let mut plan = Plan::default();
        let mut rest = used;
        let middle = self.layout.reserve_start;
        let chunks = tags(self.region(), self.layout.chunks_start..middle);
        let reserved = self.layout.has_reserve().then(|| tags(self.region(), middle..self.layout.end));
        for step in chunks.chain(reserved.into_iter().flatten()) {
            let (start, tag, words) = step?;
            let root = Piece { start, end: start.plus(words), flags: tag & (ARENA | LOG) };
            let (inside, behind) = rest.split_at(rest.partition_point(|chunk| chunk.payload < root.end));
            rest = behind;
            if !inside.is_empty() {
                self.keep(&mut plan, root, tag & USED != 0, inside)?;
            }
        }
        rest.first().map_or(Ok(plan), |chunk| Err(wrong(chunk, "lies outside")))
    }

    /// Adds a chunk of the region's heap to the plan, because `inside` lie there.
    fn keep(&self, plan: &mut Plan, root: Piece, is_used: bool, inside: &[UsedChunk]) -> Result<(), String> {
        let is_inside = |chunk: &&UsedChunk| {
            chunk.payload > root.start && chunk.end_words() <= root.end.words() && is_used
        };
        if let Some(chunk) = inside.iter().find(|chunk| !is_inside(chunk)) {
            return Err(wrong(chunk, "lies in no chunk in use"));
        }
        let is_arena = root.end.words() - root.start.words() > self.layout.arena_payload_words();
        match (root.flags, inside) {
            (ARENA, _) if is_arena => plan.nested.push(self.nested(root, inside)?),
            (LOG, [chunk]) if is_arena && self.is_log(root, chunk) => {}
            (0, [chunk]) if chunk.payload == root.payload() && self.is_chunk(plan, chunk) => {}
            (0, _) if inside.iter().all(|chunk| chunk.kind == ChunkKind::Forever) => {}
            _ => return Err(wrong(&inside[0], "is not what lies there")),
        }
        plan.roots.push(root);
        Ok(())
    }

    fn is_log(&self, root: Piece, chunk: &UsedChunk) -> bool {
        let span = self.arena_range(root.payload());
        chunk.kind == ChunkKind::Arena && chunk.payload == span.start && chunk.end_words() <= span.end.words()
    }

    /// True if a chunk may be one of the region's heap by itself.
    fn is_chunk(&self, plan: &mut Plan, chunk: &UsedChunk) -> bool {
        match chunk.kind {
            ChunkKind::Settled => true,
            ChunkKind::Shared { partition } => {
                plan.shared.push((chunk.payload, chunk.words));
                self.has_partition(partition) && !self.is_in_reserve(chunk.payload)
            }
            ChunkKind::Forever | ChunkKind::Arena => false,
        }
    }

    /// The chunks of a partition's heap in one of its arenas.
    fn nested(&self, root: Piece, inside: &[UsedChunk]) -> Result<(Offset, usize, Vec<Piece>), String> {
        let span = self.arena_range(root.payload());
        let last = span.end.minus(1);
        let (mut pieces, mut at) = (Vec::with_capacity(inside.len()), span.start);
        for chunk in inside {
            let start = chunk.payload.minus(1);
            let end = start.plus((chunk.words + 1).max(CHUNK_WORDS_MIN));
            let gap_words = start.words().checked_sub(at.words());
            // Behind another chunk, less than a chunk is lost to that one.
            let fits = gap_words.is_some_and(|gap| gap == 0 || gap >= CHUNK_WORDS_MIN || at > span.start);
            if chunk.kind != inside[0].kind || !fits || end > last {
                return Err(wrong(chunk, "does not fit into its arena"));
            }
            pieces.push(Piece { start, end, flags: 0 });
            at = end;
        }
        match inside[0].kind {
            ChunkKind::Shared { partition } if self.has_partition(partition) => {
                Ok((root.payload(), partition, pieces))
            }
            _ => Err(wrong(&inside[0], "lies in the arena of a partition")),
        }
    }

    /// Clears all lists and counts, and the map of shared memory: the readers of the old process are gone.
    fn clear_tables(&self) {
        let partitions = 0..self.geometry().partitions as usize;
        let states = partitions.map(|number| self.layout.partition_state(number));
        for state in states.chain([root_state(), reserve_state()]) {
            clear(self.region(), state, STATE_WORDS);
        }
        self.layout.shared.clear(self.region());
    }

    fn arena_range(&self, payload: Offset) -> Range<Offset> {
        let span = self.layout.arena_span(payload);
        span..span.plus(self.arena_words())
    }

    fn has_partition(&self, partition: usize) -> bool {
        (partition as u64) < self.geometry().partitions
    }
}

impl Heap {
    /// Builds `span` from the chunks in use, in order, with free chunks between them. A gap too small for a
    /// chunk is added to the chunk before it. The state of the heap was cleared before.
    fn lay_out(&mut self, region: &Region, span: Range<Offset>, pieces: &[Piece]) {
        let last = span.end.minus(1);
        let (mut at, mut place) = (span.start, FIRST | BEFORE_USED | self.level());
        for (number, piece) in pieces.iter().enumerate() {
            place = self.lay_free(region, at..piece.start, place);
            let next = pieces.get(number + 1).map_or(last, |next| next.start);
            let room = next.words() - piece.end.words();
            at = if room < CHUNK_WORDS_MIN { next } else { piece.end };
            let words = at.words() - piece.start.words();
            put_tag(region, piece.start, words, place | piece.flags | USED);
            self.count_used(region, words, 1);
            place = BEFORE_USED | self.level();
        }
        let place = self.lay_free(region, at..last, place);
        put_tag(region, last, 1, place | USED | END);
    }

    /// Writes a free chunk, if there is room; returns the place flags of the next chunk.
    fn lay_free(&mut self, region: &Region, range: Range<Offset>, place: u64) -> u64 {
        let words = range.end.words() - range.start.words();
        if words == 0 {
            return place;
        }
        self.put_free(region, range.start, words, place);
        self.level()
    }
}

impl UsedChunk {
    fn end_words(&self) -> u64 {
        self.payload.words().saturating_add(self.words)
    }
}

fn clear(region: &Region, start: Offset, words: u64) {
    for word in region.words(start, words as usize) {
        word.store(0, Relaxed);
    }
}

fn wrong(chunk: &UsedChunk, what: &str) -> String {
    let UsedChunk { payload, words, kind } = chunk;
    format!("the chunk of {words} words at {} ({kind:?}) {what}", payload.words())
}
