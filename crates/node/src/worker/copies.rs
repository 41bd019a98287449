//! Decides which records on flash answer a request without coming to memory.

use std::sync::{
    Arc,
    atomic::{AtomicU32, AtomicUsize, Ordering::Relaxed},
};

use minos_base::KeyHash;
use minos_tier::Found;

use super::placement::COPIED_BYTES_MAX;
use crate::{ops::Need, server::config::Promote};

/// Bytes of values that one worker's requests may hold copied. Beyond that, items come to memory.
const COPIES_BYTES_MAX: usize = 8 << 20;

/// Requests whose memory for copies is kept for others, each up to so many bytes.
const SPARE_MAX: usize = 8;
const SPARE_BYTES_MAX: usize = 1 << 20;

/// Memory for each key that is remembered, so that as many are as memory has items of a page.
const MEMORY_PER_KEY: u64 = 4 << 10;
const KEYS_MIN: u64 = 1 << 10;
const KEYS_MAX: u64 = 1 << 20;

/// The records that one worker reads for requests that do not need them in memory.
///
/// An item that is read once in a while would displace items that are read more often. Only a second read within
/// about as many others as memory has items brings it to memory.
pub(super) struct Copies {
    promote: Promote,
    read_lately: Arc<ReadLately>,
    /// Bytes of the values that requests hold.
    held_bytes: Arc<AtomicUsize>,
    /// Memory of earlier copies: to allocate pages anew for each request takes longer than to copy.
    spare: Vec<Vec<u8>>,
}

/// The keys that all workers have read lately: of those that share a place, a part of the hash of the last one.
pub(crate) struct ReadLately(Box<[AtomicU32]>);

impl ReadLately {
    /// No keys.
    pub(crate) fn new(memory_bytes: u64) -> Self {
        let keys = (memory_bytes / MEMORY_PER_KEY).clamp(KEYS_MIN, KEYS_MAX).next_power_of_two();
        Self((0..keys).map(|_| AtomicU32::new(0)).collect())
    }

    /// True if the key was read lately. From now on it was.
    fn has(&self, hash: KeyHash) -> bool {
        // The highest bits choose the partition, the lowest the bucket: both parts have some of each.
        let mixed = hash.0.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let place = (mixed >> 32) as usize & (self.0.len() - 1);
        // Odd, so that no key looks like an empty place.
        let part = mixed as u32 ^ (hash.0 >> 32) as u32 | 1;
        // Relaxed: the place holds all there is to know.
        self.0[place].swap(part, Relaxed) == part
    }
}

impl Copies {
    pub(super) fn new(promote: Promote, read_lately: Arc<ReadLately>) -> Self {
        Self { promote, read_lately, held_bytes: Arc::default(), spare: Vec::new() }
    }

    /// True if the item stays where it is, and a copy answers the request.
    pub(super) fn will_do(&self, hash: KeyHash, found: &Found<'_>) -> bool {
        self.promote == Promote::Second
            && found.displaces()
            && self.have_room(found)
            && !self.read_lately.has(hash)
    }

    /// True if there is room for a copy of the item.
    pub(super) fn have_room(&self, found: &Found<'_>) -> bool {
        let bytes = found.value.len();
        // Relaxed: a bound that a race may pass by a value.
        bytes as u64 <= COPIED_BYTES_MAX && self.held_bytes.load(Relaxed) + bytes <= COPIES_BYTES_MAX
    }

    /// Empty memory for the copies of a request with this need, and where they are counted.
    pub(super) fn memory(&mut self, need: Need) -> (Vec<u8>, Arc<AtomicUsize>) {
        let spare = if need == Need::Copy { self.spare.pop() } else { None };
        (spare.unwrap_or_default(), Arc::clone(&self.held_bytes))
    }

    /// Takes back the memory of a request's copies, empty.
    pub(super) fn take_back(&mut self, memory: Vec<u8>) {
        if self.spare.len() < SPARE_MAX && (1..=SPARE_BYTES_MAX).contains(&memory.capacity()) {
            self.spare.push(memory);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_read_is_known_until_many_others_have_come() {
        let lately = ReadLately::new(4 << 20);
        assert_eq!(lately.0.len(), 1024);
        let hash = |key: u64| minos_base::hash_key(&key.to_be_bytes(), 7);
        assert!(!lately.has(hash(0)));
        assert!(lately.has(hash(0)));
        let again = |between: u64| {
            let mut known = 0;
            for first in 0..100 {
                lately.has(hash(first));
                (1000..1000 + between).for_each(|key| {
                    lately.has(hash(key + first * 1_000_000));
                });
                known += u32::from(lately.has(hash(first)));
            }
            known
        };
        assert!(again(100) > 80);
        assert!(again(10_000) < 5);
    }
}
