//! Walks over the table that list keys, those on flash too.

use std::collections::BTreeMap;

use minos_base::{FlashSlot, Seconds};
use minos_engine::Candidates;
use minos_tier::{Answer, Head, Reader, Walk};

use crate::ops::{Moment, WalkWish, Walked};

/// Buckets that one walk looks at, at most.
const BUCKETS_MAX: usize = 1024;
/// Records of which it reads the heads: beyond, only those of its last bucket.
const READS_MAX: usize = 256;

/// A walk under way: it has looked at the table, and heads are read.
pub(super) struct Walking {
    walk: Walk,
    from: u64,
    next: u64,
    /// The keys that were in memory.
    keys: BTreeMap<Box<[u8]>, Moment>,
    slots: Vec<FlashSlot>,
    heads: Vec<Head>,
    /// A head could not be read.
    pub(super) is_broken: bool,
}

impl Walking {
    /// Looks at the buckets from the cursor on.
    pub(super) fn begin(reader: &mut Reader, wish: WalkWish, now: Seconds) -> Self {
        let walk = reader.begin_walk();
        let engine = reader.tier().engine();
        let partitions = engine.partitions() as u64;
        let (mut keys, mut slots, mut next) = (BTreeMap::new(), Vec::new(), wish.cursor);
        for _ in 0..BUCKETS_MAX {
            let (bucket, partition) = (next / partitions, next % partitions);
            let note = |(key, item): (&[u8], &_)| {
                keys.insert(key.into(), Moment::from(item));
            };
            next = match engine.visit_with_cold(partition as usize, bucket, now, note, &mut slots) {
                Some(bucket) => bucket * partitions + partition,
                None if partition + 1 < partitions => partition + 1,
                None => 0,
            };
            if next == 0 || keys.len() + slots.len() >= wish.keys || slots.len() >= READS_MAX {
                break;
            }
        }
        Self { walk, from: wish.cursor, next, keys, slots, heads: Vec::new(), is_broken: false }
    }

    /// Number of the vectors of heads.
    pub(super) fn vectors(&self) -> usize {
        self.slots.len().div_ceil(Candidates::new().capacity())
    }

    /// Prepares the reads of a vector; false if there is no room for them now.
    pub(super) fn read(&self, reader: &mut Reader, tag: u64, at: usize) -> bool {
        let mut slots = self.slots.chunks(Candidates::new().capacity());
        let slots: Candidates = slots.nth(at).unwrap_or_default().iter().copied().collect();
        reader.read_heads(&self.walk, tag, &slots)
    }

    /// Takes the heads of a vector.
    pub(super) fn take(&mut self, answer: Answer<'_>) {
        self.is_broken |= answer.result.is_err();
        self.heads.extend(answer.heads);
    }

    /// The keys, once all vectors have come. A cache takes what it cannot read for lost.
    pub(super) fn end(mut self, reader: &mut Reader, now: Seconds) -> Walked {
        for (key, meta) in reader.tier().live_keys(&self.heads, now) {
            self.keys.entry(key).or_insert(Moment { expiry: meta.expiry, early_ms: meta.early_ms });
        }
        reader.end_walk(self.walk);
        let is_broken = self.is_broken && reader.tier().is_lossless();
        Walked { from: self.from, next: self.next, keys: self.keys, is_broken }
    }
}
