//! The hardware addresses of peers, and the headers of datagrams to them.

use std::{
    hash::{BuildHasher, RandomState},
    net::SocketAddr,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
};

use crate::frame::{End, Head, Mac};

/// Peers that are remembered at most. Another peer at the same place replaces one, whose answers then go through the
/// kernel until it is heard of again.
const PLACES: usize = 8192;
/// Peers that a [`Recent`] knows: the last one at each place, which is that of its port.
pub(crate) const RECENT: usize = 8;
/// Tells an address of zeros from none.
const IS_SET: u64 = 1 << 48;

/// Where the last datagram of each peer came from. Any thread may note and look up, without a lock.
#[derive(Debug)]
pub(crate) struct Neighbours {
    places: Box<[Place]>,
    /// Unknown to peers, so that they cannot choose each other's places.
    keys: RandomState,
}

/// The hashes of the peers that were met last, so that few datagrams need one. They are those of one [`Neighbours`].
#[derive(Debug, Default)]
pub(crate) struct Recent([Option<(SocketAddr, u64)>; RECENT]);

/// What was noted of a peer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mark {
    hash: u64,
    value: u64,
}

/// The headers of datagrams to the peers that were sent to last.
#[derive(Debug, Default)]
pub(crate) struct Heads {
    recent: Recent,
    heads: [Option<(End, Head)>; RECENT],
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
    pub(crate) fn note(&self, recent: &mut Recent, peer: SocketAddr, mac: Mac) -> Mark {
        let value = IS_SET | mac.iter().fold(0, |value, byte| value << 8 | u64::from(*byte));
        let mark = Mark { hash: self.hash(recent, peer), value };
        self.keep(mark);
        mark
    }

    /// Notes the same again.
    #[inline]
    pub(crate) fn keep(&self, Mark { hash, value }: Mark) {
        let place = self.place(hash);
        // Mostly it is there already, and the line stays shared.
        if place.read(hash) != Some(value) {
            place.value.store(value, Relaxed);
            place.mixed.store(hash ^ value, Relaxed);
        }
    }

    /// The hardware address that leads to `peer`, if it is known.
    #[inline]
    pub(crate) fn find(&self, recent: &mut Recent, peer: SocketAddr) -> Option<Mac> {
        let hash = self.hash(recent, peer);
        let [_, _, mac @ ..] = self.place(hash).read(hash)?.to_be_bytes();
        Some(mac)
    }

    #[inline]
    fn hash(&self, Recent(recent): &mut Recent, peer: SocketAddr) -> u64 {
        let recent = &mut recent[recent_place(peer)];
        match *recent {
            Some((known, hash)) if known == peer => hash,
            _ => {
                let hash = self.keys.hash_one((peer.ip(), peer.port()));
                *recent = Some((peer, hash));
                hash
            }
        }
    }

    fn place(&self, hash: u64) -> &Place {
        &self.places[hash as usize % PLACES]
    }
}

impl Heads {
    /// The headers from `here`, which is always the same, to `peer`; `None` if `mac_of` does not know its hardware address, or
    /// the two are of two families.
    #[inline]
    pub(crate) fn to(
        &mut self,
        here: &End,
        peer: SocketAddr,
        mac_of: impl FnOnce(&mut Recent) -> Option<Mac>,
    ) -> Option<&Head> {
        // It may have changed.
        let to = End { mac: mac_of(&mut self.recent)?, address: peer };
        let known = &mut self.heads[recent_place(peer)];
        if known.as_ref().is_none_or(|(end, _)| *end != to) {
            *known = Some((to, Head::between(here, &to)?));
        }
        known.as_ref().map(|(_, head)| head)
    }
}

fn recent_place(peer: SocketAddr) -> usize {
    usize::from(peer.port()) % RECENT
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
    use std::net::{Ipv4Addr, Ipv6Addr};

    use super::*;
    use crate::frame::{head_bytes, parse};

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
        assert_eq!(neighbours.find(&mut Recent::default(), peer(1)), None);
        neighbours.note(&mut Recent::default(), peer(1), mac(1));
        assert_eq!(neighbours.find(&mut Recent::default(), peer(1)), Some(mac(1)));
        neighbours.note(&mut Recent::default(), peer(1), [0; 6]);
        assert_eq!(neighbours.find(&mut Recent::default(), peer(1)), Some([0; 6]));
        assert_eq!(neighbours.find(&mut Recent::default(), SocketAddr::from(([0, 0, 0, 1], 4001))), None);
    }

    #[test]
    fn more_peers_than_places_replace_each_other_and_are_never_mistaken() {
        let neighbours = Neighbours::new();
        let peers = 4 * PLACES as u32;
        for number in 0..peers {
            neighbours.note(&mut Recent::default(), peer(number), mac(number));
        }
        let found = (0..peers).filter(|&number| {
            let found = neighbours.find(&mut Recent::default(), peer(number));
            assert!(found.is_none_or(|found| found == mac(number)));
            found.is_some()
        });
        assert!((PLACES / 2..=PLACES).contains(&found.count()));
    }

    #[test]
    fn threads_that_write_at_one_place_leave_no_mixture() {
        let neighbours = Neighbours::new();
        // Two peers of one place.
        let place = |number| {
            let hash = neighbours.hash(&mut Recent::default(), peer(number));
            std::ptr::from_ref(neighbours.place(hash))
        };
        let other = (1..).find(|&number| place(number) == place(0)).unwrap();
        std::thread::scope(|scope| {
            for number in [0, other] {
                let neighbours = &neighbours;
                scope.spawn(move || {
                    for _ in 0..100_000 {
                        neighbours.note(&mut Recent::default(), peer(number), mac(number));
                        assert!(
                            [None, Some(mac(number))]
                                .contains(&neighbours.find(&mut Recent::default(), peer(number)))
                        );
                    }
                });
            }
        });
    }

    #[test]
    fn peers_at_one_recent_place_are_not_mistaken() {
        let (neighbours, mut recent) = (Neighbours::new(), Recent::default());
        // All have one port.
        for round in 0..2 {
            for number in 0..100 {
                neighbours.note(&mut recent, peer(number), mac(number + round));
                assert_eq!(neighbours.find(&mut recent, peer(number)), Some(mac(number + round)));
            }
        }
        assert_eq!(neighbours.find(&mut recent, peer(100)), None);
        assert_eq!(neighbours.find(&mut recent, (Ipv4Addr::from(0), 4008).into()), None);
    }

    #[test]
    fn headers_lead_to_where_a_peer_was_last_heard() {
        let (neighbours, mut heads, here) =
            (Neighbours::new(), Heads::default(), End { mac: mac(9), address: peer(9) });
        assert!(heads.to(&here, peer(1), |recent| neighbours.find(recent, peer(1))).is_none());
        for (number, heard) in [(1, 1), (2, 2), (1, 1), (1, 3), (2, 2)] {
            neighbours.note(&mut Recent::default(), peer(number), mac(heard));
            let head = heads.to(&here, peer(number), |recent| neighbours.find(recent, peer(number))).unwrap();
            let mut frame = vec![0; head_bytes(&here.address.ip())];
            head.write(&mut frame, 0).unwrap();
            assert_eq!(parse(&frame).unwrap().to, End { mac: mac(heard), address: peer(number) });
        }
        let v6 = SocketAddr::from((Ipv6Addr::LOCALHOST, 4000));
        assert!(heads.to(&here, v6, |_| Some(mac(1))).is_none());
    }
}
