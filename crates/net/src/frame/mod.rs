//! Ethernet frames that carry UDP datagrams over IPv4 or IPv6, read and written without I/O.
//!
//! [`parse`] takes any bytes. It reads what the kernel's steering program lets through: no VLAN tag, no IP options or
//! extension headers, no fragments. All else belongs to the kernel's stack.

mod arp;
mod checksum;

use std::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    ops::Range,
};

pub use self::arp::{ARP_FRAME_BYTES, Arp};
use self::checksum::{fold, is_same, pseudo_sum, sum};

/// A hardware address.
pub type Mac = [u8; 6];

pub(crate) const ETHERNET_BYTES: usize = 14;
const IPV4_BYTES: usize = 20;
const IPV6_BYTES: usize = 40;
const UDP_BYTES: usize = 8;

const TYPE_IPV4: [u8; 2] = [0x08, 0x00];
const TYPE_IPV6: [u8; 2] = [0x86, 0xdd];
/// Version 4, and a header of five words.
const IPV4_PLAIN: u8 = 0x45;
/// Bits of the fragment field that must be 0: all but "don't fragment".
const FRAGMENT_BITS: u16 = 0xbfff;
const DO_NOT_FRAGMENT: [u8; 2] = [0x40, 0x00];
const PROTOCOL_UDP: u8 = 17;
/// Routers that a datagram may pass.
const HOPS: u8 = 64;

/// One end of a datagram's way over a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct End {
    /// Hardware address: of the peer, or of the router to it.
    pub mac: Mac,
    /// IP address and UDP port.
    pub address: SocketAddr,
}

/// A datagram in a frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Datagram {
    /// The sender. An answer to it may be sent: it is one host.
    pub from: End,
    /// The receiver.
    pub to: End,
    /// Place of the payload in the frame.
    pub payload: Range<usize>,
}

/// Why a frame carries no datagram that may be answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Invalid {
    /// Another protocol, a fragment, or headers with options.
    #[error("not a plain UDP datagram")]
    Other,
    /// A length exceeds the bytes that it counts.
    #[error("a length is wrong")]
    Length,
    /// A checksum is wrong.
    #[error("a checksum is wrong")]
    Checksum,
    /// The source is no single host, or its port is 0.
    #[error("the source cannot be answered")]
    Source,
}

/// Bytes of all headers before the payload of a datagram to or from `ip`.
pub const fn head_bytes(ip: &IpAddr) -> usize {
    ETHERNET_BYTES + UDP_BYTES + if ip.is_ipv4() { IPV4_BYTES } else { IPV6_BYTES }
}

/// Bytes of the IP packet around a payload.
pub(crate) const fn packet_bytes(ip: &IpAddr, payload_bytes: usize) -> usize {
    head_bytes(ip) - ETHERNET_BYTES + payload_bytes
}

/// Reads a frame.
///
/// A checksum that a virtual device has left to the hardware is accepted: the field holds the sum of the pseudo-header.
///
/// # Errors
/// See [`Invalid`].
pub fn parse(frame: &[u8]) -> Result<Datagram, Invalid> {
    let (ethernet, packet) = frame.split_at_checked(ETHERNET_BYTES).ok_or(Invalid::Length)?;
    let (ips, udp) = match array(ethernet, 12) {
        TYPE_IPV4 => ipv4(packet)?,
        TYPE_IPV6 => ipv6(packet)?,
        _ => return Err(Invalid::Other),
    };
    let head = udp.get(..UDP_BYTES).ok_or(Invalid::Length)?;
    let word = |at| u16::from_be_bytes(array(head, at));
    let udp_bytes = word(4);
    let udp = udp.get(..udp_bytes.into()).filter(|_| usize::from(udp_bytes) >= UDP_BYTES);
    let udp = udp.ok_or(Invalid::Length)?;
    let [from, to] = [
        End { mac: array(ethernet, 6), address: (ips[0], word(0)).into() },
        End { mac: array(ethernet, 0), address: (ips[1], word(2)).into() },
    ];
    let is_sound = is_sound(word(6), pseudo_sum(from.address, to.address, udp_bytes), udp, ips[0]);
    let begin = head_bytes(&ips[0]);
    let payload = begin..begin + udp.len() - UDP_BYTES;
    match () {
        () if !is_sound => Err(Invalid::Checksum),
        () if !is_host(&from) => Err(Invalid::Source),
        () => Ok(Datagram { from, to, payload }),
    }
}

/// Writes the headers before a payload of `payload_bytes` bytes that lies at [`head_bytes`] of `frame` already, and
/// returns the bytes of the whole; `None` if they do not fit the frame or an IP packet, or the addresses are of two
/// families.
pub fn write_head(frame: &mut [u8], from: &End, to: &End, payload_bytes: usize) -> Option<usize> {
    let begin = head_bytes(&from.address.ip());
    let frame = frame.get_mut(..begin.checked_add(payload_bytes)?)?;
    let udp_bytes = u16::try_from(UDP_BYTES + payload_bytes).ok()?;
    let (ethernet, packet) = frame.split_at_mut(ETHERNET_BYTES);
    ethernet[..6].copy_from_slice(&to.mac);
    ethernet[6..12].copy_from_slice(&from.mac);
    let udp = match (from.address.ip(), to.address.ip()) {
        (IpAddr::V4(from), IpAddr::V4(to)) => {
            ethernet[12..].copy_from_slice(&TYPE_IPV4);
            let (head, udp) = packet.split_at_mut(IPV4_BYTES);
            write_ipv4(head, from, to, udp_bytes.checked_add(IPV4_BYTES as u16)?);
            udp
        }
        (IpAddr::V6(from), IpAddr::V6(to)) => {
            ethernet[12..].copy_from_slice(&TYPE_IPV6);
            let (head, udp) = packet.split_at_mut(IPV6_BYTES);
            write_ipv6(head, from, to, udp_bytes);
            udp
        }
        _ => return None,
    };
    udp[..2].copy_from_slice(&from.address.port().to_be_bytes());
    udp[2..4].copy_from_slice(&to.address.port().to_be_bytes());
    udp[4..6].copy_from_slice(&udp_bytes.to_be_bytes());
    udp[6..8].fill(0);
    // Zero would mean that there is no checksum.
    let checksum = match !fold(pseudo_sum(from.address, to.address, udp_bytes) + sum(udp)) {
        0 => 0xffff,
        checksum => checksum,
    };
    udp[6..8].copy_from_slice(&checksum.to_be_bytes());
    Some(frame.len())
}

/// Source, destination and payload of an IPv4 packet with UDP.
fn ipv4(packet: &[u8]) -> Result<([IpAddr; 2], &[u8]), Invalid> {
    let head = packet.get(..IPV4_BYTES).ok_or(Invalid::Length)?;
    let fragment = u16::from_be_bytes(array(head, 6)) & FRAGMENT_BITS;
    if head[0] != IPV4_PLAIN || fragment != 0 || head[9] != PROTOCOL_UDP {
        return Err(Invalid::Other);
    }
    if fold(sum(head)) != 0xffff {
        return Err(Invalid::Checksum);
    }
    let bytes = u16::from_be_bytes(array(head, 2));
    let udp = packet.get(IPV4_BYTES..bytes.into()).ok_or(Invalid::Length)?;
    let ip = |at| IpAddr::from(array::<4>(head, at));
    Ok(([ip(12), ip(16)], udp))
}

/// The same of IPv6.
fn ipv6(packet: &[u8]) -> Result<([IpAddr; 2], &[u8]), Invalid> {
    let head = packet.get(..IPV6_BYTES).ok_or(Invalid::Length)?;
    if head[0] >> 4 != 6 || head[6] != PROTOCOL_UDP {
        return Err(Invalid::Other);
    }
    let bytes = usize::from(u16::from_be_bytes(array(head, 4)));
    let udp = packet.get(IPV6_BYTES..IPV6_BYTES + bytes).ok_or(Invalid::Length)?;
    let ip = |at| IpAddr::from(array::<16>(head, at));
    Ok(([ip(8), ip(24)], udp))
}

fn write_ipv4(head: &mut [u8], from: Ipv4Addr, to: Ipv4Addr, bytes: u16) {
    head.fill(0);
    head[0] = IPV4_PLAIN;
    head[2..4].copy_from_slice(&bytes.to_be_bytes());
    // A datagram that is never cut needs no number (RFC 6864).
    head[6..8].copy_from_slice(&DO_NOT_FRAGMENT);
    head[8] = HOPS;
    head[9] = PROTOCOL_UDP;
    head[12..16].copy_from_slice(&from.octets());
    head[16..20].copy_from_slice(&to.octets());
    let checksum = !fold(sum(head));
    head[10..12].copy_from_slice(&checksum.to_be_bytes());
}

fn write_ipv6(head: &mut [u8], from: Ipv6Addr, to: Ipv6Addr, bytes: u16) {
    head.fill(0);
    head[0] = 6 << 4;
    head[4..6].copy_from_slice(&bytes.to_be_bytes());
    head[6] = PROTOCOL_UDP;
    head[7] = HOPS;
    head[8..24].copy_from_slice(&from.octets());
    head[24..40].copy_from_slice(&to.octets());
}

/// True if the checksum of a datagram is right, left to the hardware, or absent where it may be.
fn is_sound(checksum: u16, pseudo: u64, udp: &[u8], from: IpAddr) -> bool {
    let is_absent = checksum == 0 && from.is_ipv4();
    is_absent || fold(pseudo + sum(udp)) == 0xffff || is_same(checksum, fold(pseudo))
}

/// True if an answer to this sender goes to one host, and not to this one.
fn is_host(from: &End) -> bool {
    let ip = from.address.ip();
    let is_many = ip.is_multicast() || ip == IpAddr::V4(Ipv4Addr::BROADCAST) || from.mac[0] & 1 == 1;
    !is_many && !ip.is_unspecified() && !ip.is_loopback() && from.address.port() != 0
}

/// `N` bytes of a header at `at`, which lie in it.
fn array<const N: usize>(head: &[u8], at: usize) -> [u8; N] {
    std::array::from_fn(|byte| head[at + byte])
}

#[cfg(test)]
mod tests;
