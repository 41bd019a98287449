//! A place on flash in the 64 bits of an index slot, how much to read there, and what must be written so that records
//! stay dead after a power loss.

use crate::{KeyHash, SizeClass};

/// Bits of a page's number: 4 TiB a table.
const PAGE_BITS: u32 = 30;
/// Bits of the hash beside it.
const GROWTH_BITS: u32 = 8;
const LINK_BITS: u32 = PAGE_BITS + GROWTH_BITS;
const TAG_SHIFT: u32 = LINK_BITS + SizeClass::BITS;
const _: () = assert!(TAG_SHIFT + 16 == 64);
/// Codes of a size class that no item in memory has mean a rough length on flash.
const _: () = assert!(SizeClass::COUNT + RoughLength::COUNT == 1 << SizeClass::BITS);

/// The place of a record on flash.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FlashPlace {
    /// The page on the device in which it begins.
    pub page: u32,
    /// Its length.
    pub length: RoughLength,
}

/// A slot that names a page on flash.
///
/// ```text
/// tag (16) | 833 + rough length (10) | more bits of the hash (8) | page on the device (30)
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FlashSlot {
    /// The key's tag.
    pub tag: u16,
    /// The record's length.
    pub length: RoughLength,
    /// From [`growth_bits`].
    pub growth: u8,
    /// The page in which the record begins.
    pub page: u32,
}

impl FlashSlot {
    /// The slot's 64 bits; `None` if the page is beyond 4 TiB.
    pub fn encode(self) -> Option<u64> {
        if self.page >> PAGE_BITS != 0 {
            return None;
        }
        let class = (SizeClass::COUNT + usize::from(self.length.code())) as u64;
        let link = u64::from(self.growth) << PAGE_BITS | u64::from(self.page);
        Some(u64::from(self.tag) << TAG_SHIFT | class << LINK_BITS | link)
    }

    /// Reads a slot; `None` if it is empty or names an item in memory.
    pub fn decode(slot: u64) -> Option<Self> {
        let class = (slot >> LINK_BITS) as usize & ((1 << SizeClass::BITS) - 1);
        let code = u8::try_from(class.checked_sub(SizeClass::COUNT)?).ok()?;
        Some(Self {
            tag: (slot >> TAG_SHIFT) as u16,
            length: RoughLength::from_code(code)?,
            growth: (slot >> PAGE_BITS) as u8,
            page: slot as u32 & ((1 << PAGE_BITS) - 1),
        })
    }

    /// The place of its record.
    pub fn place(self) -> FlashPlace {
        FlashPlace { page: self.page, length: self.length }
    }

    /// The bit of the hash that the split of a table of `1 << level` to `2 << level` buckets decides by.
    ///
    /// Right while `level` is less than 8 above the level at which the slot was made.
    pub fn growth_bit(self, level: u32) -> bool {
        self.growth >> (level % GROWTH_BITS) & 1 == 1
    }

    /// True if the key may have this hash, in a table of `1 << level` buckets and more, now and when the slot
    /// was made.
    pub fn may_be(self, hash: KeyHash, level: u32) -> bool {
        self.tag == hash.tag() && self.growth == growth_bits(hash, level)
    }
}

/// The 8 bits of a hash that decide the next splits of a table of `1 << level` buckets.
///
/// The bit for level `l` lies at `l % 8`, so that a slot need not say at which level it was made.
pub fn growth_bits(hash: KeyHash, level: u32) -> u8 {
    let bits = u64::from(hash.bucket_bits());
    (level..level + GROWTH_BITS).fold(0, |all, at| all | ((bits >> at & 1) as u8) << (at % GROWTH_BITS))
}

/// Bytes of a page on flash.
pub const FLASH_PAGE_BYTES: usize = 4096;

/// Steps of 256 bytes, for records no longer than a page.
const STEPS: u64 = 16;
const STEP_BYTES: u64 = FLASH_PAGE_BYTES as u64 / STEPS;
/// The first code of longer records.
const LONG: u64 = 2 * STEPS;
/// Longer records that reach into more pages than this have a rounded number.
const EXACT_PAGES: u64 = 64;
/// The first code of those.
const ROUNDED: u64 = LONG + EXACT_PAGES - 1;

/// A record's rough length, from which the number of pages to read follows.
///
/// ```text
/// 0..16     within one page, in steps of 256 bytes
/// 16..32    as long, but reaching into a second page
/// 32..95    longer than a page: 2 to 64 pages
/// 95..191   more, by eighths of powers of two, rounded up
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RoughLength(u8);

impl RoughLength {
    /// Number of codes.
    pub const COUNT: usize = 191;

    /// For a record of `bytes` that reaches into `pages` pages.
    pub fn of(bytes: u64, pages: u64) -> Self {
        let step = bytes.div_ceil(STEP_BYTES).clamp(1, STEPS) - 1;
        let code = match pages {
            0 | 1 => step,
            2 if bytes <= FLASH_PAGE_BYTES as u64 => STEPS + step,
            2..=EXACT_PAGES => LONG + pages - 2,
            _ => {
                let doublings = u64::from(((pages - 1) / EXACT_PAGES).ilog2());
                let eighth = (pages - 1 - (EXACT_PAGES << doublings)) >> (doublings + 3);
                ROUNDED + doublings * 8 + eighth
            }
        };
        Self(code.min(Self::COUNT as u64 - 1) as u8)
    }

    /// The length with this code, if there is one.
    pub fn from_code(code: u8) -> Option<Self> {
        (usize::from(code) < Self::COUNT).then_some(Self(code))
    }

    /// Its number among all lengths.
    pub fn code(self) -> u8 {
        self.0
    }

    /// Pages to read.
    pub fn pages(self) -> u64 {
        match u64::from(self.0) {
            code if code < STEPS => 1,
            code if code < LONG => 2,
            code if code < ROUNDED => code - LONG + 2,
            code => {
                let (doublings, eighth) = ((code - ROUNDED) / 8, (code - ROUNDED) % 8);
                (EXACT_PAGES + (eighth + 1) * (EXACT_PAGES / 8)) << doublings
            }
        }
    }

    /// No record of this length has more bytes.
    pub fn bytes_max(self) -> u64 {
        let code = u64::from(self.0);
        if code < LONG { (code % STEPS + 1) * STEP_BYTES } else { self.pages() * FLASH_PAGE_BYTES as u64 }
    }

    /// Bytes of a record of this length, about.
    pub fn bytes_typical(self) -> u64 {
        let code = u64::from(self.0);
        if code < LONG {
            self.bytes_max() - STEP_BYTES / 2
        } else {
            (self.pages() - 1) * FLASH_PAGE_BYTES as u64
        }
    }
}

/// Bits of a bucket's number that keys have in common if a slot may be either's: no index has fewer.
pub const ALIKE_BUCKET_BITS: u32 = 6;

/// The records of a hash up to a sequence are dead.
///
/// In a table that may lose nothing it is written when the item of this hash that memory held at that time is durable
/// or gone: a power loss between the two would take the old value with the new one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tombstone {
    /// The key's hash.
    pub hash: KeyHash,
    /// Not lower than those of the dead records, lower than those of later ones. 0: only the record at the place
    /// is dead.
    pub sequence: u64,
    /// The record for which it is due.
    pub place: FlashPlace,
    /// True if the index forgot that record, so that its bytes are dead, whatever its hash: in a table that may
    /// lose items it may be another key's whose slot looks the same. Otherwise the index names it still, and
    /// an item in memory hides it.
    pub is_forgotten: bool,
}

/// True if a slot that names a record of the one hash may look like a slot of the other.
#[inline]
pub fn may_look_alike(one: KeyHash, other: KeyHash) -> bool {
    may_look_alike_among(1 << ALIKE_BUCKET_BITS, one, other)
}

/// As [`may_look_alike`], in an index that has so many buckets or more.
#[inline]
pub fn may_look_alike_among(buckets: u32, one: KeyHash, other: KeyHash) -> bool {
    let common = buckets.checked_ilog2().map_or(0, |bits| (1 << bits) - 1);
    one.tag() == other.tag() && (one.bucket_bits() ^ other.bucket_bits()) & common == 0
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_slot_comes_back(
            tag in 1u16..,
            code in 0u8..RoughLength::COUNT as u8,
            growth: u8,
            page in 0u32..1 << PAGE_BITS,
        ) {
            let slot = FlashSlot { tag, length: RoughLength::from_code(code).unwrap(), growth, page };
            let bits = slot.encode().unwrap();
            prop_assert_eq!(FlashSlot::decode(bits), Some(slot));
            prop_assert!(bits != 0);
        }

        #[test]
        fn slots_of_memory_are_no_places(tag: u16, value_bytes in 0..=1u64 << 30, link in 0u64..1 << LINK_BITS) {
            let class = SizeClass::of(value_bytes).index() as u64;
            prop_assert_eq!(FlashSlot::decode(u64::from(tag) << TAG_SHIFT | class << LINK_BITS | link), None);
        }

        #[test]
        fn splits_are_decided_for_eight_doublings(hash: u64, made in 0u32..20, later in 0u32..GROWTH_BITS) {
            let hash = KeyHash(hash);
            let length = RoughLength::of(100, 1);
            let slot = FlashSlot { tag: hash.tag(), length, growth: growth_bits(hash, made), page: 7 };
            let level = made + later;
            prop_assert_eq!(slot.growth_bit(level), hash.bucket_bits() >> level & 1 == 1);
            prop_assert!(slot.may_be(hash, made));
        }

        #[test]
        fn enough_pages_are_read(bytes in 1u64..10_000, pages in 1u64..1 << 17) {
            let length = RoughLength::of(bytes, pages);
            prop_assert!(pages <= length.pages() && length.pages() <= pages.max(8) * 9 / 8 + 1);
            prop_assert_eq!(RoughLength::from_code(length.code()), Some(length));
            prop_assert!(pages > 2 || bytes > 4096 || bytes <= length.bytes_max());
        }
    }

    #[test]
    fn a_page_beyond_four_tebibytes_has_no_slot() {
        let length = RoughLength::of(1, 1);
        let slot = |page| FlashSlot { tag: 1, length, growth: 0xff, page }.encode();
        assert!(slot((1 << PAGE_BITS) - 1).is_some());
        assert_eq!(slot(1 << PAGE_BITS), None);
    }

    #[test]
    fn lengths_grow_with_their_codes() {
        let lengths: Vec<_> = (0..=u8::MAX).map_while(RoughLength::from_code).collect();
        assert_eq!(lengths.len(), RoughLength::COUNT);
        for (code, length) in lengths.iter().enumerate() {
            assert_eq!(RoughLength::of(length.bytes_max(), length.pages()), *length, "{code}");
        }
        let longer = |pair: &[RoughLength]| pair[0].bytes_max() < pair[1].bytes_max();
        assert!(lengths[..16].windows(2).all(longer) && lengths[16..].windows(2).all(longer));
    }
}
