//! A token bucket.

/// Most that is saved up, in seconds of the rate.
const SAVED_S: u64 = 1;

/// Bounds a rate of bytes. It may go into debt by one piece.
#[derive(Debug)]
pub(super) struct Bucket {
    bytes_s: u64,
    tokens: i64,
    at_us: u64,
}

impl Bucket {
    pub(super) fn new(bytes_s: u64) -> Self {
        Self { bytes_s, tokens: 0, at_us: 0 }
    }

    /// Another rate from now on.
    pub(super) fn set_rate(&mut self, bytes_s: u64) {
        self.bytes_s = bytes_s;
        self.tokens = self.tokens.min((bytes_s * SAVED_S) as i64);
    }

    /// The rate.
    pub(super) fn rate(&self) -> u64 {
        self.bytes_s
    }

    /// True if a piece may be taken at `now_us`.
    pub(super) fn is_open(&mut self, now_us: u64) -> bool {
        let passed_us = now_us.saturating_sub(self.at_us).min(SAVED_S * 1_000_000);
        let earned = (u128::from(self.bytes_s) * u128::from(passed_us) / 1_000_000) as i64;
        if earned > 0 {
            self.tokens = self.tokens.saturating_add(earned).min((self.bytes_s * SAVED_S) as i64);
            // What is too short for a byte counts next time.
            let counted_us = (earned as u128 * 1_000_000).div_ceil(u128::from(self.bytes_s)) as u64;
            self.at_us = now_us - (passed_us - counted_us.min(passed_us));
        }
        self.tokens > 0
    }

    pub(super) fn take(&mut self, bytes: u64) {
        self.tokens = self.tokens.saturating_sub(bytes as i64);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_holds_over_time() {
        let mut bucket = Bucket::new(1000);
        let mut taken = 0;
        for now_us in (0..10_000_000).step_by(700) {
            if bucket.is_open(now_us) {
                bucket.take(50);
                taken += 50;
            }
        }
        assert!((9_900..=10_100).contains(&taken), "{taken}");
    }

    #[test]
    fn another_rate_holds_at_once() {
        let mut bucket = Bucket::new(1 << 40);
        assert!(bucket.is_open(5_000_000));
        bucket.set_rate(0);
        assert!(!bucket.is_open(50_000_000), "nothing is left of what was saved");
        bucket.set_rate(1000);
        assert!(bucket.is_open(51_000_000));
    }
}
