//! Times as people write them on a command line.

use std::time::Duration;

/// `10s`, `500ms`, `1m 30s`, or a number of seconds.
pub(crate) fn parse_time(text: &str) -> Result<Duration, humantime::DurationError> {
    match text.parse::<u32>() {
        Ok(seconds) => Ok(Duration::from_secs(seconds.into())),
        Err(_) => humantime::parse_duration(text),
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
}
