//! Limits log lines that would come too often.

use std::time::{Duration, Instant};

/// Time between two lines.
const LINE_EVERY: Duration = Duration::from_secs(1);

/// Limits a repeated event to one log line a second; the first is logged at once.
#[derive(Debug, Default)]
pub(crate) struct Seldom {
    last: Option<Instant>,
    unsaid: u64,
}

impl Seldom {
    /// Counts the event; returns the count since the last line if a line is due.
    pub(crate) fn happened(&mut self, now: Instant) -> Option<u64> {
        self.unsaid += 1;
        if self.last.is_some_and(|last| now.saturating_duration_since(last) < LINE_EVERY) {
            return None;
        }
        self.last = Some(now);
        Some(std::mem::take(&mut self.unsaid))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_a_second_tells_of_all() {
        let start = Instant::now();
        let mut seldom = Seldom::default();
        // A hundred events a second, for a little over three seconds.
        let due =
            (0..=300).filter_map(|n| Some((n, seldom.happened(start + n * Duration::from_millis(10))?)));
        assert_eq!(due.collect::<Vec<_>>(), [(0, 1), (100, 100), (200, 100), (300, 100)]);
    }
}
