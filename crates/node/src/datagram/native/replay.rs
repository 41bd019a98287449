//! Rejects replayed datagrams: each authenticated datagram is accepted once.

/// Numbers in the window. Numbers further behind the newest one are refused.
pub const REPLAY_WINDOW: u64 = 1024;

const WORD_BITS: u64 = u64::BITS as u64;
const WORDS: usize = (REPLAY_WINDOW / WORD_BITS) as usize;

/// The last [`REPLAY_WINDOW`] numbers up to the newest one, a bit each: the sliding window of IPsec (RFC
/// 4303, §3.4.3), in a ring of words so that nothing is shifted (RFC 6479).
///
/// Show it only numbers of datagrams with a valid tag; otherwise anyone could move the window.
#[derive(Clone, Debug, Default)]
pub struct ReplayWindow {
    /// One more than the newest number; zero before the first.
    next: u128,
    seen: [u64; WORDS],
}

impl ReplayWindow {
    /// Records `sequence`; false if it was seen before or is too old to tell.
    pub fn accept(&mut self, sequence: u64) -> bool {
        if u128::from(sequence) >= self.next {
            self.move_to(sequence);
        } else if self.next - u128::from(sequence) > u128::from(REPLAY_WINDOW) {
            return false;
        }
        let (word, bit) = place(sequence);
        let is_fresh = self.seen[word] & bit == 0;
        self.seen[word] |= bit;
        is_fresh
    }

    /// Makes `sequence` the newest number; the numbers between are not seen yet.
    fn move_to(&mut self, sequence: u64) {
        let moved = u128::from(sequence) + 1 - self.next;
        if moved >= u128::from(REPLAY_WINDOW) {
            self.seen = [0; WORDS];
        } else {
            for number in (0..moved).map(|back| sequence - back as u64) {
                let (word, bit) = place(number);
                self.seen[word] &= !bit;
            }
        }
        self.next = u128::from(sequence) + 1;
    }
}

fn place(sequence: u64) -> (usize, u64) {
    ((sequence / WORD_BITS) as usize % WORDS, 1 << (sequence % WORD_BITS))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use minos_base::seeded;
    use proptest::prelude::*;

    use super::*;

    /// Remembers everything.
    #[derive(Default)]
    struct Model {
        seen: BTreeSet<u64>,
    }

    impl Model {
        fn accept(&mut self, sequence: u64) -> bool {
            let newest = self.seen.last().copied().unwrap_or(0).max(sequence);
            newest - sequence < REPLAY_WINDOW && self.seen.insert(sequence)
        }
    }

    #[test]
    fn agrees_with_a_memory_of_everything() {
        for seed in 0..50 {
            let mut rng = seeded(seed);
            let (mut window, mut model) = (ReplayWindow::default(), Model::default());
            let mut newest: u64 = if seed % 5 == 0 { u64::MAX - 5000 } else { 0 };
            for _ in 0..5000 {
                let sequence = match rng.random_range(0..20) {
                    0 => newest.saturating_add(rng.random_range(1..3 * REPLAY_WINDOW)),
                    1..10 => newest.saturating_add(1),
                    _ => newest.saturating_sub(rng.random_range(0..REPLAY_WINDOW + 200)),
                };
                newest = newest.max(sequence);
                assert_eq!(window.accept(sequence), model.accept(sequence), "seed {seed}: {sequence}");
            }
        }
    }

    proptest! {
        #[test]
        fn nothing_is_taken_twice(sequences in prop::collection::vec(prop_oneof![0u64..3000, any::<u64>()], 0..200)) {
            let mut window = ReplayWindow::default();
            let mut taken = BTreeSet::new();
            for &sequence in sequences.iter().chain(&sequences) {
                if window.accept(sequence) {
                    prop_assert!(taken.insert(sequence));
                }
            }
        }
    }

    #[test]
    fn the_edges_of_the_window() {
        let mut window = ReplayWindow::default();
        assert!(window.accept(REPLAY_WINDOW));
        assert!(window.accept(1) && !window.accept(1));
        assert!(!window.accept(0), "too old to tell");
        assert!(window.accept(u64::MAX) && !window.accept(u64::MAX));
        assert!(window.accept(u64::MAX - REPLAY_WINDOW + 1) && !window.accept(u64::MAX - REPLAY_WINDOW));
    }
}
