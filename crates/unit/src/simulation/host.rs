//! A node: its memory, its process, and the work of that process one step at a time.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use minos_rack::{MicroShard, ServerId};
use minos_testkit::history::{Call, CasOutcome};

use super::{
    memory::{Bucket, Look, Memory},
    world::{Outcome, Request},
};
use crate::{Epoch, Holding, Member, MoveId, Permit, View};

pub(super) const PARTITIONS: usize = 2;

/// A clock that runs too fast or too slowly.
#[derive(Clone, Copy, Debug)]
pub(super) struct Drift {
    pub(super) offset_us: u64,
    pub(super) ppm: i64,
}

impl Drift {
    pub(super) fn at(self, now_us: u64) -> u64 {
        self.offset_us + now_us.saturating_add_signed(now_us as i64 * self.ppm / 1_000_000)
    }
}

pub(super) struct Host {
    pub(super) memory: Memory,
    /// The memory before the last loss, and until when others have it attached.
    pub(super) lost: Option<(Memory, u64)>,
    pub(super) process: Option<Process>,
    /// Counts processes.
    pub(super) life: u64,
    pub(super) drift: Drift,
    pub(super) paused_until_us: u64,
}

impl Host {
    /// The memory that other nodes have attached.
    pub(super) fn attached(&self, now_us: u64) -> &Memory {
        let lost = self.lost.as_ref().filter(|(_, until_us)| now_us < *until_us);
        lost.map_or(&self.memory, |(memory, _)| memory)
    }
}

/// Work under a partition's lock.
#[derive(Clone, Debug)]
pub(super) enum Locked {
    Write(Write),
    Pass(MoveId),
    Empty(MicroShard),
}

/// A write, one line at each instant. Without a request it is an eviction.
#[derive(Clone, Debug)]
pub(super) struct Write {
    pub(super) key: usize,
    pub(super) shard: usize,
    pub(super) request: Option<(Request, Permit)>,
    pub(super) step: u32,
    value: Option<u64>,
}

impl Write {
    pub(super) fn new(key: usize, shard: usize, request: Option<(Request, Permit)>) -> Self {
        Self { key, shard, request, step: 0, value: None }
    }

    /// One more line. Some at the end, with true if something changed.
    pub(super) fn advance(&mut self, memory: &mut Memory) -> Option<(Outcome, bool)> {
        let word = memory.words[self.shard];
        let bucket = &mut memory.buckets[self.key];
        let slot = 2 - bucket.live.max(1);
        self.step += 1;
        match self.step {
            1 if word.holding != Holding::Owned => return Some((Outcome::NotHere, false)),
            1 => match intent(bucket, self.request.as_ref().map(|(request, _)| request.call)) {
                Ok(value) => self.value = value,
                Err(outcome) => return Some((outcome, false)),
            },
            2 => bucket.version += 1,
            3 | 4 => {
                if let Some(value) = self.value {
                    bucket.slots[slot][self.step as usize - 3] = value;
                }
            }
            5 => {
                bucket.live = if self.value.is_some() { slot + 1 } else { 0 };
                bucket.kept = bucket.live;
            }
            _ => {
                bucket.version += 1;
                return Some((Outcome::Done, true));
            }
        }
        None
    }
}

/// What a write leaves behind, or how it ends without a change.
fn intent(bucket: &Bucket, call: Option<Call>) -> Result<Option<u64>, Outcome> {
    let held = bucket.value();
    match call {
        Some(Call::Set(value)) => Ok(Some(value)),
        Some(Call::Cas { expected, new, .. }) => match held {
            Some(value) if value == expected => Ok(Some(new)),
            Some(_) => Err(Outcome::Cas(CasOutcome::Exists)),
            None => Err(Outcome::Cas(CasOutcome::NotFound)),
        },
        _ if held.is_some() => Ok(None),
        _ => Err(Outcome::Missing),
    }
}

/// A read for a client.
pub(super) struct Reading {
    pub(super) request: Request,
    pub(super) permit: Permit,
    pub(super) owner: ServerId,
    pub(super) look: Look,
}

/// What items are copied for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CopyFor {
    Shard(MoveId),
    Batch,
}

/// A copy of items from another node.
pub(super) struct Copying {
    pub(super) what: CopyFor,
    pub(super) from: ServerId,
    /// The only epoch of the owner's words that will do, if not any.
    pub(super) epoch: Option<Epoch>,
    pub(super) keys: Vec<usize>,
    /// The look at the first of `keys`, once it has begun.
    pub(super) look: Option<Look>,
    pub(super) failures: u32,
}

/// An answer that waits for followers.
pub(super) struct Held {
    pub(super) number: u64,
    pub(super) request: Request,
    pub(super) outcome: Outcome,
    pub(super) permit: Permit,
}

pub(super) struct Process {
    pub(super) member: Member,
    /// What workers see.
    pub(super) view: Option<View>,
    /// The version of its weights.
    pub(super) weighed: u32,
    pub(super) partitions: [VecDeque<Locked>; PARTITIONS],
    /// Numbers of [`Process::readings`] and [`Process::copies`].
    pub(super) next: u64,
    pub(super) readings: BTreeMap<u64, Reading>,
    pub(super) copies: BTreeMap<u64, Copying>,
    /// The copy that is in the middle of a key: a node copies one at a time.
    pub(super) busy: Option<u64>,
    /// Micro-shards whose changes are handed over.
    pub(super) fed: BTreeSet<MicroShard>,
    pub(super) handed: u64,
    pub(super) confirmed: u64,
    pub(super) held: Vec<Held>,
    /// Copies that may be read, and until when.
    pub(super) copied: BTreeSet<MicroShard>,
    pub(super) fresh_until_us: u64,
    /// Changed keys of the micro-shards that note them.
    pub(super) notes: BTreeMap<MicroShard, BTreeSet<usize>>,
    /// Partitions that are left of a pass or of emptying.
    pub(super) left: BTreeMap<(MicroShard, u32), usize>,
}

impl Process {
    pub(super) fn new(member: Member) -> Self {
        Self {
            member,
            view: None,
            weighed: 0,
            partitions: Default::default(),
            next: 0,
            readings: BTreeMap::new(),
            copies: BTreeMap::new(),
            busy: None,
            fed: BTreeSet::new(),
            handed: 0,
            confirmed: 0,
            held: Vec::new(),
            copied: BTreeSet::new(),
            fresh_until_us: 0,
            notes: BTreeMap::new(),
            left: BTreeMap::new(),
        }
    }

    /// Ends what copies items of a micro-shard.
    pub(super) fn end_copies(&mut self, micro_shard: MicroShard, shards: &[usize]) {
        for (number, copying) in &mut self.copies {
            let first = copying.keys.first().copied();
            copying.keys.retain(|key| shards[*key] != micro_shard.0 as usize);
            if first != copying.keys.first().copied() {
                copying.look = None;
                self.busy.take_if(|busy| busy == number);
            }
        }
        let is_of = |it: &Copying| matches!(it.what, CopyFor::Shard(id) if id.micro_shard == micro_shard);
        self.copies.retain(|_, copying| !is_of(copying));
    }
}
