//! Requests for hardware addresses, and replies (ARP for IPv4 over Ethernet, RFC 826).

use std::net::Ipv4Addr;

use super::{ETHERNET_BYTES, Mac, TYPE_IPV4, array};

/// Bytes of a frame with an ARP packet. Shorter than Ethernet's least, which the card pads to.
pub const ARP_FRAME_BYTES: usize = ETHERNET_BYTES + ARP_BYTES;

const ARP_BYTES: usize = 28;
const TYPE_ARP: [u8; 2] = [0x08, 0x06];
/// Ethernet, IPv4, and the bytes of their addresses.
const KINDS: [u8; 6] = [0, 1, TYPE_IPV4[0], TYPE_IPV4[1], 6, 4];
const BROADCAST: Mac = [0xff; 6];

/// An ARP packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arp {
    /// Who has `wanted`? The sender has the other two.
    Request {
        /// Hardware address of the sender.
        mac: Mac,
        /// Its IP address.
        ip: Ipv4Addr,
        /// The IP address to be found.
        wanted: Ipv4Addr,
    },
    /// The sender has these.
    Reply {
        /// Hardware address of the sender.
        mac: Mac,
        /// Its IP address.
        ip: Ipv4Addr,
    },
}

impl Arp {
    /// Reads a frame; `None` if it has no sound ARP packet of a single host.
    pub fn parse(frame: &[u8]) -> Option<Self> {
        let (ethernet, packet) = frame.split_at_checked(ETHERNET_BYTES)?;
        let packet = packet.get(..ARP_BYTES)?;
        let (mac, ip): (Mac, _) = (array(packet, 8), Ipv4Addr::from(array::<4>(packet, 14)));
        let is_host = mac[0] & 1 == 0 && array::<6>(ethernet, 6) == mac;
        if array(ethernet, 12) != TYPE_ARP || array(packet, 0) != KINDS || !is_host {
            return None;
        }
        match array(packet, 6) {
            [0, 1] => Some(Self::Request { mac, ip, wanted: array::<4>(packet, 24).into() }),
            [0, 2] => Some(Self::Reply { mac, ip }),
            _ => None,
        }
    }

    /// Writes the question for `wanted`, by the host with `mac` and `ip`. The frame is at least [`ARP_FRAME_BYTES`] long.
    pub fn write_request(frame: &mut [u8], mac: Mac, ip: Ipv4Addr, wanted: Ipv4Addr) {
        write(frame, 1, (mac, ip), (BROADCAST, wanted));
    }

    /// Writes the answer of the host with `mac` and `ip` to another. The frame is at least [`ARP_FRAME_BYTES`] long.
    pub fn write_reply(frame: &mut [u8], mac: Mac, ip: Ipv4Addr, to: (Mac, Ipv4Addr)) {
        write(frame, 2, (mac, ip), to);
    }
}

fn write(frame: &mut [u8], operation: u8, from: (Mac, Ipv4Addr), to: (Mac, Ipv4Addr)) {
    let parts: [&[u8]; 9] = [
        &to.0,
        &from.0,
        &TYPE_ARP,
        &KINDS,
        &[0, operation],
        &from.0,
        &from.1.octets(),
        &to.0,
        &to.1.octets(),
    ];
    let mut at = 0;
    for part in parts {
        frame[at..at + part.len()].copy_from_slice(part);
        at += part.len();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ASKS: (Mac, Ipv4Addr) = ([2, 0, 0, 0, 0, 1], Ipv4Addr::new(10, 0, 0, 2));
    const ANSWERS: (Mac, Ipv4Addr) = ([2, 0, 0, 0, 0, 2], Ipv4Addr::new(10, 0, 0, 1));

    fn request() -> [u8; ARP_FRAME_BYTES] {
        let mut frame = [0; ARP_FRAME_BYTES];
        Arp::write_request(&mut frame, ASKS.0, ASKS.1, ANSWERS.1);
        frame
    }

    #[test]
    fn bytes_on_the_wire() {
        let expected = [
            &[0xff; 6][..],
            &[2, 0, 0, 0, 0, 1, 8, 6],
            &[0, 1, 8, 0, 6, 4, 0, 1],
            &[2, 0, 0, 0, 0, 1, 10, 0, 0, 2],
            &[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 10, 0, 0, 1],
        ]
        .concat();
        assert_eq!(request()[..], expected);
    }

    #[test]
    fn what_is_written_is_read() {
        let asked = Arp::Request { mac: ASKS.0, ip: ASKS.1, wanted: ANSWERS.1 };
        assert_eq!(Arp::parse(&request()), Some(asked));
        let mut frame = [0; ARP_FRAME_BYTES + 18];
        Arp::write_reply(&mut frame, ANSWERS.0, ANSWERS.1, ASKS);
        assert_eq!(Arp::parse(&frame), Some(Arp::Reply { mac: ANSWERS.0, ip: ANSWERS.1 }));
        assert_eq!(frame[..6], ASKS.0);
    }

    #[test]
    fn other_frames_are_none() {
        for bytes in 0..ARP_FRAME_BYTES {
            assert_eq!(Arp::parse(&request()[..bytes]), None);
        }
        // The type, each kind, the operation, and a sender that is many or not who it says.
        for (at, byte) in
            [(13, 0), (15, 6), (16, 0x86), (17, 1), (18, 8), (19, 16), (21, 3), (20, 1), (22, 3), (6, 4)]
        {
            let mut frame = request();
            frame[at] = byte;
            assert_eq!(Arp::parse(&frame), None, "{at}");
        }
    }
}
