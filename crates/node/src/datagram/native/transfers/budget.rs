//! Bounds on the bytes of large values sent in one burst, in total and to one client.

use std::{net::SocketAddr, time::Instant};

/// Bounds on the large values that a worker sends in one burst, which lasts as long as one reading of the
/// clock.
///
/// The client requests the rest again, so that one datagram that requests many large values does not delay
/// other clients.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BudgetBounds {
    /// To all clients.
    pub(crate) burst_bytes: u64,
    /// To one client.
    pub(crate) client_bytes: u64,
}

/// The budget used in this burst.
#[derive(Debug)]
pub(super) struct Budget {
    bounds: BudgetBounds,
    burst: Option<Instant>,
    spent: u64,
    /// A list, because few windows fit a burst.
    by_client: Vec<(SocketAddr, u64)>,
}

impl Budget {
    pub(super) fn new(bounds: BudgetBounds) -> Self {
        Self { bounds, burst: None, spent: 0, by_client: Vec::new() }
    }

    /// Spends `bytes` for `client` in the burst of `now`; false, with nothing spent, if a bound would be
    /// exceeded. The first amount always passes, even one larger than a bound.
    pub(super) fn spend(&mut self, client: SocketAddr, bytes: u64, now: Instant) -> bool {
        if self.burst != Some(now) {
            self.burst = Some(now);
            self.spent = 0;
            self.by_client.clear();
        }
        let exceeds = |spent: u64, max: u64| spent > 0 && spent.saturating_add(bytes) > max;
        let known = self.by_client.iter().position(|(other, _)| *other == client);
        let of_client = known.map_or(0, |at| self.by_client[at].1);
        if exceeds(self.spent, self.bounds.burst_bytes) || exceeds(of_client, self.bounds.client_bytes) {
            return false;
        }
        self.spent += bytes;
        match known {
            Some(at) => self.by_client[at].1 += bytes,
            None => self.by_client.push((client, bytes)),
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_client_and_a_burst_have_their_share() {
        let mut budget = Budget::new(BudgetBounds { burst_bytes: 100, client_bytes: 40 });
        let now = Instant::now();
        let client = |port| SocketAddr::from(([10, 0, 0, 1], port));
        assert!(budget.spend(client(1), 30, now) && !budget.spend(client(1), 20, now));
        assert!(budget.spend(client(1), 10, now), "what was refused is not spent");
        assert!(budget.spend(client(2), 40, now) && budget.spend(client(3), 20, now));
        assert!(!budget.spend(client(4), 1, now), "the burst is full");
        let next = now + Duration::from_nanos(1);
        assert!(budget.spend(client(1), 500, next), "one window always passes");
        assert!(!budget.spend(client(2), 1, next));
    }
}
