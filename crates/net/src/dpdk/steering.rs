//! Which queues of a device carry the datagrams of which port.

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

/// The side of a conversation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The first half of the ports has small replies, the other half large ones.
    Server {
        /// True if large replies have send queues of their own.
        separates_large: bool,
    },
    /// Ports that ask a server.
    Client {
        /// Queues of the server's device, with [`DpdkDevice::Memif`](super::DpdkDevice::Memif).
        queues: usize,
    },
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
        let [first, second] = match (self.link, self.side) {
            (Link::Peer, Side::Server { .. }) => [Some(usize::from(udp_port) % queues), None],
            (Link::Peer, Side::Client { .. }) => {
                let small = small(queues);
                let first = usize::from(udp_port) % small;
                [Some(first), Some(small + first).filter(|&large| large < queues)]
            }
            (Link::Network, _) => [Some(port % queues), self.stray_queue(port)],
        };
        first.into_iter().chain(second)
    }

    /// The queue of a port for large transfers, which are looked at less often, beside that of another port: a network that
    /// steers nothing brings any datagram there.
    fn stray_queue(&self, port: usize) -> Option<usize> {
        let queue = Some(self.ports.div_ceil(2) + port).filter(|&queue| queue < self.receive_queues);
        queue.filter(|_| !self.is_steered)
    }

    /// The queue by which a port sends to a peer's UDP port.
    pub(super) fn send_queue(&self, port: usize, peer: u16) -> usize {
        let (queues, peer) = (self.send_queues, usize::from(peer));
        let is_large = port >= self.ports.div_ceil(2);
        match (self.link, self.side) {
            (Link::Peer, Side::Client { .. }) => peer % queues,
            (Link::Peer, Side::Server { separates_large }) => {
                let small = small(queues);
                let first = if separates_large && is_large && queues > 1 { small } else { 0 };
                first + peer % small
            }
            (Link::Network, Side::Server { separates_large: false }) => {
                port % self.ports.div_ceil(2).max(1) % queues
            }
            (Link::Network, _) => port % queues,
        }
    }
}

/// Queues that a peer receives small replies from; the others have large ones.
fn small(queues: usize) -> usize {
    (queues / 2).max(1)
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
    fn what_a_client_sends_to_a_port_of_a_peer_arrives_there() {
        for ports in [2, 4, 6, 32] {
            let server = of(Link::Peer, Side::Server { separates_large: true }, ports);
            let client = of(Link::Peer, Side::Client { queues: ports }, 3);
            for port in 0..ports {
                let udp_port = FIRST + port as u16;
                let queue = client.send_queue(1, udp_port);
                assert!(server.receive_queues(port, udp_port).eq([queue]));
            }
        }
    }

    #[test]
    fn what_a_server_answers_arrives_where_its_asker_looks() {
        for (separates_large, ports) in [(false, 2), (true, 2), (true, 6), (false, 6)] {
            let server = of(Link::Peer, Side::Server { separates_large }, ports);
            let client = of(Link::Peer, Side::Client { queues: ports }, 5);
            for (asker, port) in (0..5).flat_map(|asker| (0..ports).map(move |port| (asker, port))) {
                let udp_port = 40_000 + asker as u16;
                let queue = server.send_queue(port, udp_port);
                assert!(client.receive_queues(asker, udp_port).any(|looked_at| looked_at == queue));
            }
        }
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
