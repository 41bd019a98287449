//! Once numbers, by which a server recognises operations that it has executed.

use std::collections::VecDeque;

/// A session and its once numbers in use.
///
/// A server remembers a window of numbers below the highest one seen. A new number must not push one in use
/// out of that window.
#[derive(Debug)]
pub(super) struct Session {
    id: u64,
    /// The lowest number that may be in use.
    lowest: u32,
    /// For each number from `lowest` on, true if it is in use.
    in_use: VecDeque<bool>,
    window: u32,
}

impl Session {
    pub(super) fn new(id: u64, window: u16) -> Self {
        Self { id, lowest: 1, in_use: VecDeque::new(), window: u32::from(window.max(1)) }
    }

    pub(super) fn id(&self) -> u64 {
        self.id
    }

    /// Takes a new number; `None` if the window is full or all numbers are used up.
    pub(super) fn take(&mut self) -> Option<u32> {
        let used = u32::try_from(self.in_use.len()).unwrap_or(u32::MAX);
        let number = self.lowest.checked_add(used)?;
        if used >= self.window {
            return None;
        }
        self.in_use.push_back(true);
        Some(number)
    }

    /// Gives back a number that will not be sent again.
    pub(super) fn give_back(&mut self, number: u32) {
        let at = number.wrapping_sub(self.lowest) as usize;
        if let Some(in_use) = self.in_use.get_mut(at) {
            *in_use = false;
        }
        while self.in_use.front() == Some(&false) {
            self.in_use.pop_front();
            self.lowest = self.lowest.saturating_add(1);
        }
    }

    /// True if all numbers are used up and none is in use, so that another session is needed.
    pub(super) fn is_used_up(&self) -> bool {
        self.lowest == u32::MAX && self.in_use.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_number_pushes_one_in_use_out_of_the_window() {
        let mut session = Session::new(9, 4);
        let numbers: Vec<u32> = std::iter::from_fn(|| session.take()).collect();
        assert_eq!(numbers, [1, 2, 3, 4]);
        session.give_back(2);
        session.give_back(3);
        assert_eq!(session.take(), None, "1 is still in use");
        session.give_back(1);
        assert_eq!(std::iter::from_fn(|| session.take()).collect::<Vec<_>>(), [5, 6, 7]);
        session.give_back(100);
        session.give_back(0);
        assert_eq!(session.take(), None);
    }

    #[test]
    fn numbers_end_and_are_never_used_again() {
        let mut session = Session::new(9, 4);
        session.lowest = u32::MAX - 1;
        assert_eq!(session.take(), Some(u32::MAX - 1));
        assert_eq!(session.take(), Some(u32::MAX));
        assert_eq!(session.take(), None);
        assert!(!session.is_used_up());
        session.give_back(u32::MAX - 1);
        session.give_back(u32::MAX);
        assert!(session.is_used_up());
        assert_ne!(session.take(), Some(1));
    }
}
