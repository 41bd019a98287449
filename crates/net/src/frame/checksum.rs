//! The Internet checksum (RFC 1071).

use std::net::{IpAddr, SocketAddr};

/// The sum of `bytes` as 16-bit words in network order, not yet complemented or folded into 16 bits. An odd last byte
/// counts as if a zero followed.
pub(super) fn sum(bytes: &[u8]) -> u64 {
    // Ones' complement addition does not mind the order of bytes or the width of words, up to one swap at the end.
    let (words, rest) = bytes.as_chunks::<4>();
    let mut last = [0; 4];
    last[..rest.len()].copy_from_slice(rest);
    let total: u64 = words.iter().chain([&last]).map(|word| u64::from(u32::from_ne_bytes(*word))).sum();
    u64::from(u16::from_be(fold(total)))
}

/// The sum of the pseudo-header before a UDP datagram of `udp_bytes` bytes with its header.
pub(super) fn pseudo_sum(from: SocketAddr, to: SocketAddr, udp_bytes: u16) -> u64 {
    ip_sum(from.ip()) + ip_sum(to.ip()) + u64::from(super::PROTOCOL_UDP) + u64::from(udp_bytes)
}

/// Adds carries until 16 bits are left.
pub(super) fn fold(mut sum: u64) -> u16 {
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

/// True if both are the same number in ones' complement, which has two zeros.
pub(super) fn is_same(left: u16, right: u16) -> bool {
    left % 0xffff == right % 0xffff
}

fn ip_sum(ip: IpAddr) -> u64 {
    match ip {
        IpAddr::V4(ip) => sum(&ip.octets()),
        IpAddr::V6(ip) => sum(&ip.octets()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As RFC 1071 defines it.
    fn plain(bytes: &[u8]) -> u16 {
        let word = |pair: &[u8]| u64::from(pair[0]) << 8 | u64::from(pair.get(1).copied().unwrap_or(0));
        fold(bytes.chunks(2).map(word).sum())
    }

    #[test]
    fn the_sum_is_that_of_words_in_network_order() {
        // The example of RFC 1071, §3.
        assert_eq!(fold(sum(&[0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7])), 0xddf2);
        let bytes: Vec<u8> = (0..1500_u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
        for length in (0..70).chain([1471, 1472, 1500]) {
            assert!(is_same(fold(sum(&bytes[..length])), plain(&bytes[..length])), "{length}");
        }
        assert_eq!(fold(sum(&[0xff; 65_536])), 0xffff);
    }
}
