//! Who sends to a port: datagrams of one sender differ little.

use std::{net::SocketAddr, ops::Range};

use crate::{
    frame::{Datagram, Flow, parse},
    neighbours::{Mark, Neighbours, RECENT, Recent},
};

/// Where the port of the sender stands in a frame over IPv4.
const PORT_AT: usize = 34;

/// The senders that a port has heard last. The headers of their next datagrams are known.
#[derive(Debug, Default)]
pub(crate) struct Senders {
    pub(crate) recent: Recent,
    known: [Option<Sender>; RECENT],
}

/// A sender over IPv4, with the port that it sends to.
#[derive(Clone, Copy, Debug)]
struct Sender {
    flow: Flow,
    peer: SocketAddr,
    mark: Mark,
    port: usize,
}

/// Whom a datagram is for, and where answers go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Recipient {
    /// The number of the port.
    pub(crate) port: usize,
    /// True if that stands in the payload, so that the headers do not tell.
    pub(crate) is_in_payload: bool,
    pub(crate) peer: SocketAddr,
}

/// A datagram that may be answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Arrival {
    pub(crate) peer: SocketAddr,
    /// The number of the port that it is for.
    pub(crate) port: usize,
    /// The payload's place in the frame.
    pub(crate) payload: Range<usize>,
}

/// Why a frame is no datagram for this host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stranger {
    /// It is no datagram, or a wrong one.
    Unread,
    /// It is for somebody else.
    NotHere,
}

impl Senders {
    /// The datagram in a frame, if there is somebody here whom it is for. `neighbours` hear where its answers go.
    #[inline]
    pub(crate) fn arrival(
        &mut self,
        frame: &[u8],
        neighbours: &Neighbours,
        recipient: impl FnOnce(&Datagram) -> Option<Recipient>,
    ) -> Result<Arrival, Stranger> {
        if let Some((sender, payload)) = self.known(frame) {
            neighbours.keep(sender.mark);
            return Ok(Arrival { peer: sender.peer, port: sender.port, payload });
        }
        self.look(frame, neighbours, recipient)
    }

    #[inline]
    fn known(&self, frame: &[u8]) -> Option<(&Sender, Range<usize>)> {
        let sender = self.known[place(frame)?].as_ref()?;
        Some((sender, sender.flow.payload(frame)?))
    }

    /// Reads all of the headers.
    #[inline(never)]
    fn look(
        &mut self,
        frame: &[u8],
        neighbours: &Neighbours,
        recipient: impl FnOnce(&Datagram) -> Option<Recipient>,
    ) -> Result<Arrival, Stranger> {
        let datagram = parse(frame).map_err(|_| Stranger::Unread)?;
        let Recipient { port, is_in_payload, peer } = recipient(&datagram).ok_or(Stranger::NotHere)?;
        let mark = neighbours.note(&mut self.recent, peer, datagram.from.mac);
        if let (Some(flow), Some(place), false) = (Flow::of(frame), place(frame), is_in_payload) {
            self.known[place] = Some(Sender { flow, peer, mark, port });
        }
        Ok(Arrival { peer, port, payload: datagram.payload })
    }
}

fn place(frame: &[u8]) -> Option<usize> {
    let port = frame.get(PORT_AT..PORT_AT + 2)?;
    Some(usize::from(u16::from_be_bytes([port[0], port[1]])) % RECENT)
}

#[cfg(test)]
mod tests {
    use proptest::{collection::vec, prelude::*};

    use super::*;
    use crate::{
        PortOptions, Source,
        frame::{End, Mac, head_bytes, write_head},
        row::Row,
    };

    const SERVER: Mac = [2, 0, 0, 0, 0, 9];
    const FIRST_PORT: u16 = 11311;

    fn row(shares_address: bool) -> Row {
        Row::of(&PortOptions {
            address: ([10, 0, 0, 1], FIRST_PORT).into(),
            count: 3,
            shares_address,
            receive_buffer_bytes: 1 << 16,
            source: Source::Sockets,
        })
        .unwrap()
    }

    fn frame([mac, port, to]: [u8; 3], payload: &[u8]) -> Vec<u8> {
        // Two of them have one place.
        let from =
            End { mac: [2, 0, 0, 0, 0, mac], address: ([10, 0, 0, 2], 4000 + 8 * u16::from(port)).into() };
        let to = End { mac: SERVER, address: ([10, 0, 0, 1], FIRST_PORT + u16::from(to)).into() };
        let begin = head_bytes(&from.address.ip());
        let mut frame = vec![0; begin + payload.len()];
        frame[begin..].copy_from_slice(payload);
        write_head(&mut frame, &from, &to, payload.len()).unwrap();
        frame
    }

    proptest! {
        /// What is known of senders changes nothing but the time that it takes.
        #[test]
        fn frames_arrive_as_if_each_were_the_first(
            frames in vec((any::<[u8; 3]>(), vec(any::<u8>(), 0..12), vec((0..60_usize, any::<u8>()), 0..2)), 0..40),
            shares_address: bool,
        ) {
            let (row, mut senders, both) = (row(shares_address), Senders::default(), [(); 2].map(|()| Neighbours::new()));
            for (ends, payload, changes) in frames {
                let ends = ends.map(|end| end % 4);
                let mut frame = frame(ends, &payload);
                changes.iter().for_each(|&(at, byte)| if let Some(it) = frame.get_mut(at) { *it = byte });
                let recipient = |datagram: &_| row.recipient(datagram, &frame, SERVER);
                let arrival = senders.arrival(&frame, &both[0], recipient);
                prop_assert_eq!(&arrival, &Senders::default().arrival(&frame, &both[1], recipient));
                if let Ok(Arrival { peer, .. }) = arrival {
                    let [known, first] = both.each_ref().map(|each| each.find(&mut Recent::default(), peer));
                    prop_assert!(known.is_some() && known == first);
                }
            }
        }
    }
}
