//! Ethernet frames that carry UDP datagrams over IPv4 or IPv6, read and written without I/O.
//!
//! [`parse`] takes any bytes. It reads what the kernel's steering program lets through: no VLAN tag, no IP options or
//! extension headers, no fragments. All else belongs to the kernel's stack.

mod arp;
mod checksum;
mod flow;
mod head;

use std::{
    net::{IpAddr, Ipv4Addr, SocketAddr},
    ops::Range,
};

use self::checksum::{fold, is_same, number, sum};
pub use self::{
    arp::{ARP_FRAME_BYTES, Arp},
    flow::Flow,
    head::{HEAD_BYTES_MAX, Head, write_head},
};

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
#[inline]
pub fn parse(frame: &[u8]) -> Result<Datagram, Invalid> {
    let (ethernet, packet) = frame.split_first_chunk::<ETHERNET_BYTES>().ok_or(Invalid::Length)?;
    let (ips, covered) = match array(ethernet, 12) {
        TYPE_IPV4 => ipv4(packet)?,
        TYPE_IPV6 => ipv6(packet)?,
        _ => return Err(Invalid::Other),
    };
    let udp_at = if ips[0].is_ipv4() { 8 } else { 32 };
    let head = covered.get(udp_at..udp_at + UDP_BYTES).ok_or(Invalid::Length)?;
    let word = |at| u16::from_be_bytes(array(head, at));
    let udp_bytes = usize::from(word(4));
    let covered = covered.get(..udp_at + udp_bytes).filter(|_| udp_bytes >= UDP_BYTES);
    let covered = covered.ok_or(Invalid::Length)?;
    let [from, to] = [
        End { mac: array(ethernet, 6), address: (ips[0], word(0)).into() },
        End { mac: array(ethernet, 0), address: (ips[1], word(2)).into() },
    ];
    let begin = head_bytes(&ips[0]);
    let payload = begin..begin + udp_bytes - UDP_BYTES;
    match () {
        () if !is_sound(array(head, 6), covered, udp_at) => Err(Invalid::Checksum),
        () if !is_host(&from) => Err(Invalid::Source),
        () => Ok(Datagram { from, to, payload }),
    }
}

/// Source and destination of an IPv4 packet with UDP, and the bytes from these addresses on, of which UDP's checksum covers
/// those of the datagram.
#[inline]
fn ipv4(packet: &[u8]) -> Result<([IpAddr; 2], &[u8]), Invalid> {
    let head = packet.first_chunk::<IPV4_BYTES>().ok_or(Invalid::Length)?;
    let fragment = u16::from_be_bytes(array(head, 6)) & FRAGMENT_BITS;
    if head[0] != IPV4_PLAIN || fragment != 0 || head[9] != PROTOCOL_UDP {
        return Err(Invalid::Other);
    }
    if fold(sum(head)) != 0xffff {
        return Err(Invalid::Checksum);
    }
    let bytes = u16::from_be_bytes(array(head, 2));
    let covered = packet.get(12..bytes.into()).ok_or(Invalid::Length)?;
    let ip = |at| IpAddr::from(array::<4>(head, at));
    Ok(([ip(12), ip(16)], covered))
}

/// The same of IPv6.
fn ipv6(packet: &[u8]) -> Result<([IpAddr; 2], &[u8]), Invalid> {
    let head = packet.first_chunk::<IPV6_BYTES>().ok_or(Invalid::Length)?;
    if head[0] >> 4 != 6 || head[6] != PROTOCOL_UDP {
        return Err(Invalid::Other);
    }
    let bytes = usize::from(u16::from_be_bytes(array(head, 4)));
    let covered = packet.get(8..IPV6_BYTES + bytes).ok_or(Invalid::Length)?;
    let ip = |at| IpAddr::from(array::<16>(head, at));
    Ok(([ip(8), ip(24)], covered))
}

/// True if the checksum of a datagram is right, left to the hardware, or absent where it may be. It covers these bytes, the
/// addresses and the datagram at `udp_at`, and the rest of the pseudo-header.
#[inline]
fn is_sound(checksum: [u8; 2], covered: &[u8], udp_at: usize) -> bool {
    let checksum = u16::from_ne_bytes(checksum);
    let pseudo = number(PROTOCOL_UDP.into()) + number((covered.len() - udp_at) as u16);
    let is_absent = checksum == 0 && udp_at == 8;
    let is_left = || is_same(checksum, fold(pseudo + sum(&covered[..udp_at])));
    is_absent || fold(pseudo + sum(covered)) == 0xffff || is_left()
}

/// True if an answer to this sender goes to one host, and not to this one.
fn is_host(from: &End) -> bool {
    let ip = from.address.ip();
    let is_many = ip.is_multicast() || ip == IpAddr::V4(Ipv4Addr::BROADCAST) || from.mac[0] & 1 == 1;
    !is_many && !ip.is_unspecified() && !ip.is_loopback() && from.address.port() != 0
}

/// `N` bytes of a header at `at`, which lie in it.
#[inline(always)]
fn array<const N: usize>(head: &[u8], at: usize) -> [u8; N] {
    let mut bytes = [0; N];
    bytes.copy_from_slice(&head[at..at + N]);
    bytes
}

#[cfg(test)]
mod tests;
