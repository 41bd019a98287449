//! Generations: the mark by which a flush makes items dead.
//!
//! The flushes of a partition are numbered, and an item carries the number of the last flush before it was
//! stored. It carries two bits of the number while two bits distinguish all generations present, and the
//! whole number, in place of the access time, when flushes come faster than the sweep removes dead items. So
//! a flush always stores just one word.
//!
//! ```text
//! a generation in the index   bits of a header that tell it (32) | number modulo 2^21, as in a header (32)
//! in a header                 whole number (1) | lowest bits of the number (2) | access time or other bits (19)
//! ```

use minos_base::Seconds;

/// Bits of an item's access time.
const ACCESS_BITS: u32 = 19;
pub(crate) const ACCESS_MASK: u64 = (1 << ACCESS_BITS) - 1;

/// Bits of a number that an item always carries.
const SHORT_BITS: u32 = 2;
const SHORT_MASK: u64 = ((1 << SHORT_BITS) - 1) << ACCESS_BITS;

/// Set where an item carries a whole number.
pub(crate) const WHOLE: u64 = 1 << (ACCESS_BITS + SHORT_BITS);

const NUMBER_BITS: u32 = ACCESS_BITS + SHORT_BITS;
const NUMBER_MASK: u64 = (1 << NUMBER_BITS) - 1;

/// Bits below the mask of the bits that carry the generation.
const TOLD_SHIFT: u32 = 32;

/// The mark shared by all items stored since a flush.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Generation(u64);

impl Generation {
    /// Before any flush.
    pub(crate) const FIRST: Self = Self::numbered(0, WHOLE | SHORT_MASK);

    /// As it lies in the index.
    #[inline]
    pub(crate) const fn from_word(word: u64) -> Self {
        Self(word)
    }

    pub(crate) const fn to_word(self) -> u64 {
        self.0
    }

    /// True if its bits form a valid generation.
    pub(crate) fn is_whole(self) -> bool {
        let is_whole = self.0 & WHOLE != 0;
        let told = if is_whole { WHOLE | NUMBER_MASK } else { WHOLE | SHORT_MASK };
        self.0 == Self::numbered(self.number(), told).0 | self.0 & WHOLE
    }

    /// The generation after this one, where items of `clean` and later ones may be there.
    pub(crate) fn next(self, clean: u64) -> Self {
        let number = (self.number() + 1) & NUMBER_MASK;
        if number.wrapping_sub(clean) & NUMBER_MASK < 1 << SHORT_BITS {
            Self::numbered(number, WHOLE | SHORT_MASK)
        } else {
            Self(Self::numbered(number, WHOLE | NUMBER_MASK).0 | WHOLE)
        }
    }

    /// Its number, modulo 2^21.
    pub(crate) fn number(self) -> u64 {
        (self.0 & ACCESS_MASK) << SHORT_BITS | (self.0 & SHORT_MASK) >> ACCESS_BITS
    }

    /// True if the item with this shape is of this generation.
    #[inline]
    pub(crate) fn holds(self, shape: u64) -> bool {
        (shape ^ self.0) & self.told() == 0
    }

    /// The generation and access bits in the shape of an item stored now.
    #[inline]
    pub(crate) fn stamp(self, now: Seconds) -> u64 {
        let told = self.told();
        self.0 & told | u64::from(now) & ACCESS_MASK & !told
    }

    #[inline]
    fn told(self) -> u64 {
        self.0 >> TOLD_SHIFT
    }

    const fn numbered(number: u64, told: u64) -> Self {
        let short = number << ACCESS_BITS & SHORT_MASK;
        Self(told << TOLD_SHIFT | short | number >> SHORT_BITS & ACCESS_MASK)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn generations_that_may_be_there_are_told_apart() {
        let mut generation = Generation::FIRST;
        let mut shapes = Vec::new();
        for flush in 0..50 {
            assert_eq!(generation.number(), flush);
            assert!(generation.is_whole());
            assert!(shapes.iter().all(|&shape| !generation.holds(shape)), "{flush}");
            shapes.push(generation.stamp(77));
            assert!(generation.holds(shapes[flush as usize]));
            assert_eq!(shapes[flush as usize] & WHOLE != 0, flush > 3);
            generation = generation.next(0);
        }
        // All items stored before the 48th flush are gone: two bits are enough again.
        let short = generation.next(48);
        assert_eq!(short.stamp(77) & (WHOLE | ACCESS_MASK), 77);
        assert!(shapes[48..].iter().all(|&shape| !short.holds(shape)));
    }

    #[test]
    fn numbers_come_round() {
        let last = Generation::numbered(NUMBER_MASK, WHOLE | SHORT_MASK);
        assert_eq!((last.number(), last.next(NUMBER_MASK).number()), (NUMBER_MASK, 0));
        assert_eq!(last.next(NUMBER_MASK).stamp(5), 5);
        assert!(last.next(NUMBER_MASK - 9).stamp(5) & WHOLE != 0);
    }

    #[test]
    fn what_is_no_generation_is_known() {
        for word in [0, 1, u64::MAX, WHOLE, Generation::FIRST.0 | WHOLE, Generation::FIRST.0 | 1 << 30] {
            assert!(!Generation(word).is_whole(), "{word:#x}");
        }
    }
}
