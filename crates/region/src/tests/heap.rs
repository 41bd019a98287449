//! The heap against a model: no overlap, nothing lost, everything merged again.

use crate::{Arena, Backing, Geometry, Heap, Memory, Offset, Settled};
use proptest::{collection::vec, prelude::*};
use std::{collections::BTreeMap, sync::atomic::Ordering::Relaxed};

#[derive(Clone, Debug)]
pub(super) enum Op {
    Shared { words: u64 },
    Settled { words: u64 },
    Forever { words: u64 },
    Arena,
    Free { at: usize },
}

/// The use of a chunk, which decides how it is freed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Return {
    Shared,
    Settled,
    Arena,
    Never,
}

pub(super) fn ops() -> impl Strategy<Value = Vec<Op>> {
    let words = prop_oneof![6 => 1u64..40, 3 => 40u64..600, 2 => 600u64..5_000, 1 => 5_000u64..60_000];
    let op = prop_oneof![
        6 => words.clone().prop_map(|words| Op::Shared { words }),
        2 => words.prop_map(|words| Op::Settled { words }),
        1 => (1u64..600).prop_map(|words| Op::Forever { words }),
        1 => Just(Op::Arena),
        8 => any::<usize>().prop_map(|at| Op::Free { at }),
    ];
    vec(op, 1..400)
}

/// The allocated chunks: words by offset, and how each is freed.
pub(super) struct Held {
    pub(super) memory: Memory,
    pub(super) heap: Heap,
    pub(super) chunks: BTreeMap<u64, (u64, Return)>,
    seed: u64,
}

impl Held {
    pub(super) fn new() -> Self {
        Self::with_reserve(0)
    }

    pub(super) fn with_reserve(settled_bytes: u64) -> Self {
        let geometry = Geometry {
            memory_bytes: 2 << 20,
            partitions: 1,
            partition_words: 100,
            settled_bytes,
            ..Geometry::default()
        };
        let memory = Memory::create(geometry, &Backing::Private).unwrap();
        let heap = memory.partition_heap(0);
        Self { memory, heap, chunks: BTreeMap::new(), seed: 0 }
    }

    pub(super) fn apply(&mut self, op: &Op) {
        let (chunk, words, way) = match *op {
            Op::Shared { words } => {
                (self.memory.allocate_shared(&mut self.heap, words), words, Return::Shared)
            }
            Op::Settled { words } => (self.settled(words), words, Return::Settled),
            Op::Forever { words } => (self.memory.allocate_forever(words), words, Return::Never),
            Op::Arena => {
                (self.memory.allocate_arena().map(Arena::start), self.memory.arena_words(), Return::Arena)
            }
            Op::Free { at } => return self.free(at),
        };
        if let Some(chunk) = chunk {
            assert!(matches!(way, Return::Shared | Return::Settled) || chunk.words() % 8 == 0);
            assert!(
                way == Return::Settled || !self.memory.is_in_reserve(chunk),
                "the reserve is for large values"
            );
            self.hold(chunk, words, way);
        }
    }

    fn settled(&mut self, words: u64) -> Option<Offset> {
        Some(match self.memory.allocate_settled(words)? {
            Settled::Shared(chunk) => chunk,
            Settled::Exclusive(mut exclusive) => {
                exclusive.bytes_mut(self.memory.region(), 0, words as usize * 8).fill(0xa5);
                exclusive.share()
            }
        })
    }

    pub(super) fn hold(&mut self, chunk: Offset, words: u64, way: Return) {
        let before = self.chunks.range(..chunk.words()).next_back();
        assert!(before.is_none_or(|(&start, &(words, _))| start + words <= chunk.words()), "overlap");
        let after = self.chunks.range(chunk.words()..).next();
        assert!(after.is_none_or(|(&start, _)| chunk.words() + words <= start), "overlap");
        for word in self.memory.region().words(chunk, words as usize) {
            word.store(chunk.words(), Relaxed);
        }
        self.chunks.insert(chunk.words(), (words, way));
    }

    pub(super) fn free(&mut self, at: usize) {
        self.seed = self.seed.wrapping_add(at as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let freeable = self.chunks.iter().filter(|(_, (_, way))| *way != Return::Never);
        let Some((&start, &(words, way))) = freeable.clone().nth(at % freeable.count().max(1)) else {
            return;
        };
        let chunk = Offset::from_words(start);
        for word in self.memory.region().words(chunk, words as usize) {
            assert_eq!(word.load(Relaxed), start, "somebody else wrote here");
        }
        self.chunks.remove(&start);
        match way {
            Return::Arena => self.memory.free_arena(Arena::from_start(chunk)),
            _ => self.memory.free(&mut self.heap, chunk),
        }
    }

    pub(super) fn check(&self) {
        let used = self.memory.check(&[&self.heap]).unwrap();
        let arenas = self.memory.log_arenas().unwrap();
        assert_eq!(used.len() + arenas.len(), self.chunks.len());
        let held = self.chunks.iter().filter(|(_, (_, way))| *way == Return::Arena).map(|(&start, _)| start);
        assert!(arenas.iter().map(|arena| arena.start().words()).eq(held));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn chunks_never_overlap_and_all_comes_back(ops in ops(), has_reserve: bool) {
        let mut held = Held::with_reserve(if has_reserve { 500_001 } else { 0 });
        let empty = held.memory.stats();
        for (step, op) in ops.iter().enumerate() {
            held.apply(op);
            if step % 16 == 0 {
                held.check();
            }
        }
        held.check();
        let never = held.chunks.values().filter(|(_, way)| *way == Return::Never);
        let kept_words: u64 = never.map(|(words, _)| words).sum();
        while held.chunks.values().any(|(_, way)| *way != Return::Never) {
            held.free(0);
        }
        held.check();
        // All of it, except chunks that are never freed, the one arena that is kept, and their tags.
        let stats = held.memory.stats();
        let kept = held.chunks.len() as u64;
        let lost_words = empty.free_words - stats.free_words;
        let arena_words = if held.memory.partition_stats(&held.heap).free_words > 0 { (64 << 10) / 8 + 65 } else { 0 };
        prop_assert!(lost_words <= kept_words + kept * 11 + arena_words, "{} lost", lost_words);
        prop_assert!(stats.free_chunks <= kept + 2 + u64::from(has_reserve), "{:?} in pieces", stats);
    }
}

#[test]
fn memory_that_was_shared_is_never_exclusive_again() {
    let mut held = Held::new();
    while let Some(chunk) = held.memory.allocate_shared(&mut held.heap, 500) {
        held.hold(chunk, 500, Return::Shared);
    }
    while !held.chunks.is_empty() {
        held.free(0);
    }
    assert!(matches!(held.memory.allocate_settled(100_000), Some(Settled::Shared(_))));
    let mut fresh = Held::new();
    assert!(matches!(fresh.memory.allocate_settled(100_000), Some(Settled::Exclusive(_))));
    assert!(fresh.memory.allocate_shared(&mut fresh.heap, 10).is_some());
    assert!(matches!(fresh.memory.allocate_settled(100_000), Some(Settled::Exclusive(_))));
}

#[test]
#[should_panic(expected = "not a chunk in use")]
fn giving_back_twice_is_noticed() {
    let mut held = Held::new();
    let chunk = held.memory.allocate_shared(&mut held.heap, 10).unwrap();
    held.memory.free(&mut held.heap, chunk);
    held.memory.free(&mut held.heap, chunk);
}

#[test]
fn the_walk_finds_a_broken_tag() {
    let mut held = Held::new();
    held.apply(&Op::Shared { words: 10 });
    held.check();
    let chunk = Offset::from_words(*held.chunks.keys().next().unwrap());
    held.memory.region().word(chunk.minus(1)).fetch_add(1 << 8, Relaxed);
    assert!(held.memory.check(&[&held.heap]).is_err());
}

#[test]
#[should_panic(expected = "not an arena of a log")]
fn giving_an_arena_back_twice_is_noticed() {
    let held = Held::new();
    let arena = held.memory.allocate_arena().unwrap();
    held.memory.free_arena(arena);
    held.memory.free_arena(arena);
}

#[test]
fn arenas_are_powers_of_two_by_the_share_of_a_partition() {
    for (memory_bytes, partitions, arena_bytes) in
        [(1 << 20, 1, 64 << 10), (16 << 20, 1, 256 << 10), (1 << 30, 4, 1 << 20), (1 << 30, 64, 256 << 10)]
    {
        let geometry = Geometry { memory_bytes, partitions, partition_words: 9, ..Geometry::default() };
        let memory = Memory::create(geometry, &Backing::Private).unwrap();
        assert_eq!(memory.arena_words() * 8, arena_bytes);
        let arena = memory.allocate_arena().unwrap();
        assert_eq!(arena.start().words() % 64, 0);
    }
}

#[test]
fn the_reserve_is_filled_first_and_only_by_large_values() {
    let mut held = Held::with_reserve(1 << 20);
    let rest = |held: &Held| held.memory.heap_stats().free_words;
    let rest_words = rest(&held);
    assert!(held.memory.reserve_stats().free_words >= (1 << 17) - 2);
    while let Some(chunk) = held.settled(10_000).filter(|&chunk| held.memory.is_in_reserve(chunk)) {
        assert_eq!(rest(&held), rest_words);
        held.hold(chunk, 10_000, Return::Settled);
    }
    assert_eq!(held.chunks.len(), 13);
    while let Some(chunk) = held.memory.allocate_shared(&mut held.heap, 100) {
        assert!(!held.memory.is_in_reserve(chunk));
    }
    // A store that is full of small items still takes large values.
    held.free(0);
    assert!(held.settled(10_000).is_some_and(|chunk| held.memory.is_in_reserve(chunk)));
}

#[test]
fn a_limit_counts_the_reserve() {
    let mut held = Held::with_reserve(1 << 20);
    assert!(held.memory.set_limit_bytes(1 << 20));
    let count = std::iter::from_fn(|| held.settled(1_000)).count() as u64;
    let used_words = held.memory.stats().used_words;
    assert!((100..131).contains(&count) && used_words < 1 << 17, "{count} chunks");
    assert!(held.memory.allocate_shared(&mut held.heap, 1_000).is_none());
}

#[test]
#[should_panic(expected = "a chunk of another region")]
fn a_chunk_is_written_in_its_own_region_only() {
    let [one, other] = [(); 2].map(|()| Held::new().memory);
    let Some(Settled::Exclusive(mut exclusive)) = one.allocate_settled(1_000) else { panic!("none left") };
    exclusive.bytes_mut(other.region(), 0, 8_000).fill(1);
}

#[test]
#[should_panic(expected = "outside of the chunk")]
fn a_chunk_has_an_end_whatever_the_sum() {
    let memory = Held::new().memory;
    let Some(Settled::Exclusive(mut exclusive)) = memory.allocate_settled(1_000) else { panic!("none left") };
    exclusive.bytes_mut(memory.region(), usize::MAX, 2);
}

/// An arena's chunk is marked while threads free and take the chunks beside it.
#[test]
fn arenas_and_chunks_of_threads_keep_their_tags() {
    const THREADS: usize = 8;
    const ROUNDS: usize = 1_000_000;
    let geometry =
        Geometry { memory_bytes: 8 << 20, partitions: 1, partition_words: 100, ..Geometry::default() };
    let memory: Memory = Memory::create(geometry, &Backing::Private).unwrap();
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let memory = &memory;
            scope.spawn(move || {
                let (mut arenas, mut chunks) = (Vec::new(), Vec::new());
                for round in 0..ROUNDS {
                    match (round * 7 + thread) % 5 {
                        0 | 1 => arenas.extend(memory.allocate_arena()),
                        2 | 3 => chunks.extend(memory.allocate_settled(50).map(Settled::into_chunk)),
                        _ => {
                            arenas.drain(..).for_each(|arena| memory.free_arena(arena));
                            chunks.drain(..).for_each(|chunk| memory.free_settled(chunk));
                        }
                    }
                }
                arenas.drain(..).for_each(|arena| memory.free_arena(arena));
                chunks.drain(..).for_each(|chunk| memory.free_settled(chunk));
            });
        }
    });
    assert!(memory.log_arenas().unwrap().is_empty());
}
