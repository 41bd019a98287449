//! CLOCK: a hand goes round and evicts items that were not requested since its last visit.

use std::collections::{HashMap, VecDeque};

use super::EvictionPolicy;

/// CLOCK with one reference bit an item, as MemC3 has it (MICA §6).
///
/// The ring is a queue: items that the hand spares go to its end.
#[derive(Clone, Debug)]
pub struct Clock {
    capacity_bytes: u64,
    used_bytes: u64,
    /// From the hand on.
    ring: VecDeque<(u64, u64)>,
    /// For each item, true if it was requested since the hand's last visit.
    referenced: HashMap<u64, bool>,
}

impl Clock {
    /// An empty cache of `capacity_bytes`.
    pub fn new(capacity_bytes: u64) -> Self {
        Self { capacity_bytes, used_bytes: 0, ring: VecDeque::new(), referenced: HashMap::new() }
    }

    /// True if this item is cached. Does not count as a request.
    pub fn contains(&self, key: u64) -> bool {
        self.referenced.contains_key(&key)
    }

    /// Moves the hand by one item.
    fn advance(&mut self) {
        let Some((key, bytes)) = self.ring.pop_front() else { return };
        match self.referenced.get_mut(&key) {
            Some(is_referenced) if *is_referenced => {
                *is_referenced = false;
                self.ring.push_back((key, bytes));
            }
            _ => {
                self.referenced.remove(&key);
                self.used_bytes -= bytes;
            }
        }
    }
}

impl EvictionPolicy for Clock {
    fn request(&mut self, key: u64, bytes: u64) -> bool {
        if let Some(is_referenced) = self.referenced.get_mut(&key) {
            *is_referenced = true;
            return true;
        }
        if bytes <= self.capacity_bytes {
            while self.used_bytes + bytes > self.capacity_bytes {
                self.advance();
            }
            self.ring.push_back((key, bytes));
            self.referenced.insert(key, false);
            self.used_bytes += bytes;
        }
        false
    }
}
