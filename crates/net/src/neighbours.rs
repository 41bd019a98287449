//! The hardware addresses of peers.

use std::{
    hash::{BuildHasher, RandomState},
    net::SocketAddr,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
};

use crate::frame::Mac;

/// Peers that are remembered at most. Another peer at the same place replaces one, whose answers then go through the
/// kernel until it is heard of again.
const PLACES: usize = 8192;
/// Tells an address of zeros from none.
const IS_SET: u64 = 1 << 48;

/// Where the last datagram of each peer came from. Any thread may note and look up, without a lock.
#[derive(Debug)]
pub(crate) struct Neighbours {
    places: Box<[Place]>,
    /// Unknown to peers, so that they cannot choose each other's places.
    keys: RandomState,
}

/// A hardware address, and the same mixed with the hash of its peer: words of two peers do not match.
#[derive(Debug, Default)]
struct Place {
    value: AtomicU64,
    mixed: AtomicU64,
}

impl Neighbours {
    pub(crate) fn new() -> Self {
        Self { places: (0..PLACES).map(|_| Place::default()).collect(), keys: RandomState::new() }
    }

    /// Notes that `peer` is behind this hardware address.
    pub(crate) fn note(&self, peer: SocketAddr, mac: Mac) {
        let (place, hash) = self.place(peer);
        let value = IS_SET | mac.iter().fold(0, |value, byte| value << 8 | u64::from(*byte));
        // Mostly it is there already, and the line stays shared.
        if place.read(hash) != Some(value) {
            place.value.store(value, Relaxed);
            place.mixed.store(hash ^ value, Relaxed);
        }
    }

    /// The hardware address that leads to `peer`, if it is known.
    pub(crate) fn find(&self, peer: SocketAddr) -> Option<Mac> {
        let (place, hash) = self.place(peer);
        let [_, _, mac @ ..] = place.read(hash)?.to_be_bytes();
        Some(mac)
    }

    fn place(&self, peer: SocketAddr) -> (&Place, u64) {
        let hash = self.keys.hash_one((peer.ip(), peer.port()));
        (&self.places[hash as usize % PLACES], hash)
    }
}

impl Place {
    /// Relaxed suffices: words that do not belong together do not match.
    fn read(&self, hash: u64) -> Option<u64> {
        let value = self.value.load(Relaxed);
        (value ^ self.mixed.load(Relaxed) == hash && value & IS_SET != 0).then_some(value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peer(number: u32) -> SocketAddr {
        SocketAddr::from((number.to_be_bytes(), 4000))
    }

    fn mac(number: u32) -> Mac {
        let [a, b, c, d] = number.to_be_bytes();
        [2, 0, a, b, c, d]
    }

    #[test]
    fn a_peer_is_found_where_it_was_last_heard() {
        let neighbours = Neighbours::new();
        assert_eq!(neighbours.find(peer(1)), None);
        neighbours.note(peer(1), mac(1));
        assert_eq!(neighbours.find(peer(1)), Some(mac(1)));
        neighbours.note(peer(1), [0; 6]);
        assert_eq!(neighbours.find(peer(1)), Some([0; 6]));
        assert_eq!(neighbours.find(SocketAddr::from(([0, 0, 0, 1], 4001))), None);
    }

    #[test]
    fn more_peers_than_places_replace_each_other_and_are_never_mistaken() {
        let neighbours = Neighbours::new();
        let peers = 4 * PLACES as u32;
        (0..peers).for_each(|number| neighbours.note(peer(number), mac(number)));
        let found = (0..peers).filter(|&number| {
            let found = neighbours.find(peer(number));
            assert!(found.is_none_or(|found| found == mac(number)));
            found.is_some()
        });
        assert!((PLACES / 2..=PLACES).contains(&found.count()));
    }

    #[test]
    fn threads_that_write_at_one_place_leave_no_mixture() {
        let neighbours = Neighbours::new();
        // Two peers of one place.
        let place = |number| std::ptr::from_ref(neighbours.place(peer(number)).0);
        let other = (1..).find(|&number| place(number) == place(0)).unwrap();
        std::thread::scope(|scope| {
            for number in [0, other] {
                let neighbours = &neighbours;
                scope.spawn(move || {
                    for _ in 0..100_000 {
                        neighbours.note(peer(number), mac(number));
                        assert!([None, Some(mac(number))].contains(&neighbours.find(peer(number))));
                    }
                });
            }
        });
    }
}
