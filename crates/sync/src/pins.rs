//! Who still reads a chunk of memory that its owner wants to give away.

use std::num::NonZeroU32;

/// Most different chunks that may be pinned in one table.
const SLOTS_MAX: usize = 1 << 16;

/// Counts the readers of chunks, and remembers which chunks are to be given back after the last.
///
/// A table is used under the lock of its partition, so there is nothing atomic in it: what makes a
/// pinned chunk safe is that pin, retire and unpin happen in one order for all threads. It lies
/// beside the region, not in it: after a crash there are no pins.
#[derive(Debug, Default)]
pub struct PinTable {
    slots: Vec<Slot>,
    free: Vec<u32>,
}

#[derive(Debug)]
struct Slot {
    chunk: u64,
    count: u32,
    retired: bool,
}

/// One reader's claim on a chunk: the place of its count in the [`PinTable`].
///
/// Not cloneable, because it is given back exactly once.
#[derive(Debug, PartialEq, Eq)]
pub struct Pin(NonZeroU32);

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
    /// Counts one more reader of `chunk`; `None` when too many chunks are pinned.
    ///
    /// `is_pinned` says whether the chunk is marked as pinned, which spares the search otherwise.
    pub fn pin(&mut self, chunk: u64, is_pinned: bool) -> Option<Pin> {
        let known = if is_pinned { self.position(chunk) } else { None };
        let index = match known {
            Some(index) => index,
            None => self.vacant_slot(chunk)?,
        };
        self.slots[index].count += 1;
        NonZeroU32::new(index as u32 + 1).map(Pin)
    }

    /// The chunk is no longer in use; whether that must wait for its readers.
    ///
    /// When it answers no, the chunk is not in the table and can be given back at once.
    pub fn retire(&mut self, chunk: u64) -> bool {
        match self.position(chunk) {
            Some(index) => {
                self.slots[index].retired = true;
                true
            }
            None => false,
        }
    }

    /// Ends one reader's claim.
    pub fn unpin(&mut self, pin: &Pin) -> Unpinned {
        let index = pin.0.get() - 1;
        let slot = &mut self.slots[index as usize];
        slot.count -= 1;
        if slot.count > 0 {
            return Unpinned::StillPinned;
        }
        self.free.push(index);
        if slot.retired { Unpinned::Retired } else { Unpinned::Free }
    }

    /// How many chunks are pinned.
    pub fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// Whether nothing is pinned.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The chunks that wait for their last reader.
    pub fn retired(&self) -> impl Iterator<Item = u64> {
        self.slots.iter().filter(|slot| slot.count > 0 && slot.retired).map(|slot| slot.chunk)
    }

    fn position(&self, chunk: u64) -> Option<usize> {
        self.slots.iter().position(|slot| slot.count > 0 && slot.chunk == chunk)
    }

    fn vacant_slot(&mut self, chunk: u64) -> Option<usize> {
        let slot = Slot { chunk, count: 0, retired: false };
        if let Some(index) = self.free.pop() {
            self.slots[index as usize] = slot;
            return Some(index as usize);
        }
        if self.slots.len() == SLOTS_MAX {
            return None;
        }
        self.slots.push(slot);
        Some(self.slots.len() - 1)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_chunk_outlives_its_last_reader_only() {
        let mut pins = PinTable::default();
        let first = pins.pin(64, false).unwrap();
        let second = pins.pin(64, true).unwrap();
        let other = pins.pin(128, false).unwrap();
        assert_eq!((pins.len(), pins.retire(64), pins.retire(192)), (2, true, false));
        assert_eq!(pins.retired().collect::<Vec<_>>(), [64]);
        assert_eq!(pins.unpin(&second), Unpinned::StillPinned);
        assert_eq!(pins.unpin(&first), Unpinned::Retired);
        assert_eq!(pins.unpin(&other), Unpinned::Free);
        assert!(pins.is_empty());
        assert!(!pins.retire(64));
    }

    #[test]
    fn slots_are_used_again_and_bounded() {
        let mut pins = PinTable::default();
        let mut held: Vec<_> = (0..SLOTS_MAX as u64).map(|chunk| pins.pin(chunk, false).unwrap()).collect();
        assert_eq!(pins.pin(u64::MAX, false), None);
        assert_eq!(pins.unpin(&held.pop().unwrap()), Unpinned::Free);
        assert!(pins.pin(u64::MAX, false).is_some());
    }
}
