//! The keys that connections have read: a bounded table, whose oldest keys make room.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use minos_base::{KeyHash, may_look_alike_among};
use parking_lot::Mutex;

use super::Tracker;

/// Shards of a large table, so that workers seldom wait for each other.
const SHARDS: usize = 16;
/// Pairs below which there is one shard, so that the oldest key of all makes room.
const SHARDED_PAIRS_MIN: usize = 16 << 10;
/// Keys in the order of a shard that may be gone already.
const STALE_MIN: usize = 64;

/// A key that makes room, and who has read it.
pub(super) type Displaced = (Box<[u8]>, Vec<Arc<Tracker>>);

/// Keys and the connections that have read them since they last changed.
pub(super) struct Table {
    shards: Box<[Mutex<Shard>]>,
    pairs_max: usize,
    displaced: AtomicU64,
}

#[derive(Default)]
struct Shard {
    /// Keys with the same tag stand together.
    keys: BTreeMap<(u16, u64), Read>,
    /// The hashes and numbers of keys, oldest first; some are gone.
    order: VecDeque<(KeyHash, u64)>,
    next_number: u64,
    pairs: usize,
}

struct Read {
    key: Box<[u8]>,
    /// By the numbers of their connections.
    readers: Vec<Arc<Tracker>>,
    /// Tells it from an earlier one of this hash.
    number: u64,
}

impl Table {
    /// A table for so many pairs of a key and a connection.
    pub(super) fn new(pairs_max: usize) -> Self {
        let shards = if pairs_max < SHARDED_PAIRS_MIN { 1 } else { SHARDS };
        let shards = (0..shards).map(|_| Mutex::default()).collect();
        Self { shards, pairs_max, displaced: AtomicU64::new(0) }
    }

    /// Notes that a connection is about to read a key. Returns the keys that make room.
    pub(super) fn note(&self, hash: KeyHash, key: &[u8], tracker: &Arc<Tracker>) -> Vec<Displaced> {
        let pairs_max = self.pairs_max / self.shards.len();
        let mut shard = self.shard(hash).lock();
        let mut displaced = Vec::new();
        if shard.keys.get(&place(hash)).is_some_and(|read| *read.key != *key) {
            displaced.extend(shard.remove(hash));
        }
        shard.add(hash, key, tracker);
        while shard.pairs > pairs_max
            && let Some((hash, number)) = shard.order.pop_front()
        {
            if shard.keys.get(&place(hash)).is_some_and(|read| read.number == number) {
                displaced.extend(shard.remove(hash));
            }
        }
        self.displaced.fetch_add(displaced.len() as u64, Relaxed);
        displaced
    }

    /// Who has read a key, which is forgotten.
    pub(super) fn take(&self, hash: KeyHash, key: &[u8]) -> Vec<Arc<Tracker>> {
        let mut shard = self.shard(hash).lock();
        match shard.keys.get(&place(hash)) {
            Some(read) if *read.key == *key => {
                shard.remove(hash).map(|(_, readers)| readers).unwrap_or_default()
            }
            _ => Vec::new(),
        }
    }

    /// The key of a hash, if one was read, and who has; it is forgotten.
    pub(super) fn take_hash(&self, hash: KeyHash) -> Option<Displaced> {
        self.shard(hash).lock().remove(hash)
    }

    /// The keys whose slots in an index of so many buckets may look like that of a key with this hash, but not those of this
    /// hash, and who has read them; they are forgotten.
    pub(super) fn take_alike(&self, buckets: u32, hash: KeyHash) -> Vec<Displaced> {
        let mut shard = self.shard(hash).lock();
        let of_tag = shard.keys.range((hash.tag(), 0)..=(hash.tag(), u64::MAX));
        let others = of_tag.map(|((_, other), _)| KeyHash(*other)).filter(|other| *other != hash);
        let alike: Vec<_> = others.filter(|other| may_look_alike_among(buckets, hash, *other)).collect();
        alike.into_iter().filter_map(|other| shard.remove(other)).collect()
    }

    /// The keys for which `is_meant` is true, and who has read them; they are forgotten.
    pub(super) fn take_all(&self, is_meant: impl Fn(&[u8]) -> bool) -> Vec<Displaced> {
        let mut taken = Vec::new();
        for shard in &self.shards {
            let mut shard = shard.lock();
            let meant = shard.keys.iter().filter(|(_, read)| is_meant(&read.key));
            let meant: Vec<_> = meant.map(|((_, hash), _)| KeyHash(*hash)).collect();
            taken.extend(meant.into_iter().filter_map(|hash| shard.remove(hash)));
        }
        taken
    }

    /// Forgets all keys.
    pub(super) fn clear(&self) {
        self.shards.iter().for_each(|shard| *shard.lock() = Shard::default());
    }

    /// Keys, and pairs of a key and a connection.
    pub(super) fn sizes(&self) -> (usize, usize) {
        self.shards.iter().fold((0, 0), |(keys, pairs), shard| {
            let shard = shard.lock();
            (keys + shard.keys.len(), pairs + shard.pairs)
        })
    }

    pub(super) fn pairs_max(&self) -> usize {
        self.pairs_max
    }

    /// Keys that made room so far.
    pub(super) fn displaced(&self) -> u64 {
        self.displaced.load(Relaxed)
    }

    #[cfg(test)]
    pub(super) fn order_len(&self) -> usize {
        self.shards.iter().map(|shard| shard.lock().order.len()).sum()
    }

    fn shard(&self, hash: KeyHash) -> &Mutex<Shard> {
        &self.shards[usize::from(hash.tag()) % self.shards.len()]
    }
}

fn place(hash: KeyHash) -> (u16, u64) {
    (hash.tag(), hash.0)
}

impl Shard {
    fn add(&mut self, hash: KeyHash, key: &[u8], tracker: &Arc<Tracker>) {
        let Self { keys, order, next_number, pairs } = self;
        let read = keys.entry(place(hash)).or_insert_with(|| {
            *next_number += 1;
            order.push_back((hash, *next_number));
            Read { key: key.into(), readers: Vec::new(), number: *next_number }
        });
        match read.readers.binary_search_by_key(&tracker.number(), |reader| reader.number()) {
            // It may be a new one of the same connection.
            Ok(at) => read.readers[at] = Arc::clone(tracker),
            Err(at) => {
                read.readers.insert(at, Arc::clone(tracker));
                *pairs += 1;
            }
        }
        if order.len() > 2 * keys.len() + STALE_MIN {
            order.retain(|(hash, number)| keys.get(&place(*hash)).is_some_and(|read| read.number == *number));
        }
    }

    fn remove(&mut self, hash: KeyHash) -> Option<Displaced> {
        let Read { key, readers, .. } = self.keys.remove(&place(hash))?;
        self.pairs -= readers.len();
        Some((key, readers))
    }
}
