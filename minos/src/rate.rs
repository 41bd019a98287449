//! Rates on the command line.

use minos_base::SizeText;
use minos_tier::RATE_MAX;

/// Reads bytes a second, such as `64m`.
pub(crate) fn parse_rate(text: &str) -> Result<u64, String> {
    let SizeText(rate) = text.parse().map_err(|error| format!("{error}"))?;
    if rate > RATE_MAX { Err(format!("at most {} a second", SizeText(RATE_MAX))) } else { Ok(rate) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_bounded() {
        assert_eq!(parse_rate("0"), Ok(0));
        assert_eq!(parse_rate("1t"), Ok(RATE_MAX));
        for text in ["2t", "-1", "1.5m", "", "none", "99999999999999999999"] {
            assert!(parse_rate(text).is_err(), "{text}");
        }
    }
}
