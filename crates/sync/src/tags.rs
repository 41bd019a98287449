//! Which words of a cache line carry a tag in their highest 16 bits: all seven slots of a bucket at once.
//!
//! A search slot by slot ends in a branch that no predictor guesses; the mask needs none.

use crate::word::Word;

/// Words of a cache line.
const WORDS: usize = 8;

/// The words of `line` but the first whose highest 16 bits are `tag`: bit i stands for word i.
///
/// The words are read one by one, relaxed, in no order: a writer may be among them.
#[inline]
pub fn matching(line: &[impl Word; WORDS], tag: u16) -> Matches {
    Matches(mask(line, tag) & !1)
}

/// Words of a line, from the first to the last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Matches(u8);

impl Matches {
    /// True if there is none.
    #[inline]
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// The first one.
    #[inline]
    pub fn first(self) -> Option<usize> {
        (self.0 != 0).then(|| self.0.trailing_zeros() as usize)
    }
}

impl Iterator for Matches {
    type Item = usize;

    #[inline]
    fn next(&mut self) -> Option<usize> {
        let first = self.first()?;
        self.0 &= self.0 - 1;
        Some(first)
    }
}

/// For machines without SIMD, and to compare with.
#[cfg(any(test, not(all(target_arch = "x86_64", not(loom), not(minos_no_simd)))))]
#[inline]
fn mask_portable(line: &[impl Word; WORDS], tag: u16) -> u8 {
    // Relaxed: callers that need consistent words check a version.
    line.iter().rev().fold(0, |mask, word| {
        mask << 1 | u8::from(word.load(crate::facade::Ordering::Relaxed) >> 48 == u64::from(tag))
    })
}

#[cfg(not(all(target_arch = "x86_64", not(loom), not(minos_no_simd))))]
#[inline]
fn mask(line: &[impl Word; WORDS], tag: u16) -> u8 {
    mask_portable(line, tag)
}

/// The instruction that loads 16 bytes. Beside code that uses the wide registers, each load in the old
/// encoding would wait for the upper part of its register, and so for the loads before it.
#[cfg(all(target_arch = "x86_64", not(loom), not(minos_no_simd), target_feature = "avx"))]
macro_rules! load {
    () => {
        "vmovdqu"
    };
}
#[cfg(all(target_arch = "x86_64", not(loom), not(minos_no_simd), not(target_feature = "avx")))]
macro_rules! load {
    () => {
        "movdqu"
    };
}

/// With SSE2, which every x86-64 has: the tags of eight words, packed into one register, are compared in
/// one instruction.
#[cfg(all(target_arch = "x86_64", not(loom), not(minos_no_simd)))]
#[inline]
fn mask(line: &[impl Word; WORDS], tag: u16) -> u8 {
    use std::arch::x86_64::{
        __m128i, _mm_castps_si128, _mm_castsi128_ps, _mm_cmpeq_epi16, _mm_movemask_epi8, _mm_packs_epi16,
        _mm_packs_epi32, _mm_set1_epi16, _mm_setzero_si128, _mm_shuffle_ps, _mm_srai_epi32,
    };
    /// The upper halves of the four 64-bit words in `a` and `b`.
    const UPPER: i32 = 0b11_01_11_01;
    let [a, b, c, d]: [__m128i; 4];
    // SAFETY: the 64 bytes are those of `line`: a `Word` is one atomic word. The loads are assembly because words that others write with
    // atomic stores must not be read by plain loads of the language; each aligned word of eight bytes in a
    // 16-byte load is read whole by every x86-64 processor, which is what a relaxed load promises.
    unsafe {
        std::arch::asm!(
            concat!(load!(), " {a}, [{line}]"),
            concat!(load!(), " {b}, [{line} + 16]"),
            concat!(load!(), " {c}, [{line} + 32]"),
            concat!(load!(), " {d}, [{line} + 48]"),
            line = in(reg) line.as_ptr(),
            a = out(xmm_reg) a,
            b = out(xmm_reg) b,
            c = out(xmm_reg) c,
            d = out(xmm_reg) d,
            options(nostack, preserves_flags, readonly),
        );
    }
    // SAFETY: SSE2 is part of every x86-64.
    unsafe {
        let upper = |a, b| {
            let words = _mm_shuffle_ps::<UPPER>(_mm_castsi128_ps(a), _mm_castsi128_ps(b));
            // Sign-extended, so that the saturating pack keeps all 16 bits.
            _mm_srai_epi32::<16>(_mm_castps_si128(words))
        };
        let tags = _mm_packs_epi32(upper(a, b), upper(c, d));
        let equal = _mm_cmpeq_epi16(tags, _mm_set1_epi16(tag as i16));
        _mm_movemask_epi8(_mm_packs_epi16(equal, _mm_setzero_si128())) as u8
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::facade::AtomicU64;

    fn line(tags: [u16; WORDS]) -> [AtomicU64; WORDS] {
        tags.map(|tag| AtomicU64::new(u64::from(tag) << 48 | 0xabcd_ef01_2345))
    }

    #[test]
    fn both_ways_agree() {
        for tag in [1, 2, 0x7fff, 0x8000, 0x8001, 0xffff] {
            for pattern in 0..256u16 {
                let tags = std::array::from_fn(|at| if pattern >> at & 1 == 1 { tag } else { tag ^ 0x100 });
                let expected = Matches(pattern as u8 & !1);
                assert_eq!(matching(&line(tags), tag), expected, "{tag:#x} {pattern:#b}");
                assert_eq!(Matches(mask_portable(&line(tags), tag) & !1), expected);
                assert!(matching(&line(tags), tag ^ 0x200).is_empty());
            }
        }
    }

    #[test]
    fn matches_come_in_order() {
        let matches = matching(&line([5, 1, 5, 1, 1, 5, 1, 5]), 5);
        assert_eq!(matches.first(), Some(2));
        assert_eq!(matches.collect::<Vec<_>>(), [2, 5, 7]);
    }
}
