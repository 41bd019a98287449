//! The headers of datagrams that leave.

use std::net::IpAddr;

use super::{
    DO_NOT_FRAGMENT, ETHERNET_BYTES, End, HOPS, IPV4_BYTES, IPV4_PLAIN, IPV6_BYTES, PROTOCOL_UDP, TYPE_IPV4,
    TYPE_IPV6, UDP_BYTES,
    checksum::{fold, number, sum},
};

/// Bytes of the headers before UDP's of IPv4, and of IPv6.
const UDP_AT: [usize; 2] = [ETHERNET_BYTES + IPV4_BYTES, ETHERNET_BYTES + IPV6_BYTES];

/// Bytes of the longest [`Head`].
pub const HEAD_BYTES_MAX: usize = UDP_AT[1] + UDP_BYTES;

/// The headers of all datagrams from one end to another. Only lengths and checksums differ.
#[derive(Clone, Debug)]
pub struct Head {
    /// Those of a datagram whose lengths and checksums are 0.
    template: Template,
    /// The sum of the addresses, the ports and the protocol.
    udp_sum: u64,
}

#[derive(Clone, Debug)]
enum Template {
    /// Also the sum of IP's header.
    V4([u8; UDP_AT[0] + UDP_BYTES], u64),
    V6([u8; UDP_AT[1] + UDP_BYTES]),
}

impl Head {
    /// The headers of datagrams between these ends; `None` if their addresses are of two families.
    pub fn between(from: &End, to: &End) -> Option<Self> {
        let mut template = match (from.address.ip(), to.address.ip()) {
            (IpAddr::V4(from), IpAddr::V4(to)) => {
                let mut head = [0; UDP_AT[0] + UDP_BYTES];
                head[12..14].copy_from_slice(&TYPE_IPV4);
                let ip = &mut head[ETHERNET_BYTES..UDP_AT[0]];
                ip[0] = IPV4_PLAIN;
                // A datagram that is never cut needs no number (RFC 6864).
                ip[6..8].copy_from_slice(&DO_NOT_FRAGMENT);
                [ip[8], ip[9]] = [HOPS, PROTOCOL_UDP];
                ip[12..16].copy_from_slice(&from.octets());
                ip[16..20].copy_from_slice(&to.octets());
                let ip_sum = sum(ip);
                Template::V4(head, ip_sum)
            }
            (IpAddr::V6(from), IpAddr::V6(to)) => {
                let mut head = [0; UDP_AT[1] + UDP_BYTES];
                head[12..14].copy_from_slice(&TYPE_IPV6);
                let ip = &mut head[ETHERNET_BYTES..UDP_AT[1]];
                [ip[0], ip[6], ip[7]] = [6 << 4, PROTOCOL_UDP, HOPS];
                ip[8..24].copy_from_slice(&from.octets());
                ip[24..40].copy_from_slice(&to.octets());
                Template::V6(head)
            }
            _ => return None,
        };
        let (head, udp_at): (&mut [u8], _) = match &mut template {
            Template::V4(head, _) => (head, UDP_AT[0]),
            Template::V6(head) => (head, UDP_AT[1]),
        };
        head[..6].copy_from_slice(&to.mac);
        head[6..12].copy_from_slice(&from.mac);
        head[udp_at..udp_at + 2].copy_from_slice(&from.address.port().to_be_bytes());
        head[udp_at + 2..udp_at + 4].copy_from_slice(&to.address.port().to_be_bytes());
        let addresses_bytes = if udp_at == UDP_AT[0] { 8 } else { 32 };
        let udp_sum = sum(&head[udp_at - addresses_bytes..]) + number(PROTOCOL_UDP.into());
        Some(Self { template, udp_sum })
    }

    /// Bytes of the headers.
    #[inline]
    pub fn bytes(&self) -> usize {
        match &self.template {
            Template::V4(head, _) => head.len(),
            Template::V6(head) => head.len(),
        }
    }

    /// Writes the headers before a payload of `payload_bytes` bytes that lies behind them in `frame` already, and returns
    /// the bytes of the whole; `None` if they do not fit the frame or an IP packet.
    #[inline]
    pub fn write(&self, frame: &mut [u8], payload_bytes: usize) -> Option<usize> {
        let bytes = self.bytes().checked_add(payload_bytes)?;
        let (head, payload) = frame.get_mut(..bytes)?.split_at_mut(self.bytes());
        self.write_before(payload, head)?;
        Some(bytes)
    }

    /// Writes the headers before `payload` to `head`, which has [as many bytes](Self::bytes); `None` if it does not fit an IP
    /// packet.
    ///
    /// # Panics
    /// If `head` has another length.
    #[inline]
    pub fn write_before(&self, payload: &[u8], head: &mut [u8]) -> Option<()> {
        let udp_bytes = u16::try_from(UDP_BYTES + payload.len()).ok()?;
        // The length counts twice: it is a part of the pseudo-header too.
        let checksum = checksum_of(self.udp_sum + 2 * number(udp_bytes) + sum(payload));
        let udp_at = match &self.template {
            Template::V4(template, ip_sum) => {
                let ip_bytes = udp_bytes.checked_add(IPV4_BYTES as u16)?;
                head.copy_from_slice(template);
                head[16..18].copy_from_slice(&ip_bytes.to_be_bytes());
                let checksum = !fold(ip_sum + number(ip_bytes));
                head[24..26].copy_from_slice(&checksum.to_ne_bytes());
                UDP_AT[0]
            }
            Template::V6(template) => {
                head.copy_from_slice(template);
                head[18..20].copy_from_slice(&udp_bytes.to_be_bytes());
                UDP_AT[1]
            }
        };
        head[udp_at + 4..udp_at + 6].copy_from_slice(&udp_bytes.to_be_bytes());
        head[udp_at + 6..udp_at + 8].copy_from_slice(&checksum.to_ne_bytes());
        Some(())
    }
}

/// The checksum of UDP, of which 0 would mean that there is none.
fn checksum_of(sum: u64) -> u16 {
    match !fold(sum) {
        0 => 0xffff,
        checksum => checksum,
    }
}

/// Writes the headers of one datagram between these ends: see [`Head::write`].
pub fn write_head(frame: &mut [u8], from: &End, to: &End, payload_bytes: usize) -> Option<usize> {
    Head::between(from, to)?.write(frame, payload_bytes)
}
