//! Numbers as Redis reads them: digits alone or after a minus, without zeros in front, and within 64 bits.

/// Longest number of 64 bits in bytes, its sign included.
const DIGITS_MAX: usize = 20;

/// Reads a signed 64-bit number.
#[inline]
pub fn integer(text: &[u8]) -> Option<i64> {
    let (is_negative, digits) = text.strip_prefix(b"-").map_or((false, text), |digits| (true, digits));
    let magnitude = unsigned(digits)?;
    match is_negative {
        false => i64::try_from(magnitude).ok(),
        // There is no negative zero.
        true if magnitude == 0 => None,
        true => 0_i64.checked_sub_unsigned(magnitude),
    }
}

/// Reads an unsigned 64-bit number.
#[inline]
pub fn unsigned(text: &[u8]) -> Option<u64> {
    let is_canonical = matches!(text, [b'0'] | [b'1'..=b'9', ..]);
    if !is_canonical || text.len() > DIGITS_MAX {
        return None;
    }
    text.iter().try_fold(0_u64, |number, byte| {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 { None } else { number.checked_mul(10)?.checked_add(u64::from(digit)) }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_as_redis_writes_them() {
        for number in [0, 1, -1, 10, i64::MAX, i64::MIN, i64::MIN + 1] {
            assert_eq!(integer(number.to_string().as_bytes()), Some(number));
        }
        for text in ["", "-", "-0", "00", "01", "+1", " 1", "1 ", "1\0", "9223372036854775808", "1e3"] {
            assert_eq!(integer(text.as_bytes()), None, "{text:?}");
        }
        assert_eq!(integer(b"-9223372036854775809"), None);
        assert_eq!(unsigned(b"18446744073709551615"), Some(u64::MAX));
        assert_eq!(unsigned(b"18446744073709551616"), None);
    }
}
