//! MICA's circular log.

use std::collections::{HashMap, VecDeque};

use super::EvictionPolicy;

/// Which requested items are written again at the tail of the log (MICA §4.3.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reinsert {
    /// None: the log's natural order, FIFO.
    Never,
    /// All: the entry that leaves at the head is the least recently used item. Old copies take space in the
    /// log until the head passes them, so that it holds fewer items than [`super::Lru`] does.
    Always,
    /// All but those in the segment that is being filled: as [`Reinsert::Always`], with fewer old copies.
    OutsideTailSegment {
        /// Bytes of a segment.
        segment_bytes: u64,
    },
    /// Those that are closer to the head than to the tail: approximate LRU (MICA §5.1).
    CloserToHead,
}

/// A circular log of bytes: entries are appended at the tail and evicted at the head.
///
/// Positions grow forever, as in MICA §4.3.2. An entry at its key's position is the item; any other entry is
/// an old copy.
#[derive(Clone, Debug)]
pub struct Log {
    capacity_bytes: u64,
    reinsert: Reinsert,
    head: u64,
    tail: u64,
    /// From the head to the tail.
    entries: VecDeque<Entry>,
    positions: HashMap<u64, u64>,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    key: u64,
    bytes: u64,
}

impl Log {
    /// An empty log of `capacity_bytes`.
    pub fn new(capacity_bytes: u64, reinsert: Reinsert) -> Self {
        Self {
            capacity_bytes,
            reinsert,
            head: 0,
            tail: 0,
            entries: VecDeque::new(),
            positions: HashMap::new(),
        }
    }

    /// Number of items that can be found.
    pub fn len(&self) -> usize {
        self.positions.len()
    }

    /// True if no item can be found.
    pub fn is_empty(&self) -> bool {
        self.positions.is_empty()
    }

    /// True if this item can be found. Does not count as a request.
    pub fn contains(&self, key: u64) -> bool {
        self.positions.contains_key(&key)
    }

    fn is_reinserted(&self, position: u64) -> bool {
        match self.reinsert {
            Reinsert::Never => false,
            Reinsert::Always => true,
            Reinsert::OutsideTailSegment { segment_bytes } => {
                position / segment_bytes != self.tail / segment_bytes
            }
            Reinsert::CloserToHead => position - self.head < self.tail - position,
        }
    }

    fn append(&mut self, key: u64, bytes: u64) {
        while self.tail + bytes - self.head > self.capacity_bytes {
            self.evict_head();
        }
        self.positions.insert(key, self.tail);
        self.entries.push_back(Entry { key, bytes });
        self.tail += bytes;
    }

    fn evict_head(&mut self) {
        let Some(entry) = self.entries.pop_front() else { return };
        if self.positions.get(&entry.key) == Some(&self.head) {
            self.positions.remove(&entry.key);
        }
        self.head += entry.bytes;
    }
}

impl EvictionPolicy for Log {
    fn request(&mut self, key: u64, bytes: u64) -> bool {
        let found = self.positions.get(&key).copied();
        let is_appended = found.is_none_or(|position| self.is_reinserted(position));
        if is_appended && bytes <= self.capacity_bytes {
            self.append(key, bytes);
        }
        found.is_some()
    }
}
