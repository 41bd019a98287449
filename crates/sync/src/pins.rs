//! Counts the readers of chunks of memory that their owner wants to free.

use std::collections::{HashMap, hash_map::Entry};

/// Counts the readers of chunks, and records which chunks to free after the last reader.
///
/// A table is used under a lock, so it holds no atomics: pinned chunks are safe because all threads see
/// pins, retires and unpins in one order. A reader that found a chunk without a lock must check, under the
/// table's lock, that the chunk is still linked; a writer unlinks a chunk first and retires it afterwards.
/// The table lies outside the region: after a crash there are no pins. Its size is proportional to the
/// number of pins held.
#[derive(Debug, Default)]
pub struct PinTable {
    pinned: HashMap<u64, Readers>,
}

#[derive(Debug)]
struct Readers {
    count: u32,
    retired: bool,
}

/// One reader's claim on a chunk.
///
/// Not cloneable, because it is released exactly once.
#[derive(Debug, PartialEq, Eq)]
pub struct Pin(u64);

/// The state of a chunk after an unpin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unpinned {
    /// Others still read it.
    StillPinned,
    /// It is in use and no longer pinned.
    Free,
    /// It was retired while pinned and has no readers left: free it.
    Retired,
}

impl PinTable {
    /// Counts one more reader of `chunk`.
    pub fn pin(&mut self, chunk: u64) -> Pin {
        let readers = self.pinned.entry(chunk).or_insert(Readers { count: 0, retired: false });
        readers.count += 1;
        Pin(chunk)
    }

    /// Retires a chunk that is no longer in use; returns true if freeing it must wait for its readers.
    ///
    /// If false, the chunk is not in the table and can be freed at once.
    pub fn retire(&mut self, chunk: u64) -> bool {
        match self.pinned.get_mut(&chunk) {
            Some(readers) => {
                readers.retired = true;
                true
            }
            None => false,
        }
    }

    /// Ends one reader's claim.
    pub fn unpin(&mut self, pin: &Pin) -> Unpinned {
        let Entry::Occupied(mut readers) = self.pinned.entry(pin.0) else { return Unpinned::Free };
        readers.get_mut().count -= 1;
        if readers.get().count > 0 {
            return Unpinned::StillPinned;
        }
        if readers.remove().retired { Unpinned::Retired } else { Unpinned::Free }
    }

    /// How many chunks are pinned.
    pub fn len(&self) -> usize {
        self.pinned.len()
    }

    /// True if nothing is pinned.
    pub fn is_empty(&self) -> bool {
        self.pinned.is_empty()
    }

    /// The chunks that wait for their last reader.
    pub fn retired(&self) -> impl Iterator<Item = u64> {
        self.pinned.iter().filter(|(_, readers)| readers.retired).map(|(&chunk, _)| chunk)
    }
}

impl Pin {
    /// The chunk that is claimed.
    pub fn chunk(&self) -> u64 {
        self.0
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_chunk_outlives_its_last_reader_only() {
        let mut pins = PinTable::default();
        let first = pins.pin(64);
        let second = pins.pin(64);
        let other = pins.pin(128);
        assert_eq!((pins.len(), pins.retire(64), pins.retire(192)), (2, true, false));
        assert_eq!(pins.retired().collect::<Vec<_>>(), [64]);
        assert_eq!(pins.unpin(&second), Unpinned::StillPinned);
        assert_eq!(pins.unpin(&first), Unpinned::Retired);
        assert_eq!(pins.unpin(&other), Unpinned::Free);
        assert!(pins.is_empty());
        assert!(!pins.retire(64));
    }
}
