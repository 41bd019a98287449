//! The Internet checksum (RFC 1071).
//!
//! Ones' complement addition does not mind the order of bytes. Sums here are of 16-bit words as they lie in memory, so that
//! none is swapped.

/// The sum of `bytes`, not yet complemented or folded into 16 bits. An odd last byte counts as if a zero followed.
#[inline]
pub(super) fn sum(bytes: &[u8]) -> u64 {
    // Nor does it mind the width of words.
    let (words, rest) = bytes.as_chunks::<8>();
    let (pairs, odd) = rest.as_chunks::<2>();
    let halves = |word: &[u8; 8]| {
        let word = u64::from_ne_bytes(*word);
        (word & 0xffff_ffff) + (word >> 32)
    };
    let last = odd.first().map_or(0, |&byte| u16::from_ne_bytes([byte, 0]));
    let pairs = pairs.iter().map(|pair| u64::from(u16::from_ne_bytes(*pair))).sum::<u64>();
    words.iter().map(halves).sum::<u64>() + pairs + u64::from(last)
}

/// What a number of the headers adds to a sum.
#[inline]
pub(super) fn number(number: u16) -> u64 {
    number.to_be().into()
}

/// Adds carries until 16 bits are left.
#[inline]
pub(super) fn fold(sum: u64) -> u16 {
    // Twice two halves of 32 and 16 bits, of which the second has at most one carry.
    let sum = (sum & 0xffff_ffff) + (sum >> 32);
    let sum = (sum & 0xffff_ffff) + (sum >> 32);
    let sum = (sum & 0xffff) + (sum >> 16);
    let sum = (sum & 0xffff) + (sum >> 16);
    sum as u16
}

/// True if both are the same number in ones' complement, which has two zeros.
pub(super) fn is_same(left: u16, right: u16) -> bool {
    left % 0xffff == right % 0xffff
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The sum in network order.
    fn in_network_order(bytes: &[u8]) -> u16 {
        fold(sum(bytes)).to_be()
    }

    /// As RFC 1071 defines it.
    fn plain(bytes: &[u8]) -> u16 {
        let word = |pair: &[u8]| u64::from(pair[0]) << 8 | u64::from(pair.get(1).copied().unwrap_or(0));
        fold(bytes.chunks(2).map(word).sum())
    }

    #[test]
    fn the_sum_is_that_of_words_in_network_order() {
        // The example of RFC 1071, §3.
        assert_eq!(in_network_order(&[0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7]), 0xddf2);
        let bytes: Vec<u8> = (0..1500_u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
        for length in (0..70).chain([1471, 1472, 1500]) {
            assert!(is_same(in_network_order(&bytes[..length]), plain(&bytes[..length])), "{length}");
        }
        assert_eq!(fold(sum(&[0xff; 65_536])), 0xffff);
    }
}
