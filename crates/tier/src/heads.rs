//! A walk over the table that lists keys, those on flash too: of their records it reads the heads.

use crate::{fetch::ReadError, payload::meta_of, reader::Reader, tier::Tier};
use minos_base::{FLASH_PAGE_BYTES, KeyHash, Seconds, limits::ITEM_KEY_BYTES_MAX};
use minos_engine::{Candidates, ItemMeta, Lookup};
use minos_flash::format::{Kind, RecordHeader, Span};
use std::collections::BTreeMap;

/// Pages of a record that hold its header and the longest key.
pub(crate) const HEAD_PAGES: u64 = (ITEM_KEY_BYTES_MAX / FLASH_PAGE_BYTES + 2) as u64;

/// The beginning of a record on flash that a slot may name.
#[derive(Clone, Debug)]
pub struct Head {
    hash: KeyHash,
    key: Box<[u8]>,
    sequence: u64,
    kind: Kind,
    /// Its expiry among others.
    meta: ItemMeta,
}

impl Head {
    pub(crate) fn of(header: &RecordHeader, key: Span<'_>) -> Self {
        let (hash, sequence, kind) = (header.hash, header.sequence, header.kind);
        Self { hash, key: key.to_vec().into(), sequence, kind, meta: meta_of(header, 0) }
    }

    /// The key of an item, or the error that it has rotted. Only the head is verified.
    pub(crate) fn name(&self, tier: &Tier) -> Option<Result<(KeyHash, &[u8]), ReadError>> {
        let is_sound = tier.engine.hash(&self.key) == self.hash;
        (self.kind == Kind::Item).then(|| is_sound.then_some((self.hash, &*self.key)).ok_or(ReadError::Rot))
    }
}

/// A walk under way. Records that it finds stay where they are until it has ended.
#[derive(Debug)]
pub struct Walk {
    epoch: u64,
}

impl Reader {
    /// Begins a walk: look at the table, and have the heads read of the records that it names.
    pub fn begin_walk(&mut self) -> Walk {
        Walk { epoch: self.fetcher.enter() }
    }

    /// Prepares the reads of the heads of the records of these slots, which the walk has found; false if there is no room for
    /// them: submit and poll, then try again. The answer has this tag.
    pub fn read_heads(&mut self, _walk: &Walk, tag: u64, slots: &Candidates) -> bool {
        // Later than that of the walk, which keeps the records.
        let epoch = self.fetcher.enter();
        let is_started =
            self.fetcher.start((tag, epoch), (KeyHash::default(), &[]), slots, HEAD_PAGES).is_ok();
        self.fetcher.counts.read_waited += u64::from(!is_started);
        is_started
    }

    /// Ends a walk.
    pub fn end_walk(&mut self, walk: Walk) {
        self.fetcher.leave(walk.epoch);
    }
}

impl Tier {
    /// The keys of the live items among the records of these heads, with their expiries, as the table is now: a key that has
    /// come to memory meanwhile is one of them.
    pub fn live_keys(&self, heads: &[Head], now: Seconds) -> Vec<(Box<[u8]>, ItemMeta)> {
        // A tombstone counts for every key of its hash.
        let mut dead_up_to: BTreeMap<u64, u64> = BTreeMap::new();
        let mut newest: BTreeMap<&[u8], &Head> = BTreeMap::new();
        for head in heads {
            if head.kind == Kind::Tombstone {
                let up_to = dead_up_to.entry(head.hash.0).or_default();
                *up_to = head.sequence.max(*up_to);
            } else if self.engine.hash(&head.key) == head.hash {
                let best = newest.entry(&head.key).or_insert(head);
                if best.sequence <= head.sequence {
                    *best = head;
                }
            }
        }
        let is_live = |head: &&Head| {
            let dead_up_to = dead_up_to.get(&head.hash.0).copied().unwrap_or(0);
            let flushed = self.engine.flushed_up_to(self.engine.partition_of(head.hash));
            let has_expired = head.meta.expiry != 0 && head.meta.expiry <= now;
            head.sequence > dead_up_to.max(flushed)
                && !has_expired
                && self.engine.find_cold(head.hash, &head.key, now) != Lookup::Missing
        };
        newest.into_values().filter(is_live).map(|head| (head.key.clone(), head.meta)).collect()
    }
}
