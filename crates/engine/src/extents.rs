//! Extents: large values that an entry of a log owns, but which lie outside it.
//!
//! One value of 8 MB in a log would evict thousands of small ones, and could not be sent from there, because
//! a log does not wait for readers. So it gets a chunk of the region's heap, and the entry refers to it by an
//! [`ExtentId`]. Extents of all logs are evicted in one order, the oldest first, when another one needs
//! memory; or those of one [`Zone`] alone, which have a list of their own. Their entries stay, and their ids no
//! longer match.
//!
//! The table lies outside the region and is used under a lock, so nothing in it is atomic.

mod outlook;
#[cfg(test)]
mod tests;

use arrayvec::ArrayVec;
use minos_region::Offset;
pub(crate) use outlook::{Outlook, ZoneRoom};

/// No slot: the end of a list.
const NONE: u32 = u32::MAX;

/// Names one extent while it exists: a released id does not match later extents.
///
/// It is never 0. An old id would match again only after 2^32 extents in the same slot of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ExtentId {
    slot: u32,
    generation: u32,
}

impl ExtentId {
    /// The id as one word, to be kept in an entry.
    pub const fn to_word(self) -> u64 {
        (self.slot as u64) << 32 | self.generation as u64
    }

    /// The id that a word stands for; any word will do, and most name nothing.
    pub const fn from_word(word: u64) -> Self {
        Self { slot: (word >> 32) as u32, generation: word as u32 }
    }
}

/// Where the chunk of an extent lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Zone {
    /// In the reserve for large values.
    Reserve,
    /// In the rest of the memory, which logs take too.
    Rest,
}

impl Zone {
    /// All there are.
    pub const ALL: [Self; 2] = [Self::Reserve, Self::Rest];
}

/// One reader's claim on an extent.
///
/// Not cloneable, because it is released exactly once.
#[derive(Debug, PartialEq, Eq)]
pub struct ExtentPin {
    id: ExtentId,
    chunk: Offset,
}

impl ExtentPin {
    /// The chunk; it is neither written nor freed until the claim is released.
    pub fn chunk(&self) -> Offset {
        self.chunk
    }
}

/// Counts of extents.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ExtentCounts {
    /// Extents that are found by their id.
    pub extents: u64,
    /// Bytes of these.
    pub bytes: u64,
    /// Pinned chunks, linked or not.
    pub pinned: u64,
    /// Extents that were evicted so far.
    pub evictions: u64,
}

/// What evictions of a zone's extents would free.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Evictable {
    /// Chunks of extents that nobody has pinned.
    pub chunks: u64,
    /// Words of these.
    pub words: u64,
}

impl Evictable {
    fn add(&mut self, words: u64) {
        self.chunks += 1;
        self.words += words;
    }

    fn remove(&mut self, words: u64) {
        self.chunks -= 1;
        self.words -= words;
    }
}

/// All extents of a store, from the oldest to the youngest.
///
/// The table grows by doubling and holds one slot for each extent there ever was at a time: as extents are
/// not small, it is bounded by a small part of the memory. Everything but eviction takes constant time.
#[derive(Debug)]
pub struct Extents {
    slots: Vec<Slot>,
    free: u32,
    /// The order of each zone.
    orders: [Order; Zone::ALL.len()],
    /// How many extents there were.
    made: u64,
    counts: ExtentCounts,
    /// Extents that evictions have looked at.
    #[cfg(test)]
    looks: u64,
}

/// The ends of a list from the oldest extent of a zone to the youngest.
#[derive(Clone, Copy, Debug)]
struct Order {
    oldest: u32,
    youngest: u32,
    evictable: Evictable,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// In the list of free slots, by `younger`.
    Free,
    /// In the order, found by its id.
    Linked,
    /// Released, but still pinned by a reader.
    Retired,
}

#[derive(Debug)]
struct Slot {
    chunk: Offset,
    zone: Zone,
    words: u64,
    bytes: u64,
    /// Its number among all there were: an older one has a lower number.
    number: u64,
    generation: u32,
    older: u32,
    younger: u32,
    pins: u32,
    state: State,
}

impl Default for Extents {
    fn default() -> Self {
        Self {
            slots: Vec::new(),
            free: NONE,
            orders: [Order { oldest: NONE, youngest: NONE, evictable: Evictable::default() };
                Zone::ALL.len()],
            made: 0,
            counts: ExtentCounts::default(),
            #[cfg(test)]
            looks: 0,
        }
    }
}

impl Extents {
    /// Adds the youngest extent: a chunk of so many words, its tag included, that holds `bytes`.
    ///
    /// # Panics
    /// If there are 2^32 - 1 extents, which is more than the largest region has room for.
    pub fn insert(&mut self, (chunk, words): (Offset, u64), zone: Zone, bytes: u64) -> ExtentId {
        let slot = self.take_slot();
        let entry = &mut self.slots[slot as usize];
        (entry.chunk, entry.words, entry.zone, entry.bytes) = (chunk, words, zone, bytes);
        (entry.number, entry.state) = (self.made, State::Linked);
        self.made += 1;
        let id = ExtentId { slot, generation: entry.generation };
        self.link_youngest(slot);
        self.orders[zone as usize].evictable.add(words);
        self.counts.extents += 1;
        self.counts.bytes += bytes;
        id
    }

    /// The chunk of an extent; `None` if it was evicted or released.
    pub fn chunk(&self, id: ExtentId) -> Option<Offset> {
        self.linked(id).map(|slot| self.slots[slot as usize].chunk)
    }

    /// Claims an extent, so that its chunk stays as it is; `None` if it was evicted or released.
    pub fn pin(&mut self, id: ExtentId) -> Option<ExtentPin> {
        let slot = self.linked(id)?;
        let entry = &mut self.slots[slot as usize];
        if entry.pins == 0 {
            self.counts.pinned += 1;
            self.orders[entry.zone as usize].evictable.remove(entry.words);
        }
        entry.pins += 1;
        Some(ExtentPin { id, chunk: entry.chunk })
    }

    /// Releases a claim; returns the chunk to free if this was the last claim on a released extent.
    #[must_use = "the chunk would be lost"]
    pub fn unpin(&mut self, pin: &ExtentPin) -> Option<Offset> {
        let entry = &mut self.slots[pin.id.slot as usize];
        debug_assert!(entry.generation == pin.id.generation && entry.pins > 0, "not pinned");
        entry.pins -= 1;
        if entry.pins > 0 {
            return None;
        }
        self.counts.pinned -= 1;
        if entry.state == State::Retired {
            return Some(self.free_slot(pin.id.slot));
        }
        self.orders[entry.zone as usize].evictable.add(entry.words);
        None
    }

    /// Removes an extent; returns the chunk to free.
    ///
    /// `None` while it is pinned, in which case the last unpin returns it, or
    /// if it was evicted or released before.
    #[must_use = "the chunk would be lost"]
    pub fn release(&mut self, id: ExtentId) -> Option<Offset> {
        let slot = self.linked(id)?;
        self.remove(slot);
        if self.slots[slot as usize].pins > 0 {
            self.slots[slot as usize].state = State::Retired;
            return None;
        }
        Some(self.free_slot(slot))
    }

    /// What evictions of a zone's extents would free now.
    pub fn evictable(&self, zone: Zone) -> Evictable {
        self.orders[zone as usize].evictable
    }

    /// Removes the oldest unpinned extent of these zones; returns the chunk to free, and its bytes.
    ///
    /// Looks at all older extents of the zones, which are pinned, and at one of each zone.
    #[must_use = "the chunk would be lost"]
    pub fn evict_oldest(&mut self, zones: &[Zone]) -> Option<(Offset, u64)> {
        let oldest: ArrayVec<_, { Zone::ALL.len() }> =
            zones.iter().filter_map(|zone| self.oldest_unpinned(*zone)).collect();
        let slot = oldest.into_iter().min_by_key(|slot| self.slots[*slot as usize].number)?;
        let bytes = self.slots[slot as usize].bytes;
        self.remove(slot);
        self.counts.evictions += 1;
        Some((self.free_slot(slot), bytes))
    }

    /// Counts of extents.
    pub fn counts(&self) -> ExtentCounts {
        self.counts
    }

    /// The slot of an extent that is found by its id.
    fn linked(&self, id: ExtentId) -> Option<u32> {
        let entry = self.slots.get(id.slot as usize)?;
        (entry.generation == id.generation && entry.state == State::Linked).then_some(id.slot)
    }

    fn oldest_unpinned(&mut self, zone: Zone) -> Option<u32> {
        let mut slot = self.orders[zone as usize].oldest;
        while let Some(entry) = self.slots.get(slot as usize) {
            #[cfg(test)]
            {
                self.looks += 1;
            }
            if entry.pins == 0 {
                return Some(slot);
            }
            slot = entry.younger;
        }
        None
    }

    /// Takes an extent out of the order and the counts.
    fn remove(&mut self, slot: u32) {
        self.unlink(slot);
        let entry = &self.slots[slot as usize];
        self.counts.extents -= 1;
        self.counts.bytes -= entry.bytes;
        if entry.pins == 0 {
            self.orders[entry.zone as usize].evictable.remove(entry.words);
        }
    }

    fn take_slot(&mut self) -> u32 {
        if self.free != NONE {
            let slot = self.free;
            self.free = self.slots[slot as usize].younger;
            return slot;
        }
        let slot = u32::try_from(self.slots.len()).ok().filter(|slot| *slot != NONE).expect("a free slot");
        self.slots.push(Slot {
            chunk: Offset::from_words(0),
            zone: Zone::Rest,
            words: 0,
            bytes: 0,
            number: 0,
            generation: 1,
            older: NONE,
            younger: NONE,
            pins: 0,
            state: State::Free,
        });
        slot
    }

    /// Makes a slot free, so that its id matches no more; the chunk that it had.
    fn free_slot(&mut self, slot: u32) -> Offset {
        let entry = &mut self.slots[slot as usize];
        // Never 0, so that no id is.
        entry.generation = entry.generation.wrapping_add(1).max(1);
        (entry.state, entry.younger) = (State::Free, self.free);
        self.free = slot;
        entry.chunk
    }

    fn link_youngest(&mut self, slot: u32) {
        let entry = &mut self.slots[slot as usize];
        let order = &mut self.orders[entry.zone as usize];
        let older = std::mem::replace(&mut order.youngest, slot);
        (entry.older, entry.younger) = (older, NONE);
        match self.slots.get_mut(older as usize) {
            Some(older) => older.younger = slot,
            None => order.oldest = slot,
        }
    }

    fn unlink(&mut self, slot: u32) {
        let Slot { zone, older, younger, .. } = self.slots[slot as usize];
        let order = &mut self.orders[zone as usize];
        match self.slots.get_mut(older as usize) {
            Some(older) => older.younger = younger,
            None => order.oldest = younger,
        }
        match self.slots.get_mut(younger as usize) {
            Some(younger) => younger.older = older,
            None => order.youngest = older,
        }
    }
}
