//! After a process was killed, live chunks are kept, and all other memory can be allocated again.

use super::{
    heap::{Held, Op, Return, ops},
    kill,
};
use crate::{Backing, ChunkKind, Geometry, Memory, Offset, Settled, UsedChunk, heap::STATE_WORDS, layout};
use proptest::{collection::vec, prelude::*, sample::Index};
use std::sync::atomic::Ordering::Relaxed;

impl Held {
    /// The chunks that the engine would find alive.
    fn alive(&self) -> Vec<UsedChunk> {
        let kind = |way| match way {
            Return::Shared => ChunkKind::Shared { partition: 0 },
            Return::Settled => ChunkKind::Settled,
            Return::Arena => ChunkKind::Arena,
            Return::Never => ChunkKind::Forever,
        };
        let alive = self.chunks.iter();
        alive
            .map(|(&start, &(words, way))| UsedChunk {
                payload: Offset::from_words(start),
                words,
                kind: kind(way),
            })
            .collect()
    }

    fn rebuild(&mut self) -> Result<(), String> {
        let alive = self.alive();
        self.memory.rebuild(&alive)?;
        self.heap = self.memory.partition_heap(0);
        Ok(())
    }

    /// Frees all chunks, which checks their contents, and checks that no memory is missing afterwards.
    fn free_all(&mut self) {
        while self.chunks.values().any(|(_, way)| *way != Return::Never) {
            self.free(0);
        }
        self.check();
    }

    /// Writes garbage everywhere except in live chunks and tags of the region's heap.
    fn scribble(&self, garbage: &[(Index, u64)]) {
        let region = self.memory.region();
        let layout = &self.memory.layout;
        let mut may_write = vec![false; region.len_words() as usize];
        let mut allow = |start: Offset, words: u64| {
            may_write[start.words() as usize..][..words as usize].fill(true);
        };
        for state in [layout::root_state(), layout::reserve_state(), layout.partition_state(0)] {
            allow(state, STATE_WORDS);
        }
        let root = self.memory.walk_root().unwrap();
        root.free.iter().for_each(|&chunk| allow(Offset::from_words(chunk + 1), 3));
        root.arenas.iter().for_each(|&(payload, _)| allow(layout.arena_span(payload), layout.arena_words));
        for (&start, &(words, _)) in &self.chunks {
            may_write[start as usize..][..words as usize].fill(false);
        }
        let places: Vec<u64> = (0..region.len_words()).filter(|&at| may_write[at as usize]).collect();
        for (at, value) in garbage {
            region.word(Offset::from_words(*at.get(&places))).store(*value, Relaxed);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn what_is_alive_is_kept_and_the_rest_is_free(
        before in ops(),
        after in ops(),
        lost in vec(any::<Index>(), 0..30),
        garbage in vec((any::<Index>(), prop_oneof![any::<u64>(), 0u64..1 << 27]), 0..2_000),
        has_reserve: bool,
    ) {
        let mut held = Held::with_reserve(if has_reserve { 500_001 } else { 0 });
        before.iter().for_each(|op| held.apply(op));
        held.scribble(&garbage);
        for at in lost {
            let starts: Vec<u64> = held.chunks.keys().copied().collect();
            if !starts.is_empty() {
                held.chunks.remove(at.get(&starts));
            }
        }
        held.rebuild().unwrap();
        held.check();
        held.memory.verify().unwrap();
        after.iter().for_each(|op| held.apply(op));
        held.check();
        held.free_all();
    }

    /// With any damage, tags of the region's heap included, a rebuild is refused or gives a correct heap.
    #[test]
    fn after_any_damage_the_region_is_refused_or_whole(
        before in ops(),
        garbage in vec((any::<Index>(), prop_oneof![any::<u64>(), 0u64..1 << 22]), 1..200),
    ) {
        let mut held = Held::with_reserve(500_001);
        before.iter().for_each(|op| held.apply(op));
        let start = held.memory.layout.chunks_start.words();
        let alive = |at: u64| {
            held.chunks.range(..=at).next_back().is_some_and(|(&start, &(words, _))| at < start + words)
        };
        let words = start..held.memory.region().len_words();
        let places: Vec<u64> = words.filter(|&at| !alive(at)).collect();
        for (at, value) in &garbage {
            held.memory.region().word(Offset::from_words(*at.get(&places))).store(*value, Relaxed);
        }
        if held.rebuild().is_ok() {
            held.check();
            held.free_all();
        }
    }

    /// Killed before each store of an operation in turn, and again while the memory is rebuilt.
    #[test]
    fn killed_at_any_store_the_region_can_be_rebuilt(
        before in ops(),
        last in ops(),
        stores_again in 0u64..400,
        has_reserve: bool,
    ) {
        let (before, last) = (&before[..before.len().min(40)], &last[0]);
        for stores in 0.. {
            let mut held = Held::with_reserve(if has_reserve { 500_001 } else { 0 });
            before.iter().for_each(|op| held.apply(op));
            let is_done = kill::after(stores, || held.apply(last));
            kill::after(stores_again, || held.rebuild().unwrap());
            held.rebuild().unwrap();
            held.check();
            held.free_all();
            if is_done {
                break;
            }
        }
    }
}

#[test]
fn the_kill_reaches_every_store() {
    let mut kills = 0;
    while !kill::after(kills, || Held::new().apply(&Op::Shared { words: 10 })) {
        kills += 1;
    }
    assert!(kills > 30, "{kills}");
}

#[test]
fn memory_that_was_shared_is_exclusive_again_when_its_readers_are_gone() {
    let mut held = Held::new();
    while let Some(chunk) = held.memory.allocate_shared(&mut held.heap, 500) {
        held.hold(chunk, 500, Return::Shared);
    }
    held.chunks.clear();
    held.rebuild().unwrap();
    assert!(matches!(held.memory.allocate_settled(100_000), Some(Settled::Exclusive(_))));
}

#[test]
fn parts_of_what_is_kept_forever_keep_all_of_it() {
    let geometry = Geometry { memory_bytes: 2 << 20, partitions: 1, ..Geometry::default() };
    let mut memory = Memory::create(geometry, &Backing::Private).unwrap();
    let block = memory.allocate_forever(512).unwrap();
    let used_words = memory.stats().used_words;
    let line =
        |number: u64| UsedChunk { payload: block.plus(number * 8), words: 8, kind: ChunkKind::Forever };
    memory.rebuild(&[line(3), line(9)]).unwrap();
    assert_eq!(memory.stats().used_words, used_words);
    memory.rebuild(&[]).unwrap();
    assert_eq!(memory.stats().used_words, 0);
}

/// A region with two partitions, and its live chunks.
fn region_of_two() -> (Memory, Vec<UsedChunk>) {
    let geometry =
        Geometry { memory_bytes: 2 << 20, partitions: 2, settled_bytes: 500_000, ..Geometry::default() };
    let memory = Memory::create(geometry, &Backing::Private).unwrap();
    let shared = |partition: usize, words| {
        let payload = memory.allocate_shared(&mut memory.partition_heap(partition), words).unwrap();
        UsedChunk { payload, words, kind: ChunkKind::Shared { partition } }
    };
    let mut used = vec![shared(0, 10), shared(0, 20), shared(1, 10), shared(1, 5_000)];
    let payload = memory.allocate_arena().unwrap().start();
    used.push(UsedChunk { payload, words: memory.arena_words(), kind: ChunkKind::Arena });
    let Some(Settled::Exclusive(settled)) = memory.allocate_settled(1_000) else { panic!() };
    used.push(UsedChunk { payload: settled.share(), words: 1_000, kind: ChunkKind::Settled });
    used.sort_by_key(|chunk| chunk.payload);
    (memory, used)
}

#[test]
fn what_cannot_be_alive_is_refused_and_nothing_is_changed() {
    let (mut memory, used) = region_of_two();
    let mut refuse = |at: usize, change: &dyn Fn(&mut UsedChunk), reason: &str| {
        let mut changed = used.clone();
        change(&mut changed[at]);
        let error = memory.rebuild(&changed).unwrap_err();
        assert!(error.contains(reason), "{error}");
        memory.check(&[&memory.partition_heap(0), &memory.partition_heap(1)]).unwrap();
    };
    let other = "is not what lies there";
    refuse(0, &|chunk| chunk.words = 11, "overlaps");
    refuse(0, &|chunk| chunk.payload = used[2].payload, "out of order");
    refuse(0, &|chunk| chunk.payload = Offset::from_words(10), "no chunk in use");
    refuse(0, &|chunk| chunk.payload = chunk.payload.minus(1), "does not fit");
    refuse(1, &|chunk| chunk.kind = ChunkKind::Shared { partition: 1 }, "does not fit");
    refuse(2, &|chunk| chunk.kind = ChunkKind::Shared { partition: 2 }, "the arena of a partition");
    refuse(2, &|chunk| chunk.kind = ChunkKind::Settled, "the arena of a partition");
    refuse(2, &|chunk| chunk.words = 1 << 13, "does not fit");
    refuse(3, &|chunk| chunk.words = 5_008, "no chunk in use");
    refuse(3, &|chunk| *chunk = UsedChunk { payload: chunk.payload.plus(1), words: 9, ..*chunk }, other);
    refuse(3, &|chunk| chunk.kind = ChunkKind::Shared { partition: 2 }, other);
    refuse(4, &|chunk| chunk.kind = ChunkKind::Settled, other);
    refuse(4, &|chunk| chunk.payload = chunk.payload.plus(64), "no chunk in use");
    refuse(5, &|chunk| chunk.kind = ChunkKind::Shared { partition: 0 }, other);
    refuse(5, &|chunk| chunk.payload = chunk.payload.plus(10_000), "no chunk in use");
    refuse(5, &|chunk| chunk.payload = Offset::from_words(1 << 30), "lies outside");
    memory.rebuild(&used).unwrap();
}

#[test]
fn broken_tags_of_the_region_are_refused() {
    let (mut memory, used) = region_of_two();
    let last = used[4].payload.plus(memory.arena_words() + 64);
    let tag =
        (0..64).map(|back| last.minus(back)).find(|&at| memory.region().word(at).load(Relaxed) >> 8 > 64);
    memory.region().word(tag.unwrap()).fetch_add(1 << 8, Relaxed);
    assert!(memory.rebuild(&used).is_err());
}
