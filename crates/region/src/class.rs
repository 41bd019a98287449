//! Classes of chunk sizes: one size a class while small, eight a doubling above (MICA §4.3.3).

/// Sizes below this have a class of their own, in words.
const EXACT_WORDS: u64 = 128;
const STEP_BITS: u32 = 3;

/// Number of classes, for chunks of up to 2^38 words.
pub(crate) const CLASSES: usize = 376;

/// The class in whose list a free chunk of `words` is kept.
#[inline]
pub(crate) fn class_of(words: u64) -> usize {
    if words < EXACT_WORDS {
        return words as usize;
    }
    let shift = words.ilog2() - STEP_BITS;
    let octave = u64::from(words.ilog2() - EXACT_WORDS.ilog2());
    (EXACT_WORDS + (octave << STEP_BITS) + (words >> shift) - (1 << STEP_BITS)) as usize
}

/// True if every chunk of this class has the same size.
#[inline]
pub(crate) fn is_exact(class: usize) -> bool {
    class < EXACT_WORDS as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_ascend_without_gaps() {
        let mut last = class_of(1);
        for words in 2..1 << 16 {
            let class = class_of(words);
            assert!(class == last || class == last + 1, "{words}");
            assert_eq!(is_exact(class), words < EXACT_WORDS);
            last = class;
        }
        assert_eq!(class_of((1 << 38) - 1), CLASSES - 1);
    }
}
