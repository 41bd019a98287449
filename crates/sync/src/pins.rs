//! Who still reads a chunk of memory that its owner wants to give away.

use std::collections::{HashMap, hash_map::Entry};

/// Counts the readers of chunks, and remembers which chunks are to be given back after the last.
///
/// A table is used under a lock, so there is nothing atomic in it: what makes a pinned chunk safe is
/// that pin, retire and unpin happen in one order for all threads. A reader that found a chunk without
/// a lock must look, under the table's lock, whether the chunk is still linked; whoever unlinks one
/// does that first and retires it then. It lies beside the region, not in it: after a crash there are
/// no pins. It is as large as the number of claims that are held.
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
/// Not cloneable, because it is given back exactly once.
#[derive(Debug, PartialEq, Eq)]
pub struct Pin(u64);

/// What is to be done with the chunk after an unpin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unpinned {
    /// Others still read it.
    StillPinned,
    /// It is in use and no longer pinned.
    Free,
    /// It was retired while pinned and nobody reads it any more: give it back.
    Retired,
}

impl PinTable {
    /// Counts one more reader of `chunk`.
    pub fn pin(&mut self, chunk: u64) -> Pin {
        let readers = self.pinned.entry(chunk).or_insert(Readers { count: 0, retired: false });
        readers.count += 1;
        Pin(chunk)
    }

    /// The chunk is no longer in use; whether that must wait for its readers.
    ///
    /// When it answers no, the chunk is not in the table and can be given back at once.
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

    /// Whether nothing is pinned.
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
