//! Places in a region.

/// Bits of an [`Offset`]: 2 TiB in words of eight bytes.
pub const OFFSET_BITS: u32 = 38;

/// A place in a region, in words of eight bytes from its beginning.
///
/// Everything in a region refers to other parts of it by offset, so that the region can be mapped
/// at another address, or by another process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Offset(u64);

impl Offset {
    /// The offset of `words`; bits beyond [`OFFSET_BITS`] are cut off.
    #[inline]
    pub const fn from_words(words: u64) -> Self {
        Self(words & ((1 << OFFSET_BITS) - 1))
    }

    /// Words from the beginning of the region.
    #[inline]
    pub const fn words(self) -> u64 {
        self.0
    }

    /// The place `words` further.
    #[inline]
    pub const fn plus(self, words: u64) -> Self {
        Self(self.0 + words)
    }

    /// The place `words` before.
    #[inline]
    pub const fn minus(self, words: u64) -> Self {
        Self(self.0 - words)
    }
}
