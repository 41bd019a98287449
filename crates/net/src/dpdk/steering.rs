//! Which queues of a device carry the datagrams of which port.

use crate::paired::Side;

/// How many queues of each kind a device has, and who is behind them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Steering {
    pub(super) link: Link,
    pub(super) side: Side,
    pub(super) ports: usize,
    pub(super) receive_queues: usize,
    pub(super) send_queues: usize,
    /// True if each datagram arrives at a queue of its port; else at any.
    pub(super) is_steered: bool,
}

/// What is behind the queues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Link {
    /// The queues of one peer, number by number: the sender chooses where a datagram arrives.
    Peer,
    /// A network: whoever receives chooses.
    Network,
}

impl Steering {
    /// Receive and send queues to ask for.
    pub(super) fn wanted(link: Link, side: Side, ports: usize) -> [usize; 2] {
        match (link, side) {
            (Link::Peer, Side::Client { queues }) => [queues, queues],
            (Link::Network, Side::Server { separates_large: false }) => [ports, ports.div_ceil(2)],
            _ => [ports, ports],
        }
    }

    /// The queues that a port looks at, given its number and the UDP port that it would have in a row.
    pub(super) fn receive_queues(&self, port: usize, udp_port: u16) -> impl Iterator<Item = usize> + use<> {
        let queues = self.receive_queues;
        let looked_at = match self.link {
            Link::Peer => self.side.receive_queues(udp_port, queues),
            Link::Network => [Some(port % queues), self.stray_queue(port)],
        };
        looked_at.into_iter().flatten()
    }

    /// The queue of a port for large transfers, which are looked at less often, beside that of another port: a network that
    /// steers nothing brings any datagram there.
    fn stray_queue(&self, port: usize) -> Option<usize> {
        let queue = Some(self.ports.div_ceil(2) + port).filter(|&queue| queue < self.receive_queues);
        queue.filter(|_| !self.is_steered)
    }

    /// The queue by which a port sends to a peer's UDP port.
    pub(super) fn send_queue(&self, port: usize, peer: u16) -> usize {
        let queues = self.send_queues;
        match (self.link, self.side) {
            (Link::Peer, side) => side.send_queue(port >= self.ports.div_ceil(2), peer, queues),
            (Link::Network, Side::Server { separates_large: false }) => {
                port % self.ports.div_ceil(2).max(1) % queues
            }
            (Link::Network, _) => port % queues,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIRST: u16 = 11311;

    fn of(link: Link, side: Side, ports: usize) -> Steering {
        let [receive_queues, send_queues] = Steering::wanted(link, side, ports);
        Steering { link, side, ports, receive_queues, send_queues, is_steered: true }
    }

    #[test]
    fn large_replies_have_queues_of_their_own_if_asked_for() {
        for link in [Link::Peer, Link::Network] {
            for separates_large in [false, true] {
                let server = of(link, Side::Server { separates_large }, 8);
                let queues = |ports: std::ops::Range<usize>| {
                    let all = ports.flat_map(|port| (0..50).map(move |peer| server.send_queue(port, peer)));
                    all.collect::<std::collections::BTreeSet<_>>()
                };
                assert_eq!(queues(0..4).is_disjoint(&queues(4..8)), separates_large);
                assert!(queues(0..8).iter().all(|&queue| queue < server.send_queues));
            }
        }
    }

    #[test]
    fn every_queue_of_a_card_is_looked_at() {
        for (queues, is_steered) in (1..=8).flat_map(|queues| [(queues, false), (queues, true)]) {
            let side = Side::Server { separates_large: false };
            let steering = Steering { receive_queues: queues, is_steered, ..of(Link::Network, side, 8) };
            let looked_at = |ports: std::ops::Range<usize>| {
                let queues = ports.flat_map(|port| steering.receive_queues(port, FIRST));
                queues.collect::<std::collections::BTreeSet<_>>()
            };
            assert!(looked_at(0..8).into_iter().eq(0..queues));
            // By ports that are always looked at, unless the queue has large transfers alone.
            assert_eq!(looked_at(0..4).len() == queues, queues <= 4 || !is_steered);
        }
    }
}
