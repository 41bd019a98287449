//! The port of a server over the kernel's transports: a UDP socket, and sockets at a card's queues where asked.

use std::{
    io::{self, IoSlice},
    net::SocketAddr,
    os::fd::{AsFd, BorrowedFd},
};

use crate::{
    Port, PortFacts, PortOptions, Source, Way,
    udp::{Message, ReceiveBurst, Sent, TransmitBurst, UdpPort},
    xdp::{CardBurst, CardCounts, CardPort, Fate},
};

/// A UDP port, of which most datagrams may bypass the socket.
#[derive(Debug)]
pub struct KernelPort {
    /// Declared first: it refers to the socket.
    card: Option<CardPort>,
    udp: UdpPort,
    /// Why datagrams do not come from the card, if that was asked for.
    refusal: Option<String>,
}

/// Messages of a [`KernelPort`].
#[derive(Debug, Default)]
pub struct KernelBurst {
    udp: ReceiveBurst,
    card: CardBurst,
}

impl KernelPort {
    /// Opens the ports of a server. If they cannot receive from the card, they do so by UDP sockets alone, and
    /// [`PortFacts::way`] has the reason.
    ///
    /// # Errors
    /// As [`UdpPort::open_all`].
    pub fn open_all(wanted: &PortOptions) -> io::Result<Vec<Self>> {
        let sockets = UdpPort::open_all(wanted)?;
        let (cards, refusal) =
            if wanted.source == Source::Card { open_at_card(&sockets, wanted) } else { (Vec::new(), None) };
        let mut cards = cards.into_iter();
        let port = |udp| Self { card: cards.next(), udp, refusal: refusal.clone() };
        Ok(sockets.into_iter().map(port).collect())
    }

    /// Receives from the card, and from the UDP socket if there is nothing or it was not asked for long.
    fn receive_from_both(
        &self,
        card: &CardPort,
        burst: &mut KernelBurst,
        messages_max: usize,
    ) -> io::Result<usize> {
        burst.udp.clear();
        // A message of the socket's has a place in a full burst, too.
        let is_due = messages_max > 1 && card.is_socket_due();
        let messages = card.receive(&mut burst.card, messages_max - usize::from(is_due))?;
        if messages > 0 && !is_due {
            return Ok(messages);
        }
        let others = self.udp.receive_at_most(&mut burst.udp, messages_max - messages)?;
        Ok(messages + others)
    }
}

impl Port for KernelPort {
    type Burst = KernelBurst;

    fn burst(&self) -> KernelBurst {
        let card = self.card.as_ref().map_or_else(CardBurst::default, CardPort::burst);
        KernelBurst { udp: ReceiveBurst::new(), card }
    }

    #[inline]
    fn receive_at_most(&self, burst: &mut KernelBurst, messages_max: usize) -> io::Result<usize> {
        match &self.card {
            None => self.udp.receive_at_most(&mut burst.udp, messages_max),
            Some(card) => self.receive_from_both(card, burst, messages_max),
        }
    }

    #[inline]
    fn messages(burst: &mut KernelBurst) -> impl Iterator<Item = Message<'_>> {
        burst.udp.messages().chain(burst.card.messages())
    }

    #[inline]
    fn send(&self, trains: &mut TransmitBurst) -> Sent {
        let Some(card) = &self.card else { return trains.send(&self.udp) };
        let (mut sent, mut sender) = (Sent::default(), card.sender());
        for (peer, bytes, segment_bytes) in trains.trains() {
            let pieces = [IoSlice::new(bytes)];
            let fate = sender.send(peer, &pieces, segment_bytes);
            sent += self.outcome(fate, peer, &pieces, segment_bytes);
        }
        sender.finish();
        trains.clear();
        sent
    }

    #[inline]
    fn send_gather(&self, peer: SocketAddr, pieces: &[IoSlice<'_>], segment_bytes: usize) -> Sent {
        let Some(card) = &self.card else { return self.udp.send_gather(peer, pieces, segment_bytes) };
        let mut sender = card.sender();
        let fate = sender.send(peer, pieces, segment_bytes);
        sender.finish();
        self.outcome(fate, peer, pieces, segment_bytes)
    }

    fn address(&self) -> SocketAddr {
        self.udp.address()
    }

    fn overruns(&self) -> u64 {
        let CardCounts { ring_full, no_frame, .. } = self.card_counts();
        u64::from(self.udp.overruns()) + ring_full + no_frame
    }

    fn card_counts(&self) -> CardCounts {
        self.card.as_ref().map(CardPort::counts).unwrap_or_default()
    }

    fn descriptor(&self) -> BorrowedFd<'_> {
        self.card.as_ref().map_or_else(|| self.udp.as_fd(), CardPort::descriptor)
    }

    fn facts(&self) -> PortFacts {
        let way = match (&self.card, &self.refusal) {
            (Some(card), _) => Way::Card(card.facts()),
            (None, Some(reason)) => Way::Refused(reason.clone()),
            (None, None) => Way::Sockets,
        };
        PortFacts { way, ..self.udp.facts() }
    }
}

impl KernelPort {
    /// Counts a train, after the socket has sent what the card cannot.
    fn outcome(&self, fate: Fate, peer: SocketAddr, pieces: &[IoSlice<'_>], segment_bytes: usize) -> Sent {
        match fate {
            Fate::Sent => Sent { trains: 1, ..Sent::default() },
            Fate::Dropped => Sent { dropped: 1, ..Sent::default() },
            Fate::NotHere => self.udp.send_gather(peer, pieces, segment_bytes),
        }
    }
}

fn open_at_card(sockets: &[UdpPort], wanted: &PortOptions) -> (Vec<CardPort>, Option<String>) {
    let sockets: Vec<_> = sockets.iter().map(|socket| (socket.address(), socket.as_fd())).collect();
    match CardPort::open_all(&sockets, wanted) {
        Ok(ports) => (ports, None),
        Err(refusal) => (Vec::new(), Some(refusal.to_string())),
    }
}
