//! Values whose bytes identify key and version, and the checker of reads.

use minos_base::seeded_stream;
use minos_engine::{ItemState, ItemView};
use rand::{Rng, RngExt, rngs::StdRng};
use std::thread;

/// Lengths around every boundary: words, the optimistic bound (4 KiB), the largest chunk of an arena.
pub(crate) fn len(random: &mut StdRng) -> usize {
    match random.random_range(0..10) {
        0..5 => random.random_range(0..64),
        5..8 => random.random_range(64..4200),
        8 => random.random_range(4000..9000),
        _ => random.random_range(9000..120_000),
    }
}

/// Randomness of one thread of a test.
pub(crate) fn random(seed: u64, stream: u64) -> StdRng {
    let mut random = seeded_stream(seed, stream);
    random.next_u64();
    random
}

/// Copies a value. If the reader sleeps, writers run between the reads of the header and of the value.
pub(crate) fn copy(item: &ItemView<'_>, sleeps: bool, value: &mut Vec<u8>) -> ItemState {
    value.clear();
    if sleeps {
        thread::yield_now();
    }
    item.copy_value_to(value);
    **item
}

/// The value that belongs to a key and a CAS unique.
pub(crate) fn fill(out: &mut Vec<u8>, key: u64, cas: u64, len: usize) {
    out.clear();
    let mut state = key.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ cas.wrapping_mul(0xbf58_476d_1ce4_e5b9);
    while out.len() < len {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        out.extend_from_slice(&(state ^ state >> 29).to_le_bytes());
    }
    out.truncate(len);
}

/// The values seen by one reader.
#[derive(Debug)]
pub(crate) struct Watch {
    /// The youngest version of each key; versions are CAS uniques that only grow.
    youngest: Vec<u64>,
    expected: Vec<u8>,
    /// Correct items.
    pub(crate) found: u64,
    /// Items that were never stored: torn, or of another key.
    pub(crate) torn: u64,
    /// Items older than one of the same key that was read before.
    pub(crate) stale: u64,
}

impl Watch {
    pub(crate) fn new(keys: u64) -> Self {
        Self { youngest: vec![0; keys as usize], expected: Vec::new(), found: 0, torn: 0, stale: 0 }
    }

    pub(crate) fn read(&mut self, key: u64, state: &ItemState, value: &[u8]) {
        self.bytes(key, state, value);
        self.header(key, state);
    }

    /// Checks the bytes of an item of any age.
    pub(crate) fn bytes(&mut self, key: u64, state: &ItemState, value: &[u8]) {
        fill(&mut self.expected, key, state.cas(), state.value_bytes());
        let is_right = value == self.expected;
        self.found += u64::from(is_right);
        self.torn += u64::from(!is_right);
    }

    /// Checks the age of an item.
    pub(crate) fn header(&mut self, key: u64, state: &ItemState) {
        let Some(youngest) = self.youngest.get_mut(key as usize) else {
            self.torn += 1;
            return;
        };
        self.stale += u64::from(state.cas() < *youngest);
        *youngest = state.cas().max(*youngest);
    }
}
