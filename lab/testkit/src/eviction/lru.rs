//! Least recently used, exactly.

use std::collections::HashMap;

use super::EvictionPolicy;

/// The node that stands before the first and behind the last of the list.
const END: usize = 0;

/// A hash map whose items are linked in the order of their last request; every step is O(1).
#[derive(Clone, Debug)]
pub struct Lru {
    capacity_bytes: u64,
    used_bytes: u64,
    /// A ring through [`END`]: behind it the item requested last, before it the one to evict.
    nodes: Vec<Node>,
    unused: Vec<usize>,
    places: HashMap<u64, usize>,
}

#[derive(Clone, Copy, Debug)]
struct Node {
    key: u64,
    bytes: u64,
    newer: usize,
    older: usize,
}

impl Lru {
    /// An empty cache of `capacity_bytes`.
    pub fn new(capacity_bytes: u64) -> Self {
        let end = Node { key: 0, bytes: 0, newer: END, older: END };
        Self { capacity_bytes, used_bytes: 0, nodes: vec![end], unused: vec![], places: HashMap::new() }
    }

    /// True if this item is cached. Does not count as a request.
    pub fn contains(&self, key: u64) -> bool {
        self.places.contains_key(&key)
    }

    fn unlink(&mut self, at: usize) {
        let Node { newer, older, .. } = self.nodes[at];
        self.nodes[newer].older = older;
        self.nodes[older].newer = newer;
    }

    fn link_newest(&mut self, at: usize) {
        let second = self.nodes[END].older;
        self.nodes[at].newer = END;
        self.nodes[at].older = second;
        self.nodes[second].newer = at;
        self.nodes[END].older = at;
    }

    fn evict_oldest(&mut self) {
        let oldest = self.nodes[END].newer;
        self.unlink(oldest);
        self.places.remove(&self.nodes[oldest].key);
        self.used_bytes -= self.nodes[oldest].bytes;
        self.unused.push(oldest);
    }

    fn insert(&mut self, key: u64, bytes: u64) {
        while self.used_bytes + bytes > self.capacity_bytes {
            self.evict_oldest();
        }
        let node = Node { key, bytes, newer: END, older: END };
        let at = self.unused.pop().unwrap_or(self.nodes.len());
        if at == self.nodes.len() {
            self.nodes.push(node);
        } else {
            self.nodes[at] = node;
        }
        self.link_newest(at);
        self.places.insert(key, at);
        self.used_bytes += bytes;
    }
}

impl EvictionPolicy for Lru {
    fn request(&mut self, key: u64, bytes: u64) -> bool {
        let found = self.places.get(&key).copied();
        if let Some(at) = found {
            self.unlink(at);
            self.link_newest(at);
        } else if bytes <= self.capacity_bytes {
            self.insert(key, bytes);
        }
        found.is_some()
    }
}
