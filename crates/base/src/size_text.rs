//! Sizes as people write them: `64m`, `2g`, `1500`.

use std::{fmt, str::FromStr};

/// A number of bytes that reads and prints as people write it.
///
/// Accepts a whole number with an optional suffix `k`, `m`, `g` or `t` (powers of 1024, either
/// case, optionally followed by `b` or `ib`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SizeText(pub u64);

/// Why a size could not be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected a whole number of bytes with an optional suffix k, m, g or t, such as 64m")]
pub struct ParseSizeError;

const SUFFIXES: [(char, u32); 4] = [('t', 40), ('g', 30), ('m', 20), ('k', 10)];

impl FromStr for SizeText {
    type Err = ParseSizeError;

    fn from_str(text: &str) -> Result<Self, ParseSizeError> {
        let text = text.trim().to_ascii_lowercase();
        let text = text.strip_suffix("ib").or_else(|| text.strip_suffix('b')).unwrap_or(&text);
        let (digits, shift) = SUFFIXES
            .iter()
            .find_map(|&(suffix, shift)| text.strip_suffix(suffix).map(|digits| (digits, shift)))
            .unwrap_or((text, 0));
        if !digits.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(ParseSizeError);
        }
        let number: u64 = digits.parse().map_err(|_| ParseSizeError)?;
        number.checked_mul(1 << shift).map(Self).ok_or(ParseSizeError)
    }
}

impl fmt::Display for SizeText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (suffix, shift) in SUFFIXES {
            let unit = 1u64 << shift;
            if self.0 >= unit && self.0.is_multiple_of(unit) {
                return write!(f, "{}{suffix}", self.0 / unit);
            }
        }
        write!(f, "{}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_people_write() {
        for (text, bytes) in
            [("0", 0), ("1500", 1500), ("64m", 64 << 20), ("2G", 2 << 30), ("1KiB", 1024), ("3tb", 3 << 40)]
        {
            assert_eq!(text.parse(), Ok(SizeText(bytes)), "{text}");
        }
    }

    #[test]
    fn rejects_what_is_no_size() {
        for text in ["", "m", "-1", "+1", "1.5g", "1x", "99999999999999999999", "99999999t"] {
            assert_eq!(text.parse::<SizeText>(), Err(ParseSizeError), "{text}");
        }
    }

    #[test]
    fn prints_what_it_reads() {
        for text in ["0", "1500", "64m", "3g", "1025"] {
            assert_eq!(text.parse::<SizeText>().unwrap().to_string(), text);
        }
    }
}
