//! The Internet checksum (RFC 1071).
//!
//! Ones' complement addition does not mind the order of bytes. Sums here are of 16-bit words as they lie in memory, so that
//! none is swapped.

/// The sum of `bytes`, not yet complemented or folded into 16 bits. An odd last byte counts as if a zero followed.
#[inline]
pub(super) fn sum(bytes: &[u8]) -> u64 {
    // Nor does it mind the width of words: an addition of 128 bits is two instructions.
    let (words, rest) = bytes.as_chunks::<8>();
    let mut last = [0; 8];
    last[..rest.len()].copy_from_slice(rest);
    let wide = |word: &[u8; 8]| u128::from(u64::from_ne_bytes(*word));
    let sum = wide(&last) + words.iter().map(wide).sum::<u128>();
    // Room is left for other numbers.
    (sum as u64 & 0xffff_ffff) + (sum as u64 >> 32) + (sum >> 64) as u64
}

/// What a number of the headers adds to a sum.
#[inline]
pub(super) fn number(number: u16) -> u64 {
    number.to_be().into()
}

/// Adds carries until 16 bits are left.
#[inline]
pub(super) fn fold(sum: u64) -> u16 {
    // A sum of two halves that has a carry has room for it.
    let (sum, carry) = (sum as u32).overflowing_add((sum >> 32) as u32);
    let sum = sum + u32::from(carry);
    let (sum, carry) = (sum as u16).overflowing_add((sum >> 16) as u16);
    sum + u16::from(carry)
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
