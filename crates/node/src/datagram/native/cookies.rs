//! Cookies. A client that shows one has received at the address it sends from, so it may be sent more than it
//! sent.
//!
//! A cookie is a keyed hash of the client's address under a key that changes every minute. The server keeps
//! no state for a client: it computes the cookie again. It keeps no key for a minute either: the minute is
//! hashed together with the address. Under a pseudorandom function that is as good as a key for each minute,
//! and any number of workers can compute it without rotating keys.

use std::{
    net::{IpAddr, SocketAddr},
    time::{Duration, Instant},
};

use siphasher::sip::SipHasher24;

/// Time in seconds for which a key issues cookies. Its cookies are accepted for one more period.
pub const COOKIE_PERIOD_S: u64 = 60;

/// Bytes hashed: a period, an address of 16 bytes and a port.
const INPUT_BYTES: usize = 8 + 16 + 2;

/// The validity of a cookie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Check {
    /// The cookie of the present period.
    Valid,
    /// The cookie of the period before: the client should soon ask for a new one.
    Renew,
    /// Never issued to this address, or too long ago.
    Invalid,
}

/// Issues and checks cookies; shared by all workers.
#[derive(Clone, Debug)]
pub struct Cookies {
    hasher: SipHasher24,
    start: Instant,
}

impl Cookies {
    /// Cookies under `key`, which must be random and secret; the first period begins at `start`.
    pub fn new(key: &[u8; 16], start: Instant) -> Self {
        Self { hasher: SipHasher24::new_with_key(key), start }
    }

    /// The cookie of `peer` at `now`. It is never zero; zero in a header means no cookie.
    #[inline]
    pub fn issue(&self, peer: SocketAddr, now: Instant) -> u64 {
        self.cookie(peer, self.period(now))
    }

    /// Checks `cookie`, shown from `peer`, at `now`.
    #[inline]
    pub fn check(&self, peer: SocketAddr, cookie: u64, now: Instant) -> Check {
        let period = self.period(now);
        if cookie == self.cookie(peer, period) {
            Check::Valid
        } else if period > 0 && cookie == self.cookie(peer, period - 1) {
            Check::Renew
        } else {
            Check::Invalid
        }
    }

    /// Whole seconds for which a cookie issued at `now` will be accepted: from one period to two.
    pub fn seconds_left(&self, now: Instant) -> u32 {
        let into_period_s = self.since_start(now).as_secs() % COOKIE_PERIOD_S;
        (2 * COOKIE_PERIOD_S - into_period_s) as u32
    }

    fn period(&self, now: Instant) -> u64 {
        self.since_start(now).as_secs() / COOKIE_PERIOD_S
    }

    fn since_start(&self, now: Instant) -> Duration {
        now.saturating_duration_since(self.start)
    }

    #[inline]
    fn cookie(&self, peer: SocketAddr, period: u64) -> u64 {
        let address = match peer.ip() {
            IpAddr::V4(address) => address.to_ipv6_mapped(),
            IpAddr::V6(address) => address,
        };
        let mut input = [0; INPUT_BYTES];
        input[..8].copy_from_slice(&period.to_le_bytes());
        input[8..24].copy_from_slice(&address.octets());
        input[24..].copy_from_slice(&peer.port().to_le_bytes());
        self.hasher.hash(&input).max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peer(text: &str) -> SocketAddr {
        text.parse().unwrap()
    }

    fn after(start: Instant, seconds: u64) -> Instant {
        start + Duration::from_secs(seconds)
    }

    #[test]
    fn a_cookie_lasts_for_its_period_and_the_next() {
        let start = Instant::now();
        let cookies = Cookies::new(&[7; 16], start);
        let client = peer("127.0.0.1:1000");
        for issued_s in [0, 1, 59, 60, 119, 6000] {
            let cookie = cookies.issue(client, after(start, issued_s));
            assert_ne!(cookie, 0);
            let left_s = u64::from(cookies.seconds_left(after(start, issued_s)));
            assert!((COOKIE_PERIOD_S + 1..=2 * COOKIE_PERIOD_S).contains(&left_s));
            let check_at = |seconds| cookies.check(client, cookie, after(start, seconds));
            assert_eq!(check_at(issued_s), Check::Valid);
            assert_eq!(check_at(issued_s + left_s - COOKIE_PERIOD_S - 1), Check::Valid);
            assert_eq!(check_at(issued_s + left_s - COOKIE_PERIOD_S), Check::Renew);
            assert_eq!(check_at(issued_s + left_s - 1), Check::Renew);
            assert_eq!(check_at(issued_s + left_s), Check::Invalid);
            assert_eq!(check_at(issued_s + 1_000_000), Check::Invalid);
        }
    }

    #[test]
    fn a_cookie_is_bound_to_its_address_and_key() {
        let start = Instant::now();
        let cookies = Cookies::new(&[7; 16], start);
        let cookie = cookies.issue(peer("10.0.0.1:1000"), start);
        for other in ["10.0.0.1:1001", "10.0.0.2:1000", "[::1]:1000"] {
            assert_eq!(cookies.check(peer(other), cookie, start), Check::Invalid, "{other}");
        }
        let others = Cookies::new(&[8; 16], start);
        assert_eq!(others.check(peer("10.0.0.1:1000"), cookie, start), Check::Invalid);
        assert_eq!(cookies.check(peer("10.0.0.1:1000"), 0, start), Check::Invalid);
        for bit in 0..64 {
            assert_eq!(cookies.check(peer("10.0.0.1:1000"), cookie ^ 1 << bit, start), Check::Invalid);
        }
    }

    #[test]
    fn a_socket_for_both_families_sees_the_same_client() {
        let start = Instant::now();
        let cookies = Cookies::new(&[7; 16], start);
        let cookie = cookies.issue(peer("10.0.0.1:1000"), start);
        assert_eq!(cookies.check(peer("[::ffff:10.0.0.1]:1000"), cookie, start), Check::Valid);
    }

    #[test]
    fn the_hash_is_the_specified_one() {
        // SipHash-2-4 of the bytes 0, 1, .. 14 under the key 0, 1, .. 15, from its paper (appendix A).
        let key: [u8; 16] = std::array::from_fn(|index| index as u8);
        let input: [u8; 15] = std::array::from_fn(|index| index as u8);
        assert_eq!(SipHasher24::new_with_key(&key).hash(&input), 0xa129_ca61_49be_45e5);
    }
}
