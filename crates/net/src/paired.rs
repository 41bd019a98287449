//! Which queue of two processes that share memory carries the datagrams of which port. Both sides count alike, so that the
//! sender chooses where a datagram arrives.

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
        /// Queues of the server.
        queues: usize,
    },
}

impl Side {
    /// The queues that the port with this number looks at, of so many.
    pub(crate) fn receive_queues(self, udp_port: u16, queues: usize) -> [Option<usize>; 2] {
        match self {
            Self::Server { .. } => [Some(usize::from(udp_port) % queues), None],
            Self::Client { .. } => {
                let small = small(queues);
                let first = usize::from(udp_port) % small;
                [Some(first), Some(small + first).filter(|&large| large < queues)]
            }
        }
    }

    /// The queue by which a port, which may be one for large replies, sends to a peer's UDP port.
    pub(crate) fn send_queue(self, is_large: bool, peer: u16, queues: usize) -> usize {
        let peer = usize::from(peer);
        match self {
            Self::Client { .. } => peer % queues,
            Self::Server { separates_large } => {
                let small = small(queues);
                let first = if separates_large && is_large && queues > 1 { small } else { 0 };
                first + peer % small
            }
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

    #[test]
    fn what_a_client_sends_to_a_port_arrives_there() {
        for queues in [2, 4, 6, 32] {
            let client = Side::Client { queues };
            for udp_port in (0..queues as u16).map(|port| FIRST + port) {
                let looked_at = Side::Server { separates_large: true }.receive_queues(udp_port, queues);
                assert_eq!(looked_at, [Some(client.send_queue(false, udp_port, queues)), None]);
            }
        }
    }

    #[test]
    fn what_a_server_answers_arrives_where_its_asker_looks() {
        for (separates_large, queues) in [(false, 2), (true, 2), (true, 6), (false, 6), (true, 1)] {
            let (server, client) = (Side::Server { separates_large }, Side::Client { queues });
            for (asker, is_large) in (40_000..40_020).flat_map(|asker| [(asker, false), (asker, true)]) {
                let queue = server.send_queue(is_large, asker, queues);
                assert!(client.receive_queues(asker, queues).contains(&Some(queue)));
            }
        }
    }
}
