//! Datagrams on their way out, gathered into trains.

use std::net::SocketAddr;

use minos_net::{
    Port,
    udp::{BURST_MESSAGES, TRAIN_BYTES_MAX, TRAIN_SEGMENTS_MAX, TransmitBurst},
};

/// Maximum ratio of the lengths in a padded train. A datagram beyond it begins the next train.
const PADDED_TO_MAX: usize = 4;

/// Where the header of a native datagram names its queue.
const QUEUE_AT: usize = 6;

/// A composed datagram at `begin..end` of the outbox's bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Datagram {
    peer: SocketAddr,
    /// The queue that its header names; 0 if the protocol has none.
    queue: u16,
    begin: usize,
    end: usize,
}

impl Datagram {
    /// Where it goes. Queues may share a port, and the kernel steers a train by its first datagram.
    fn end_of_way(&self) -> (SocketAddr, u16) {
        (self.peer, self.queue)
    }

    fn bytes(&self) -> usize {
        self.end - self.begin
    }
}

/// Datagrams composed but not sent.
#[derive(Debug)]
pub(super) struct Outbox {
    /// True if datagrams may be padded with zeros.
    pads: bool,
    bytes: Vec<u8>,
    datagrams: Vec<Datagram>,
    burst: TransmitBurst,
}

impl Outbox {
    /// Creates an empty outbox. `pads`: the protocol allows zeros behind a datagram.
    pub(super) fn new(pads: bool) -> Self {
        Self { pads, bytes: Vec::new(), datagrams: Vec::new(), burst: TransmitBurst::new() }
    }

    /// The buffer to append the next datagram to; call [`Outbox::end_datagram`] after it.
    pub(super) fn room(&mut self) -> &mut Vec<u8> {
        &mut self.bytes
    }

    /// Ends a datagram for `peer`: the bytes appended since the last call.
    pub(super) fn end_datagram(&mut self, peer: SocketAddr) {
        let begin = self.datagrams.last().map_or(0, |datagram| datagram.end);
        let named = self.bytes[begin..].get(QUEUE_AT..QUEUE_AT + 2).filter(|_| self.pads);
        let queue = named.map_or(0, |bytes| u16::from_le_bytes([bytes[0], bytes[1]]));
        self.datagrams.push(Datagram { peer, queue, begin, end: self.bytes.len() });
    }

    /// Adds a finished train for `peer`, which leaves with the next [`Outbox::send`] or before.
    pub(super) fn push_train(
        &mut self,
        port: &impl Port,
        peer: SocketAddr,
        bytes: &[u8],
        segment_bytes: usize,
    ) {
        if !self.burst.push(peer, bytes, segment_bytes) {
            port.send(&mut self.burst);
            // An empty one takes any train.
            let _ = self.burst.push(peer, bytes, segment_bytes);
        }
    }

    /// Sends all datagrams, those for one peer in trains of equal segments.
    pub(super) fn send(&mut self, port: &impl Port) {
        let first = self.datagrams.first().map(Datagram::end_of_way);
        if !self.datagrams.iter().all(|datagram| Some(datagram.end_of_way()) == first) {
            // A stable sort: datagrams for one queue keep their order.
            self.datagrams.sort_by_key(Datagram::end_of_way);
        }
        let mut rest = &self.datagrams[..];
        while !rest.is_empty() {
            let (count, segment_bytes) = train(rest, self.pads);
            let (train, behind) = rest.split_at(count);
            if self.burst.len() == BURST_MESSAGES {
                port.send(&mut self.burst);
            }
            let buffer = self.burst.buffer();
            let begin = buffer.len();
            for (number, datagram) in train.iter().enumerate() {
                // Pads the datagram before.
                buffer.resize(begin + number * segment_bytes, 0);
                buffer.extend_from_slice(&self.bytes[datagram.begin..datagram.end]);
            }
            let range = begin..buffer.len();
            // There is room for a train, and it is no longer than one may be.
            let _ = self.burst.queue(train[0].peer, range, segment_bytes);
            rest = behind;
        }
        if !self.burst.is_empty() {
            // Datagrams that the kernel rejects get no answer, and count as lost later.
            port.send(&mut self.burst);
        }
        self.bytes.clear();
        self.datagrams.clear();
    }
}

/// Number of leading datagrams that form one train, and the bytes of its segments.
fn train(datagrams: &[Datagram], pads: bool) -> (usize, usize) {
    let padded_to_max = if pads { PADDED_TO_MAX } else { 1 };
    let first = datagrams[0].end_of_way();
    let (mut least, mut most, mut count) = (usize::MAX, 0, 0);
    for datagram in datagrams.iter().take(TRAIN_SEGMENTS_MAX) {
        let bytes = datagram.bytes();
        let (shortest, longest) = (least.min(bytes), most.max(bytes));
        let is_even = shortest * padded_to_max >= longest;
        if datagram.end_of_way() != first || !is_even || longest * (count + 1) > TRAIN_BYTES_MAX.max(longest)
        {
            break;
        }
        (least, most, count) = (shortest, longest, count + 1);
    }
    (count, most)
}

#[cfg(test)]
mod tests {
    use std::{os::fd::AsFd, time::Duration};

    use minos_net::{
        Wait,
        udp::{ReceiveBurst, UdpOptions, UdpPort},
        wait_readable,
    };

    use super::*;

    fn port() -> UdpPort {
        UdpPort::bind("127.0.0.1:0".parse().unwrap(), &UdpOptions::default()).unwrap()
    }

    /// The next `count` datagrams; fewer if no more come.
    fn arrived(port: &UdpPort, count: usize) -> Vec<Vec<u8>> {
        let (mut burst, mut arrived) = (ReceiveBurst::new(), Vec::new());
        while arrived.len() < count
            && wait_readable(&[port.as_fd()], Wait::For(Duration::from_secs(5))).unwrap()
        {
            port.receive(&mut burst).unwrap();
            for message in burst.messages() {
                arrived.extend(message.segments().map(<[u8]>::to_vec));
            }
        }
        arrived
    }

    #[test]
    fn datagrams_arrive_in_order_with_no_more_than_padding_added() {
        let (near, far, other) = (port(), port(), port());
        let mut outbox = Outbox::new(true);
        let lengths = [100usize, 90, 100, 1000, 1001, 10, 700];
        for (number, length) in lengths.iter().enumerate() {
            outbox.room().extend(std::iter::repeat_n(number as u8 + 1, *length));
            outbox.end_datagram(far.address());
            outbox.room().push(77);
            outbox.end_datagram(other.address());
        }
        outbox.send(&near);
        let arrived = arrived(&far, lengths.len());
        assert_eq!(arrived.len(), lengths.len());
        for (number, (datagram, length)) in arrived.iter().zip(lengths).enumerate() {
            assert!(datagram[..length].iter().all(|&byte| usize::from(byte) == number + 1));
            assert!(datagram[length..].iter().all(|&byte| byte == 0) && datagram.len() <= length * 2);
        }
    }

    #[test]
    fn more_trains_leave_than_a_burst_holds() {
        let (near, far) = (port(), port());
        let mut outbox = Outbox::new(true);
        let lengths: Vec<usize> = (0..2 * BURST_MESSAGES + 6).map(|number| [10, 300][number % 2]).collect();
        for length in &lengths {
            outbox.room().extend(std::iter::repeat_n(1, *length));
            outbox.end_datagram(far.address());
        }
        outbox.send(&near);
        assert!(arrived(&far, lengths.len()).iter().map(Vec::len).eq(lengths));
    }

    #[test]
    fn trains_keep_to_their_bounds() {
        let peer = "127.0.0.1:1".parse().unwrap();
        let of = |lengths: &[usize]| {
            let mut begin = 0;
            let datagrams: Vec<_> = lengths
                .iter()
                .map(|bytes| {
                    begin += bytes;
                    Datagram { peer, queue: 0, begin: begin - bytes, end: begin }
                })
                .collect();
            (train(&datagrams, true), train(&datagrams, false))
        };
        assert_eq!(of(&[80; 100]), ((TRAIN_SEGMENTS_MAX, 80), (TRAIN_SEGMENTS_MAX, 80)));
        assert_eq!(of(&[1448; 100]).0, (TRAIN_BYTES_MAX / 1448, 1448));
        assert_eq!(of(&[100, 120, 400, 401]), ((3, 400), (1, 100)));
        assert_eq!(of(&[65_200, 10]).0, (1, 65_200));
        let to = |queue| Datagram { peer, queue, begin: 0, end: 80 };
        assert_eq!(train(&[to(0), to(0), to(1), to(0)], true), (2, 80));
    }
}
