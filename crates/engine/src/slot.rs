//! One entry of a bucket: which item, and how large.

use minos_base::{KeyHash, SizeClass};
use minos_region::OFFSET_BITS;

/// A word of a bucket: tag (16) | size class (10) | link (38); zero is empty.
///
/// The link is the item's place in words: from the beginning of the region in store mode, a position in the
/// partition's log in cache mode. Classes that no value has mean *on flash*: see [`minos_base::FlashSlot`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Slot(pub(crate) u64);

const TAG_SHIFT: u32 = OFFSET_BITS + SizeClass::BITS;
const _: () = assert!(TAG_SHIFT + 16 == 64);

impl Slot {
    pub(crate) const EMPTY: Self = Self(0);

    /// Never empty, because a tag is never zero.
    pub(crate) fn new(hash: KeyHash, value_bytes: u64, link: u64) -> Self {
        debug_assert!(link >> OFFSET_BITS == 0);
        let class = SizeClass::of(value_bytes).index() as u64;
        Self(u64::from(hash.tag()) << TAG_SHIFT | class << OFFSET_BITS | link)
    }

    #[inline]
    pub(crate) fn is_empty(self) -> bool {
        self == Self::EMPTY
    }

    #[inline]
    pub(crate) fn has_tag(self, tag: u16) -> bool {
        self.0 >> TAG_SHIFT == u64::from(tag)
    }

    pub(crate) fn tag(self) -> u16 {
        (self.0 >> TAG_SHIFT) as u16
    }

    #[inline]
    pub(crate) fn class_index(self) -> usize {
        (self.0 >> OFFSET_BITS) as usize & ((1 << SizeClass::BITS) - 1)
    }

    /// True if it names a record on flash. An empty slot does not.
    #[inline]
    pub(crate) fn is_on_flash(self) -> bool {
        self.class_index() >= SizeClass::COUNT
    }

    pub(crate) fn class(self) -> Option<SizeClass> {
        SizeClass::from_index(self.class_index())
    }

    /// The same slot for an item at another place.
    pub(crate) fn with_link(self, link: u64) -> Self {
        Self(self.0 & !((1 << OFFSET_BITS) - 1) | link)
    }

    #[inline]
    pub(crate) fn link(self) -> u64 {
        self.0 & ((1 << OFFSET_BITS) - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_come_back() {
        for value_bytes in [0, 1, 4096, 1 << 30] {
            let link = (1 << OFFSET_BITS) - 1 - value_bytes;
            let slot = Slot::new(KeyHash(0xffff_1234), value_bytes, link);
            assert!(slot.has_tag(0x1234) && !slot.has_tag(0x1235) && !slot.is_empty());
            assert_eq!((slot.class(), slot.link()), (Some(SizeClass::of(value_bytes)), link));
        }
    }
}
