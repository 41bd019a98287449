//! Counting: integers of 64 bits, and decimal numbers.

use minos_engine::{Item, ItemMeta, Mode};
use minos_proto::resp::{compose, integer};

use super::call::{Call, Done, Failure, NO_INTEGER, entry, fail, kept, no_memory};
use crate::ops::{Context, Placement};

const OVERFLOW: &str = "ERR increment or decrement would overflow";
const NO_FLOAT: &str = "ERR value is not a valid float";

/// Digits behind the point that a decimal number keeps, as in Redis.
const DECIMALS: u32 = 17;
const UNIT: i128 = 10_i128.pow(DECIMALS);
/// Longest text of a decimal number in bytes.
const DECIMAL_BYTES_MAX: usize = 400;

/// INCR, DECR and INCRBY.
pub(super) fn add<M: Mode, P: Placement>(
    cx: &mut Context<'_, M, P>,
    call: &Call<'_>,
    delta: Result<i64, Failure>,
    tx: &mut Vec<u8>,
) -> Done<M> {
    let delta = delta?;
    let (hash, key) = call.key();
    let mut entry = entry(cx, hash, key)?;
    let (old, meta) = match entry.item() {
        Some(item) => (integer(item.value()).ok_or_else(|| Failure::from(NO_INTEGER))?, kept(&item)),
        None => (0, ItemMeta::default()),
    };
    let Some(new) = old.checked_add(delta) else { return fail(OVERFLOW) };
    let mut buffer = itoa::Buffer::new();
    let stored = entry.insert(&[buffer.format(new).as_bytes()], meta);
    drop(entry);
    if stored.is_err() {
        return no_memory(cx);
    }
    if delta < 0 {
        cx.counters.decr_hits.count()
    } else {
        cx.counters.incr_hits.count()
    }
    compose::integer(tx, new);
    Ok(())
}

/// DECRBY.
pub(super) fn subtract<M: Mode, P: Placement>(
    cx: &mut Context<'_, M, P>,
    call: &Call<'_>,
    tx: &mut Vec<u8>,
) -> Done<M> {
    match call.integer(2)?.checked_neg() {
        Some(delta) => add(cx, call, Ok(delta), tx),
        None => fail("ERR decrement would overflow"),
    }
}

/// INCRBYFLOAT.
pub(super) fn add_decimal<M: Mode, P: Placement>(
    cx: &mut Context<'_, M, P>,
    call: &Call<'_>,
    tx: &mut Vec<u8>,
) -> Done<M> {
    let (hash, key) = call.key();
    let mut entry = entry(cx, hash, key)?;
    let decimal = |text: &[u8]| Decimal::read(text).ok_or_else(|| Failure::from(NO_FLOAT));
    let (old, meta) = match entry.item() {
        Some(item) => (decimal(value_of(&item))?, kept(&item)),
        None => (Decimal::Exact(0), ItemMeta::default()),
    };
    let new = old.add(decimal(call.argument(2))?);
    let Some(text) = new.text() else { return fail("ERR increment would produce NaN or Infinity") };
    let stored = entry.insert(&[text.as_bytes()], meta);
    drop(entry);
    if stored.is_err() {
        return no_memory(cx);
    }
    compose::bulk(tx, text.as_bytes());
    Ok(())
}

/// The value of an item that may be a number; nothing for one that is too long.
fn value_of<'a, M: Mode>(item: &'a Item<'_, M>) -> &'a [u8] {
    if item.value_bytes() > DECIMAL_BYTES_MAX { &[] } else { item.value() }
}

/// A decimal number: exact as long as it is not too large for that.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Decimal {
    /// In units of 10^-17.
    Exact(i128),
    Rough(f64),
}

impl Decimal {
    /// Reads digits, with a sign, a point and an exponent where C's `strtold` takes them.
    fn read(text: &[u8]) -> Option<Self> {
        if text.len() > DECIMAL_BYTES_MAX {
            return None;
        }
        let text = std::str::from_utf8(text).ok()?;
        let rough: f64 = text.parse().ok().filter(|number: &f64| !number.is_nan())?;
        Some(Self::exact(text).map_or(Self::Rough(rough), Self::Exact))
    }

    /// The units in a text that is known to be a number; `None` if they are too many.
    fn exact(text: &str) -> Option<i128> {
        let (mantissa, exponent) = text.split_once(['e', 'E']).unwrap_or((text, "0"));
        let exponent: i32 = exponent.parse().ok()?;
        let (is_negative, digits) = match mantissa.as_bytes() {
            [b'-', digits @ ..] => (true, digits),
            [b'+', digits @ ..] => (false, digits),
            digits => (false, digits),
        };
        let point = digits.iter().position(|&byte| byte == b'.').unwrap_or(digits.len());
        // The power of ten of the next digit, in units.
        let mut power = point as i32 - 1 + exponent.checked_add(DECIMALS as i32)?;
        let mut units: i128 = 0;
        for digit in digits.iter().filter(|&&byte| byte != b'.') {
            let digit = i128::from(digit.checked_sub(b'0').filter(|&digit| digit <= 9)?);
            match power {
                0.. if digit > 0 => {
                    units = units.checked_add(digit.checked_mul(10_i128.checked_pow(power as u32)?)?)?
                }
                -1 if digit >= 5 => units = units.checked_add(1)?,
                _ => {}
            }
            power = power.checked_sub(1)?;
        }
        Some(if is_negative { -units } else { units })
    }

    fn rough(self) -> f64 {
        match self {
            Self::Exact(units) => units as f64 / UNIT as f64,
            Self::Rough(number) => number,
        }
    }

    fn add(self, other: Self) -> Self {
        match (self, other) {
            (Self::Exact(a), Self::Exact(b)) if let Some(sum) = a.checked_add(b) => Self::Exact(sum),
            _ => Self::Rough(self.rough() + other.rough()),
        }
    }

    /// The number without an exponent, and without zeros at its end; `None` if it is none.
    fn text(self) -> Option<String> {
        let text = match self {
            Self::Exact(units) => {
                let (sign, units) = (if units < 0 { "-" } else { "" }, units.unsigned_abs());
                let unit = UNIT.unsigned_abs();
                format!("{sign}{}.{:017}", units / unit, units % unit)
            }
            Self::Rough(number) if number.is_finite() => format!("{number:.17}"),
            Self::Rough(_) => return None,
        };
        Some(text.trim_end_matches('0').trim_end_matches('.').to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sum(a: &str, b: &str) -> Option<String> {
        Decimal::read(a.as_bytes())?.add(Decimal::read(b.as_bytes())?).text()
    }

    #[test]
    fn sums_are_exact() {
        for (a, b, expected) in [
            ("0.1", "0.2", "0.3"),
            ("10.50", "0.1", "10.6"),
            ("5.0e3", "200", "5200"),
            ("-1", "1", "0"),
            ("-0.5", "0.25", "-0.25"),
            ("3", "-3.5", "-0.5"),
            (".5", "1.", "1.5"),
            ("1e-18", "0", "0"),
            ("5e-18", "0", "0.00000000000000001"),
            ("1e20", "1", "100000000000000000001"),
        ] {
            assert_eq!(sum(a, b).as_deref(), Some(expected), "{a} {b}");
        }
        assert_eq!(sum("1e300", "1").map(|text| text.len()), Some(301));
        assert_eq!(sum("1e307", "1e307").map(|text| text.len()), Some(308));
        assert_eq!(sum("1e308", "1e308"), None);
        for text in ["", " 1", "1 ", "x", "1x", "0x10", "nan", "1e", "--1", "1.2.3"] {
            assert_eq!(sum(text, "1"), None, "{text:?}");
        }
        assert_eq!(sum("inf", "1"), None);
    }
}
