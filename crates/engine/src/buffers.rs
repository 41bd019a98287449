//! Buffers for large values whose place readers once shared.

use crate::stats::StoreStats;
use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering::Relaxed},
};

/// Memory outside the region for buffers of values whose place readers once shared.
#[derive(Debug)]
pub(crate) struct Buffers {
    used_bytes: AtomicU64,
    refused: AtomicU64,
    bytes_max: u64,
}

impl Buffers {
    pub(crate) fn new(bytes_max: u64) -> Self {
        Self { used_bytes: AtomicU64::new(0), refused: AtomicU64::new(0), bytes_max }
    }

    /// Adds the bytes in use, and how often there was no room.
    pub(crate) fn add_stats(&self, stats: &mut StoreStats) {
        stats.buffer_bytes = self.used_bytes.load(Relaxed);
        stats.buffer_refusals = self.refused.load(Relaxed);
    }
}

#[derive(Debug)]
pub(crate) struct Buffer {
    pub(crate) bytes: Vec<u8>,
    of: Arc<Buffers>,
}

impl Buffer {
    /// `None` if the others hold too much already.
    pub(crate) fn new(of: &Arc<Buffers>, bytes: u64) -> Option<Self> {
        let more = |used: u64| used.checked_add(bytes).filter(|&used| used <= of.bytes_max);
        // Relaxed: it is a count, and nothing else is reached by it.
        if of.used_bytes.fetch_update(Relaxed, Relaxed, more).is_err() {
            of.refused.fetch_add(1, Relaxed);
            return None;
        }
        Some(Self { bytes: vec![0; bytes as usize], of: Arc::clone(of) })
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        self.of.used_bytes.fetch_sub(self.bytes.len() as u64, Relaxed);
    }
}
