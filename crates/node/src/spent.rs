//! What a worker's time goes to where a plan shares it out.

use std::time::Duration;

/// Time spent since a plan was made.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Spent {
    pub(crate) small: Duration,
    pub(crate) large: Duration,
}

impl Spent {
    /// Whether small requests have had less than so many thousandths of it. As long as nothing was spent on large
    /// ones, small ones come first.
    pub(crate) fn owes_small(&self, small_permille: u16) -> bool {
        let permille = u128::from(small_permille.min(1000));
        self.large.is_zero() || self.small.as_nanos() * (1000 - permille) < self.large.as_nanos() * permille
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_requests_get_their_part() {
        let spent =
            |small, large| Spent { small: Duration::from_micros(small), large: Duration::from_micros(large) };
        assert!(spent(0, 0).owes_small(1) && spent(50, 0).owes_small(250));
        assert!(spent(249, 750).owes_small(250));
        assert!(!spent(251, 750).owes_small(250));
        assert!(!spent(0, 1).owes_small(0));
        assert!(spent(1000, 1).owes_small(1000));
    }
}
