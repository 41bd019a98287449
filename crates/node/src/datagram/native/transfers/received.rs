//! The set of fragments of a value that have arrived.

use minos_proto::native::FragmentRange;

const WORD_BITS: u32 = u64::BITS;

/// One bit for each fragment.
#[derive(Debug)]
pub(super) struct Received {
    /// Bits behind the last fragment are set, so that they do not count as missing.
    words: Vec<u64>,
    total: u32,
    count: u32,
    /// All words before this one are full.
    full_words: usize,
}

impl Received {
    /// Nothing of `total` fragments has arrived.
    pub(super) fn new(total: u32) -> Self {
        let mut words = vec![0; total.div_ceil(WORD_BITS) as usize];
        if let Some(last) = words.last_mut()
            && !total.is_multiple_of(WORD_BITS)
        {
            *last = u64::MAX << (total % WORD_BITS);
        }
        Self { words, total, count: 0, full_words: 0 }
    }

    /// Marks a fragment as arrived; true if it was missing. `index` must be in range.
    pub(super) fn mark(&mut self, index: u32) -> bool {
        debug_assert!(index < self.total);
        let (word, bit) = (&mut self.words[(index / WORD_BITS) as usize], 1 << (index % WORD_BITS));
        let is_new = *word & bit == 0;
        *word |= bit;
        self.count += u32::from(is_new);
        while self.words.get(self.full_words) == Some(&u64::MAX) {
            self.full_words += 1;
        }
        is_new
    }

    /// The number of fragments that have arrived.
    pub(super) fn count(&self) -> u32 {
        self.count
    }

    /// True if all fragments have arrived.
    pub(super) fn is_complete(&self) -> bool {
        self.count == self.total
    }

    /// The runs of missing fragments, lowest first.
    pub(super) fn missing(&self) -> impl Iterator<Item = FragmentRange> {
        let mut at = self.full_words as u32 * WORD_BITS;
        std::iter::from_fn(move || {
            let first = self.next(at, false)?;
            let end = self.next(first, true).unwrap_or(self.total).min(self.total);
            at = end;
            Some(FragmentRange { first, count: end - first })
        })
    }

    /// The first fragment from `at` on that has, or has not, arrived.
    fn next(&self, at: u32, has_arrived: bool) -> Option<u32> {
        let mut index = (at / WORD_BITS) as usize;
        let mut mask = u64::MAX << (at % WORD_BITS);
        loop {
            let word = *self.words.get(index)?;
            let hits = if has_arrived { word } else { !word } & mask;
            if hits != 0 {
                return Some(index as u32 * WORD_BITS + hits.trailing_zeros());
            }
            (index, mask) = (index + 1, u64::MAX);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn missing(received: &Received) -> Vec<(u32, u32)> {
        received.missing().map(|range| (range.first, range.count)).collect()
    }

    #[test]
    fn what_is_missing_is_what_was_not_marked() {
        for total in [1, 2, 63, 64, 65, 128, 200] {
            let mut received = Received::new(total);
            let mut model = vec![false; total as usize];
            // Every third one, then the others backwards.
            let order = (0..total).filter(|i| i % 3 == 0).chain((0..total).rev().filter(|i| i % 3 != 0));
            for index in order {
                assert!(received.mark(index));
                assert!(!received.mark(index));
                model[index as usize] = true;
                let listed = missing(&received).into_iter().flat_map(|(first, count)| first..first + count);
                let expected = (0..total).filter(|&i| !model[i as usize]);
                assert!(listed.eq(expected), "{total} {index}");
            }
            assert!(received.is_complete());
        }
    }

    #[test]
    fn ranges_are_as_long_as_they_can_be() {
        let mut received = Received::new(130);
        assert_eq!(missing(&received), [(0, 130)]);
        received.mark(70);
        assert_eq!(missing(&received), [(0, 70), (71, 59)]);
        assert_eq!((received.count(), received.is_complete()), (1, false));
        assert_eq!(missing(&Received::new(3)), [(0, 3)]);
    }
}
