//! A node's memory, which outlives its processes and is read by others while it changes.

use super::world::{KEYS, SHARDS};
use crate::{
    Epoch, Ownership,
    switches::{Safeguard, is_on},
};

/// A key's bucket. A write fills the slot that is not in use, and then makes it the one in use.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Bucket {
    /// Odd while a write is under way.
    pub(super) version: u32,
    /// The slot in use, from one; zero if there is no item.
    pub(super) live: usize,
    /// The same in the log, from which a restart rebuilds the index.
    pub(super) kept: usize,
    /// Each value in two lines, which are written and read at different instants.
    pub(super) slots: [[u64; 2]; 2],
}

impl Bucket {
    /// The value, as the owner sees it under the lock.
    pub(super) fn value(&self) -> Option<u64> {
        self.live.checked_sub(1).map(|slot| self.slots[slot][0])
    }

    /// Replaces the item at one instant.
    pub(super) fn put(&mut self, value: Option<u64>) {
        self.version += 2;
        let slot = 2 - self.live.max(1);
        self.slots[slot] = [value.unwrap_or(0); 2];
        self.live = if value.is_some() { slot + 1 } else { 0 };
        self.kept = self.live;
    }
}

pub(super) struct Memory {
    pub(super) words: Vec<Ownership>,
    pub(super) buckets: Vec<Bucket>,
}

impl Memory {
    pub(super) fn new() -> Self {
        let (words, buckets) = (vec![Ownership::VOID; SHARDS as usize], vec![Bucket::default(); KEYS]);
        Self { words, buckets }
    }

    pub(super) fn withdraw(&mut self) {
        self.words.iter_mut().for_each(|word| *word = word.withdrawn());
    }

    /// The index is gone, and its versions with it.
    pub(super) fn begin_repair(&mut self) {
        for bucket in &mut self.buckets {
            (bucket.version, bucket.live) = (0, 0);
        }
    }

    pub(super) fn end_repair(&mut self) {
        self.buckets.iter_mut().for_each(|bucket| bucket.live = bucket.kept);
    }
}

/// What a read found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Found {
    Value(Option<u64>),
    /// The copy is not valid, or changed too often.
    AskOwner,
}

const ATTEMPTS_MAX: u32 = 6;

/// A read of one key, one line at each instant.
#[derive(Clone, Copy, Debug)]
pub(super) struct Look {
    key: usize,
    shard: usize,
    /// The only epoch that will do, if not any.
    epoch: Option<Epoch>,
    /// The first epoch that will do: a word before it is in a memory that its owner has lost.
    since: Epoch,
    step: u32,
    attempts: u32,
    word: Ownership,
    bucket: Bucket,
}

impl Look {
    pub(super) fn new(key: usize, shard: usize, epoch: Option<Epoch>) -> Self {
        let (word, bucket) = (Ownership::VOID, Bucket::default());
        Self { key, shard, epoch, since: 0, step: 0, attempts: 0, word, bucket }
    }

    /// Leaves out words before an epoch.
    pub(super) fn since(self, epoch: Epoch) -> Self {
        Self { since: if is_on(Safeguard::Since) { epoch } else { 0 }, ..self }
    }

    /// One more line. `None` if there are more.
    pub(super) fn advance(&mut self, memory: &Memory) -> Option<Found> {
        let (word, bucket) = (memory.words[self.shard], &memory.buckets[self.key]);
        let checks_version = is_on(Safeguard::Version);
        self.step += 1;
        match self.step {
            1 => {
                self.word = word;
                let is_wrong = self.epoch.is_some_and(|epoch| epoch != word.epoch) || word.epoch < self.since;
                return (!word.is_valid() || is_wrong).then_some(Found::AskOwner);
            }
            2 => self.bucket.version = bucket.version,
            3 => self.bucket.live = bucket.live,
            4 | 5 => {
                if let Some(slot) = self.bucket.live.checked_sub(1) {
                    let line = self.step as usize - 4;
                    self.bucket.slots[slot][line] = bucket.slots[slot][line];
                }
            }
            6 if checks_version && bucket.version != self.bucket.version => return self.again(),
            7 if is_on(Safeguard::SecondLook) && word != self.word => return self.again(),
            7 => return Some(Found::Value(self.bucket.live.checked_sub(1).map(|slot| self.whole(slot)))),
            _ => {}
        }
        if self.step == 2 && checks_version && bucket.version % 2 == 1 { self.again() } else { None }
    }

    fn again(&mut self) -> Option<Found> {
        self.step = 0;
        self.attempts += 1;
        (self.attempts >= ATTEMPTS_MAX).then_some(Found::AskOwner)
    }

    /// Halves of different values make one that nobody wrote.
    fn whole(&self, slot: usize) -> u64 {
        let [first, second] = self.bucket.slots[slot];
        if first == second { first } else { 1 << 62 | first << 31 | second }
    }
}
