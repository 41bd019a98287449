//! How long a server waits for the client of a large transfer.

use std::time::{Duration, Instant};

/// Bounds on waiting for a client.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Terms {
    /// The longest wait that is not paid for by bytes.
    pub(crate) wait_max: Duration,
    /// Bytes that pay for a second of waiting; with 0 any byte pays for the whole wait.
    pub(crate) rate_min: u64,
}

/// The time a server has waited for a client. Time in which a transfer waits for its slice does not count.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Patience {
    /// Past waits that are not paid for by bytes yet.
    owed: Duration,
    /// Start of the present wait for the client.
    blocked: Option<Instant>,
    /// Time at which the last bytes moved.
    moved: Instant,
}

/// Why a client is late.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Late {
    /// No byte moved for longer than `wait_max`.
    Stalled,
    /// Too few bytes moved.
    Slow,
    /// Somebody wants its connection to be closed.
    Killed,
}

impl Patience {
    /// A client that owes nothing.
    pub(crate) fn new(now: Instant) -> Self {
        Self { owed: Duration::ZERO, blocked: None, moved: now }
    }

    /// Begins a wait for the client.
    pub(crate) fn blocked(&mut self, now: Instant) {
        self.blocked = Some(now);
    }

    /// Ends a wait for the client.
    pub(crate) fn ready(&mut self, now: Instant) {
        self.owed = self.owed_at(now);
        self.blocked = None;
    }

    pub(crate) fn moved(&mut self, bytes: usize, terms: &Terms, now: Instant) {
        let nanoseconds = (bytes as u64).saturating_mul(1_000_000_000).checked_div(terms.rate_min);
        let paid = nanoseconds.map_or(Duration::MAX, Duration::from_nanos);
        self.owed = self.owed.saturating_sub(paid);
        self.moved = now;
    }

    /// Why the client is late, or `None` if it is not.
    pub(crate) fn late(&self, terms: &Terms, now: Instant) -> Option<Late> {
        if self.owed_at(now) <= terms.wait_max {
            return None;
        }
        let is_silent = now.saturating_duration_since(self.moved) > terms.wait_max;
        Some(if is_silent { Late::Stalled } else { Late::Slow })
    }

    fn owed_at(&self, now: Instant) -> Duration {
        let waits = self.blocked.map_or(Duration::ZERO, |since| now.saturating_duration_since(since));
        self.owed.saturating_add(waits)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TERMS: Terms = Terms { wait_max: Duration::from_secs(60), rate_min: 1000 };

    /// When a client is late that sends so many bytes each second, if it is within an hour.
    fn late_with(bytes: usize, terms: &Terms) -> Option<(u64, Late)> {
        let start = Instant::now();
        let mut patience = Patience::new(start);
        (0..3600).find_map(|second| {
            let now = start + Duration::from_secs(second);
            patience.blocked(now);
            let then = now + Duration::from_secs(1);
            if let Some(late) = patience.late(terms, then) {
                return Some((second, late));
            }
            if bytes > 0 {
                patience.ready(then);
                patience.moved(bytes, terms, then);
            }
            None
        })
    }

    #[test]
    fn a_drip_is_late_and_a_steady_sender_is_not() {
        assert_eq!(late_with(1, &TERMS), Some((60, Late::Slow)));
        assert_eq!(late_with(500, &TERMS), Some((119, Late::Slow)));
        assert_eq!(late_with(1000, &TERMS), None);
        assert_eq!(late_with(1, &Terms { rate_min: 0, ..TERMS }), None);
    }

    #[test]
    fn who_says_nothing_is_late() {
        let start = Instant::now();
        let mut patience = Patience::new(start);
        patience.blocked(start);
        let at = |seconds| start + Duration::from_secs(seconds);
        assert_eq!(patience.late(&TERMS, at(60)), None);
        assert_eq!(patience.late(&TERMS, at(61)), Some(Late::Stalled));
    }

    #[test]
    fn waiting_for_a_turn_is_nobodys_fault() {
        let start = Instant::now();
        let mut patience = Patience::new(start);
        assert_eq!(patience.late(&TERMS, start + Duration::from_secs(3600)), None);
        patience.blocked(start);
        patience.ready(start + Duration::from_secs(50));
        assert_eq!(patience.late(&TERMS, start + Duration::from_secs(3600)), None);
    }
}
