//! Numbers as memcached reads them, in two ways.
//!
//! Most words must consist of digits alone and fit their type: [`digits`], [`digits_32`] and [`integer_32`].
//! The client flags and the expiry of a classic store, and values that are counted with, are read as C's
//! `strtol` and `strtoull` do: leading white space and a sign are allowed; a number ends at the end of the
//! text, at white space or at a zero byte; and one that does not fit the narrower type loses its upper
//! bits in silence.

/// Longest word, in bytes, that is read as a number of 32 bits and as one of 64; zeros in front count.
const WORD_BYTES_MAX_32: usize = 11;
const WORD_BYTES_MAX_64: usize = 22;

/// Reads an unsigned 64-bit number that consists of digits alone.
#[inline]
pub fn digits(text: &[u8]) -> Option<u64> {
    if text.is_empty() || text.len() > WORD_BYTES_MAX_64 {
        return None;
    }
    text.iter().try_fold(0_u64, |number, byte| {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 { None } else { number.checked_mul(10)?.checked_add(u64::from(digit)) }
    })
}

/// Reads an unsigned 32-bit number that consists of digits alone.
#[inline]
pub fn digits_32(text: &[u8]) -> Option<u32> {
    if text.len() > WORD_BYTES_MAX_32 { None } else { u32::try_from(digits(text)?).ok() }
}

/// Reads a signed 32-bit number: digits alone, or after a minus.
#[inline]
pub fn integer_32(text: &[u8]) -> Option<i32> {
    if text.len() > WORD_BYTES_MAX_32 {
        return None;
    }
    let (sign, text) = text.strip_prefix(b"-").map_or((1, text), |text| (-1, text));
    i32::try_from(sign * i64::try_from(digits(text)?).ok()?).ok()
}

/// Reads an unsigned 64-bit number. `None` for no number, too large a one, or a negative one that
/// wraps into the upper half.
#[inline]
pub fn unsigned(text: &[u8]) -> Option<u64> {
    let (negative, magnitude) = sign_and_magnitude(text)?;
    let number = if negative { magnitude.wrapping_neg() } else { magnitude };
    // memcached looks for the sign anywhere, and only when the number could come from one.
    if (number >> 63) != 0 && text.contains(&b'-') { None } else { Some(number) }
}

/// Reads an unsigned number and keeps its lower 32 bits, as memcached does.
#[inline]
pub fn unsigned_32(text: &[u8]) -> Option<u32> {
    unsigned(text).map(|number| number as u32)
}

/// Reads a signed 64-bit number and keeps its lower 32 bits, as memcached does.
#[inline]
pub fn signed_32(text: &[u8]) -> Option<i32> {
    let (negative, magnitude) = sign_and_magnitude(text)?;
    if magnitude > (1 << 63) - u64::from(!negative) {
        return None;
    }
    let number = if negative { magnitude.wrapping_neg() } else { magnitude };
    Some(number as i32)
}

fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t'..=b'\r')
}

#[inline]
fn sign_and_magnitude(text: &[u8]) -> Option<(bool, u64)> {
    let spaces = text.iter().position(|&byte| !is_space(byte))?;
    let text = &text[spaces..];
    let (negative, digits) = match text.first()? {
        b'-' => (true, &text[1..]),
        b'+' => (false, &text[1..]),
        _ => (false, text),
    };
    let mut magnitude: u64 = 0;
    let mut length = 0;
    for &byte in digits {
        if !byte.is_ascii_digit() {
            break;
        }
        magnitude = magnitude.checked_mul(10)?.checked_add(u64::from(byte - b'0'))?;
        length += 1;
    }
    let ends_well = digits.get(length).is_none_or(|&byte| byte == 0 || is_space(byte));
    (length > 0 && ends_well).then_some((negative, magnitude))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_strtoull_reads() {
        for (text, number) in [
            ("0", 0),
            ("18446744073709551615", u64::MAX),
            (" \t+7", 7),
            ("12 34", 12),
            ("12\0x", 12),
            ("-18446744073709551615", 1),
            ("-0", 0),
            ("007", 7),
        ] {
            assert_eq!(unsigned(text.as_bytes()), Some(number), "{text}");
        }
        for text in ["", " ", "-", "+", "-1", "x", "1x", "18446744073709551616", "1.5", "--1"] {
            assert_eq!(unsigned(text.as_bytes()), None, "{text}");
        }
    }

    #[test]
    fn strict_numbers_are_digits_and_fit() {
        for (text, number) in
            [("0", 0), ("007", 7), ("18446744073709551615", u64::MAX), ("0000000000000000000001", 1)]
        {
            assert_eq!(digits(text.as_bytes()), Some(number), "{text}");
        }
        for text in ["", "+1", "-1", "1\t", "\t1", "1\0", "18446744073709551616", "00000000000000000000001"] {
            assert_eq!(digits(text.as_bytes()), None, "{text}");
        }
        assert_eq!(digits_32(b"4294967295"), Some(u32::MAX));
        assert_eq!(digits_32(b"00000000001"), Some(1));
        for text in ["", "+1", "-1", "4294967296", "000000000001"] {
            assert_eq!(digits_32(text.as_bytes()), None, "{text}");
        }
        for number in [0, -1, i32::MIN, i32::MAX] {
            assert_eq!(integer_32(number.to_string().as_bytes()), Some(number));
        }
        for text in ["", "-", "+1", "--1", "1\t", "2147483648", "-2147483649", "000000000001"] {
            assert_eq!(integer_32(text.as_bytes()), None, "{text}");
        }
    }

    #[test]
    fn narrower_numbers_lose_their_upper_bits() {
        assert_eq!(unsigned_32(b"4294967296"), Some(0));
        assert_eq!(signed_32(b"4294967297"), Some(1));
        assert_eq!(signed_32(b"2147483648"), Some(i32::MIN));
        assert_eq!(signed_32(b"-1"), Some(-1));
        assert_eq!(signed_32(b"-9223372036854775808"), Some(0));
        assert_eq!(signed_32(b"9223372036854775807"), Some(-1));
        assert_eq!(signed_32(b"9223372036854775808"), None);
        assert_eq!(signed_32(b"-9223372036854775809"), None);
    }
}
