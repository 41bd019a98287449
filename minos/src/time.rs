//! Times as people write them on a command line.

use std::time::Duration;

pub(crate) use minos_node::settings::parse_time;

/// As [`parse_time`], or the longest of all times for `never`.
pub(crate) fn parse_time_or_never(text: &str) -> Result<Duration, String> {
    match text {
        "never" => Ok(Duration::MAX),
        text => parse_time(text).map_err(|error| error.to_string()),
    }
}
