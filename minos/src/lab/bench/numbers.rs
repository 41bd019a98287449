//! Numbers as people write them on a command line.

use minos_workload::RATE_MAX;

use crate::lab::sim::{Range, number, parse_range};

/// Operations per second, or as many as the server can answer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Rate {
    /// So many.
    PerSecond(f64),
    /// Closed loop.
    Max,
}

/// `20000`, `20k`, `1.5m` or `max`.
pub(super) fn parse_rate(text: &str) -> Result<Rate, String> {
    if text == "max" {
        return Ok(Rate::Max);
    }
    number(text).filter(|rate| *rate > 0.0 && *rate <= RATE_MAX).map(Rate::PerSecond).ok_or_else(|| {
        "expected operations per second above 0 and up to 100m, such as 20000, 20k or 1.5m, or max".to_owned()
    })
}

/// `10k..200k`.
pub(super) fn parse_rate_range(text: &str) -> Result<Range, String> {
    let range = parse_range(text).ok().filter(|range| range.from > 0.0 && range.to <= RATE_MAX);
    range.ok_or_else(|| {
        "expected two rates above 0 and up to 100m, the lower one first, such as 10k..200k".to_owned()
    })
}

/// A share from 0 to 1.
pub(super) fn parse_share(text: &str) -> Result<f64, String> {
    let share = text.parse::<f64>().ok().filter(|share| (0.0..=1.0).contains(share));
    share.ok_or_else(|| "expected a number from 0 to 1".to_owned())
}

/// A percentage from 0 to 100.
pub(super) fn parse_percent(text: &str) -> Result<f64, String> {
    let percent = text.parse::<f64>().ok().filter(|percent| (0.0..=100.0).contains(percent));
    percent.ok_or_else(|| "expected a number from 0 to 100".to_owned())
}

/// An exponent that is not negative.
pub(super) fn parse_exponent(text: &str) -> Result<f64, String> {
    let exponent = text.parse::<f64>().ok().filter(|exponent| (0.0..=10.0).contains(exponent));
    exponent.ok_or_else(|| "expected an exponent from 0 to 10, such as 0.99".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_rates() {
        for (text, rate) in [("20000", 2e4), ("20k", 2e4), ("1.5M", 1.5e6), ("0.5", 0.5)] {
            assert_eq!(parse_rate(text), Ok(Rate::PerSecond(rate)), "{text}");
        }
        assert_eq!(parse_rate("max"), Ok(Rate::Max));
        for text in ["", "0", "-1", "k", "inf", "nan", "10x", "101m"] {
            assert!(parse_rate(text).is_err(), "{text}");
        }
        assert_eq!(parse_rate_range("10k..200k"), Ok(Range { from: 1e4, to: 2e5 }));
        for text in ["10k", "10k..", "10k..10k", "20k..10k", "10k..101m"] {
            assert!(parse_rate_range(text).is_err(), "{text}");
        }
    }

    #[test]
    fn shares_have_bounds() {
        assert_eq!(parse_share("0.95"), Ok(0.95));
        assert!(parse_share("1.1").is_err() && parse_share("nan").is_err());
        assert!(parse_percent("100.1").is_err() && parse_exponent("-1").is_err());
    }
}
