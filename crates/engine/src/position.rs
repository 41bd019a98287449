//! Positions in a circular log: wider than the log, so that dangling ones are recognised (MICA §4.3.2).

use std::{fmt::Debug, marker::PhantomData};

/// How many bits a [`Position`] has.
pub trait PositionBits: Clone + Copy + Debug + Eq + Send + Sync + 'static {
    /// Positions are counted modulo `2^BITS` words.
    const BITS: u32;
}

/// As many bits as an index slot has room for: positions wrap around after 2 TiB of appended bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wide;

/// Few enough bits for tests to see positions wrap around many times. No store is built with it.
#[doc(hidden)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Narrow;

impl PositionBits for Wide {
    const BITS: u32 = 38;
}

impl PositionBits for Narrow {
    const BITS: u32 = 20;
}

/// How many words were appended to a log before something, modulo `2^B::BITS`.
///
/// One number gives age and place. A log is at most a quarter as long as the range of positions, so that a
/// position far behind the head is not mistaken for one before the tail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Position<B: PositionBits>(u64, PhantomData<B>);

impl<B: PositionBits> Position<B> {
    const MASK: u64 = (1 << B::BITS) - 1;

    /// The position of `words`; bits beyond `B::BITS` are cut off.
    #[inline]
    pub const fn from_words(words: u64) -> Self {
        Self(words & Self::MASK, PhantomData)
    }

    /// The number, below `2^B::BITS`.
    #[inline]
    pub const fn words(self) -> u64 {
        self.0
    }

    /// The position `words` further.
    #[inline]
    pub const fn plus(self, words: u64) -> Self {
        Self::from_words(self.0.wrapping_add(words))
    }

    /// The position `words` before.
    #[inline]
    pub const fn minus(self, words: u64) -> Self {
        Self::from_words(self.0.wrapping_sub(words))
    }

    /// Words from `earlier` up to here.
    #[inline]
    pub const fn distance_from(self, earlier: Self) -> u64 {
        self.0.wrapping_sub(earlier.0) & Self::MASK
    }

    /// True if this lies before `head`, so that references to it dangle.
    ///
    /// Correct for positions less than half the space behind the head, and less than half ahead of it:
    /// holders of positions must drop those behind the head before it has moved on that far.
    #[inline]
    pub const fn is_before(self, head: Self) -> bool {
        self.distance_from(head) >= 1 << (B::BITS - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn around_the_end<B: PositionBits>() {
        let half = 1u64 << (B::BITS - 1);
        for start in [0, 1, half - 1, half, 2 * half - 3, 2 * half - 1] {
            let head = Position::<B>::from_words(start);
            for words in [0, 1, 100, half - 1] {
                let further = head.plus(words);
                assert!(!further.is_before(head), "{start} {words}");
                assert_eq!(further.distance_from(head), words);
                assert_eq!(further.minus(words), head);
                assert!(further.words() < 2 * half);
            }
            for words in [1, 100, half - 1, half] {
                assert!(head.minus(words).is_before(head), "{start} {words}");
            }
        }
    }

    #[test]
    fn order_survives_the_wrap() {
        around_the_end::<Wide>();
        around_the_end::<Narrow>();
    }

    #[test]
    fn a_position_left_for_too_long_appears_alive_again() {
        let old = Position::<Narrow>::from_words(5);
        let half = 1 << (Narrow::BITS - 1);
        assert!(old.is_before(old.plus(half)));
        assert!(!old.is_before(old.plus(half + 1)));
    }
}
