//! The heap against a model: no overlap, nothing lost, everything merged again.

use crate::{Backing, Geometry, Heap, Memory, Offset, Settled};
use proptest::{collection::vec, prelude::*};
use std::{collections::BTreeMap, sync::atomic::Ordering::Relaxed};

#[derive(Clone, Debug)]
enum Op {
    Shared { words: u64 },
    Settled { words: u64 },
    Forever { words: u64 },
    Free { at: usize },
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    let words = prop_oneof![6 => 1u64..40, 3 => 40u64..600, 2 => 600u64..5_000, 1 => 5_000u64..60_000];
    let op = prop_oneof![
        6 => words.clone().prop_map(|words| Op::Shared { words }),
        2 => words.prop_map(|words| Op::Settled { words }),
        1 => (1u64..600).prop_map(|words| Op::Forever { words }),
        8 => any::<usize>().prop_map(|at| Op::Free { at }),
    ];
    vec(op, 1..400)
}

/// What was handed out: words by offset, and whether it may be given back.
struct Held {
    memory: Memory,
    heap: Heap,
    chunks: BTreeMap<u64, (u64, bool)>,
    seed: u64,
}

impl Held {
    fn new() -> Self {
        let geometry = Geometry { memory_bytes: 2 << 20, partitions: 1, partition_words: 100, hash_seed: 7 };
        let memory = Memory::create(geometry, &Backing::Private).unwrap();
        let heap = memory.partition_heap(0);
        Self { memory, heap, chunks: BTreeMap::new(), seed: 0 }
    }

    fn apply(&mut self, op: &Op) {
        let (chunk, words, may_free) = match *op {
            Op::Shared { words } => (self.memory.allocate_shared(&mut self.heap, words), words, true),
            Op::Settled { words } => (self.settled(words), words, true),
            Op::Forever { words } => (self.memory.allocate_forever(words), words, false),
            Op::Free { at } => return self.free(at),
        };
        if let Some(chunk) = chunk {
            assert!(may_free || chunk.words() % 8 == 0);
            self.hold(chunk, words, may_free);
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

    fn hold(&mut self, chunk: Offset, words: u64, may_free: bool) {
        let before = self.chunks.range(..chunk.words()).next_back();
        assert!(before.is_none_or(|(&start, &(words, _))| start + words <= chunk.words()), "overlap");
        let after = self.chunks.range(chunk.words()..).next();
        assert!(after.is_none_or(|(&start, _)| chunk.words() + words <= start), "overlap");
        for word in self.memory.region().words(chunk, words as usize) {
            word.store(chunk.words(), Relaxed);
        }
        self.chunks.insert(chunk.words(), (words, may_free));
    }

    fn free(&mut self, at: usize) {
        self.seed = self.seed.wrapping_add(at as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let freeable = self.chunks.iter().filter(|(_, (_, may_free))| *may_free);
        let Some((&start, &(words, _))) = freeable.clone().nth(at % freeable.count().max(1)) else { return };
        let chunk = Offset::from_words(start);
        for word in self.memory.region().words(chunk, words as usize) {
            assert_eq!(word.load(Relaxed), start, "somebody else wrote here");
        }
        self.chunks.remove(&start);
        self.memory.free(&mut self.heap, chunk);
    }

    fn check(&self) {
        let used = self.memory.check(&[&self.heap]).unwrap();
        assert_eq!(used.len(), self.chunks.len());
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn chunks_never_overlap_and_all_comes_back(ops in ops()) {
        let mut held = Held::new();
        let empty = held.memory.stats();
        for (step, op) in ops.iter().enumerate() {
            held.apply(op);
            if step % 16 == 0 {
                held.check();
            }
        }
        held.check();
        let kept_words: u64 = held.chunks.values().filter(|(_, may_free)| !may_free).map(|(words, _)| words).sum();
        while held.chunks.values().any(|(_, may_free)| *may_free) {
            held.free(0);
        }
        held.check();
        // All of it, but what is never given back, the one arena that is kept, and their tags.
        let stats = held.memory.stats();
        let kept = held.chunks.len() as u64;
        let lost_words = empty.free_words - stats.free_words;
        let arena_words = if held.memory.partition_stats(&held.heap).free_words > 0 { (64 << 10) / 8 + 1 } else { 0 };
        prop_assert!(lost_words <= kept_words + kept * 11 + arena_words, "{} lost", lost_words);
        prop_assert!(stats.free_chunks <= kept + 2, "{:?} in pieces", stats);
    }
}

#[test]
fn memory_that_was_shared_is_never_exclusive_again() {
    let mut held = Held::new();
    while let Some(chunk) = held.memory.allocate_shared(&mut held.heap, 500) {
        held.hold(chunk, 500, true);
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
