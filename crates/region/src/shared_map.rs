//! Which memory lock-free readers may ever have seen.

use crate::{offset::Offset, region::Region};
use std::sync::atomic::Ordering::Relaxed;

/// Words of memory for which one bit stands: 512 bytes, so that the map takes 1/4096 of the region.
pub(crate) const UNIT_WORDS: u64 = 64;

/// A bit for each 512 bytes of a region, set once they may have been read without a lock.
///
/// A reader may sleep with an offset while the item is deleted, its arena freed and the memory allocated
/// again. It then reads garbage and detects it, provided that the memory is written with atomic words. Memory
/// that is written as plain bytes must therefore never have been shared. Nothing shows when the last such
/// reader has woken, so a bit is never cleared.
#[derive(Debug)]
pub(crate) struct SharedMap {
    start: Offset,
    units: u64,
}

impl SharedMap {
    /// A map for a region of `region_words`, whose bits lie at `start`.
    pub(crate) fn new(start: Offset, region_words: u64) -> Self {
        Self { start, units: region_words.div_ceil(UNIT_WORDS) }
    }

    pub(crate) fn len_words(&self) -> u64 {
        self.units.div_ceil(64)
    }

    /// Remembers that `words` from `chunk` on are shared. Before any reader learns of them.
    pub(crate) fn mark(&self, region: &Region, chunk: Offset, words: u64) {
        for (index, bits) in self.masks(chunk, words) {
            // Relaxed: a later owner gets this memory through the lock of the region's heap.
            let word = region.word(self.start.plus(index));
            if word.load(Relaxed) & bits != bits {
                word.fetch_or(bits, Relaxed);
            }
        }
    }

    pub(crate) fn is_marked(&self, region: &Region, chunk: Offset, words: u64) -> bool {
        self.masks(chunk, words)
            .any(|(index, bits)| region.word(self.start.plus(index)).load(Relaxed) & bits != 0)
    }

    /// Clears all bits, when no reader of the memory is left.
    pub(crate) fn clear(&self, region: &Region) {
        for word in region.words(self.start, self.len_words() as usize) {
            word.store(0, Relaxed);
        }
    }

    /// The words of the map that stand for a range, and which of their bits.
    fn masks(&self, chunk: Offset, words: u64) -> impl Iterator<Item = (u64, u64)> {
        let first = chunk.words() / UNIT_WORDS;
        let last = (chunk.words() + words.max(1) - 1) / UNIT_WORDS;
        (first / 64..=last / 64).map(move |index| {
            let from = first.max(index * 64) - index * 64;
            let to = last.min(index * 64 + 63) - index * 64;
            (index, u64::MAX << from & u64::MAX >> (63 - to))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Backing;

    #[test]
    fn exactly_the_touched_units_are_marked() {
        let region = Region::map(64 << 20, &Backing::Private).unwrap();
        let map = SharedMap::new(Offset::from_words(64), region.len_words());
        let (unit, start) = (UNIT_WORDS, |units| Offset::from_words(units * UNIT_WORDS));
        map.mark(&region, start(60), 10 * unit);
        for index in 0..1024 {
            assert_eq!(map.is_marked(&region, start(index), unit), (60..70).contains(&index), "{index}");
        }
        map.mark(&region, Offset::from_words(200 * unit - 1), 2);
        assert!(map.is_marked(&region, start(199), 1) && map.is_marked(&region, start(200), 1));
        assert!(!map.is_marked(&region, start(71), 128 * unit));
        assert!(map.is_marked(&region, start(0), 1024 * unit));
    }
}
