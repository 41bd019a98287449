//! Settings as people write and read them.

use std::time::Duration;

use minos_base::SizeText;

/// `10s`, `500ms`, `1m 30s`, or a number of seconds.
///
/// # Errors
/// The text is no time.
pub fn parse_time(text: &str) -> Result<Duration, humantime::DurationError> {
    match text.parse::<u32>() {
        Ok(seconds) => Ok(Duration::from_secs(seconds.into())),
        Err(_) => humantime::parse_duration(text),
    }
}

/// As [`parse_time`], or the longest of all times for `never`.
///
/// # Errors
/// The text is no time.
pub fn parse_time_or_never(text: &str) -> Result<Duration, humantime::DurationError> {
    if text == "never" { Ok(Duration::MAX) } else { parse_time(text) }
}

/// What the number of a setting counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unit {
    Count,
    Bytes,
    /// Milliseconds.
    Time,
}

impl Unit {
    /// Reads a number; otherwise what is expected.
    pub(super) fn parse(self, text: &str) -> Result<u64, String> {
        match self {
            Self::Count => {
                text.parse().map_err(|_| format!("expected a whole number, such as 1024, not {text:?}"))
            }
            Self::Bytes => match text.parse() {
                Ok(SizeText(bytes)) => Ok(bytes),
                Err(error) => Err(format!("{error}, not {text:?}")),
            },
            Self::Time => {
                let time =
                    parse_time(text).map_err(|_| format!("expected a time, such as 30s, not {text:?}"))?;
                if !time.is_zero() && time < Duration::from_millis(1) {
                    return Err(format!("expected 1ms or more, or no time at all, not {text:?}"));
                }
                Ok(u64::try_from(time.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX))
            }
        }
    }

    /// The text of a number.
    pub(super) fn text(self, number: u64) -> String {
        match self {
            Self::Count => number.to_string(),
            Self::Bytes => SizeText(number).to_string(),
            Self::Time => humantime::format_duration(Duration::from_millis(number)).to_string(),
        }
    }

    /// The number in the unit of metrics: seconds rather than milliseconds.
    pub(super) fn metric(self, number: u64) -> f64 {
        if self == Self::Time { number as f64 / 1000.0 } else { number as f64 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_times() {
        for (text, milliseconds) in [("10s", 10_000), ("500ms", 500), ("2m", 120_000), ("3", 3000), ("0", 0)]
        {
            assert_eq!(parse_time(text), Ok(Duration::from_millis(milliseconds)), "{text}");
        }
        for text in ["", "s", "-1s", "10x", "1e300s", "nans", "1.5"] {
            assert!(parse_time(text).is_err(), "{text}");
        }
    }

    #[test]
    fn numbers_read_as_they_are_written() {
        for (unit, text) in
            [(Unit::Count, "7"), (Unit::Bytes, "64k"), (Unit::Time, "1m 30s"), (Unit::Time, "0s")]
        {
            assert_eq!(unit.text(unit.parse(text).unwrap()), text);
        }
        for (unit, text) in [
            (Unit::Count, "-1"),
            (Unit::Count, "1k"),
            (Unit::Bytes, "1.5m"),
            (Unit::Time, "soon"),
            (Unit::Time, "1ns"),
        ] {
            let error = unit.parse(text).unwrap_err();
            assert!(error.starts_with("expected") && error.contains(text), "{error}");
        }
    }
}
